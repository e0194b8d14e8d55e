"""How a round's cohort is drawn within each zone."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class PoissonSampling:
    """Zone i takes each of its clients independently with probability q_i.

    Attributes:
      probabilities: q_i in (0, 1], one per zone.
    """

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", tuple(map(float, self.probabilities)))
        for i, q in enumerate(self.probabilities):
            if not (math.isfinite(q) and 0.0 < q <= 1.0):
                raise ValueError(f"probabilities[{i}] is {q}; allowed is (0, 1]")


@dataclasses.dataclass(frozen=True)
class FixedSizeSampling:
    """Zone i takes exactly k_i of its clients, uniformly without replacement.

    Attributes:
      sizes: k_i >= 1, one per zone.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        for i, k in enumerate(self.sizes):
            if int(k) != k or k < 1:
                raise ValueError(f"sizes[{i}] is {k}; allowed is a whole number >= 1")
        object.__setattr__(self, "sizes", tuple(int(k) for k in self.sizes))


@dataclasses.dataclass(frozen=True)
class FullParticipation:
    """Every client takes part in every round."""


Sampling = PoissonSampling | FixedSizeSampling | FullParticipation
