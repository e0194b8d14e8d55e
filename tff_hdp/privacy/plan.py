"""The noise plan: who adds noise to what, in which zone, and who sees it.

The aggregator is built from a `NoisePlan` and epsilon is computed from the same
value, so what is accounted is what is added.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

from tff_hdp.privacy.checks import check_nonnegative, check_positive
from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.sampling import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    Sampling,
)
from tff_hdp.privacy.secure import check_secure
from tff_hdp.protocols.secagg import FixedPoint


@dataclasses.dataclass(frozen=True)
class Level:
    """An aggregation level between the zones and the server.

    Attributes:
      parents: For every node of the level beneath, the node of this level it
        reports to; covers 0..m-1.
      noise_multipliers: Of each of the m nodes.
    """

    parents: tuple[int, ...]
    noise_multipliers: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", tuple(int(p) for p in self.parents))
        object.__setattr__(
            self, "noise_multipliers", tuple(map(float, self.noise_multipliers))
        )
        for i, z in enumerate(self.noise_multipliers):
            check_nonnegative(f"noise_multipliers[{i}]", z)
        if set(self.parents) != set(range(len(self.noise_multipliers))):
            raise ValueError(
                f"parents name the nodes {sorted(set(self.parents))}, "
                "but noise_multipliers are given for "
                f"0..{len(self.noise_multipliers) - 1}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Who adds Gaussian noise where, and what the account may assume.

    Zone i outputs X_i = (sum_k w_k clip(Delta_k) + noise) / D_i and the server
    releases sum_i p_i X_i + noise, with weights w_k in [0, 1] (PAPERS: section
    1 of the HDP paper with its estimators corrected: the denominator is fixed
    and public). Multipliers are standard deviations in units of the sensitivity
    of the value they are added to.

    Attributes:
      zone_sizes: n_i, registered clients of each zone.
      sampling: How each zone draws its cohort.
      client_noise_multiplier: z_L, multiplier of each noising client on its own update.
      noising_clients: How many of zone i's clients noise their own update: the
        first so many in the zoning's order.
      zone_noise_multipliers: z_H per zone, added by its super-node.
      server_noise_multiplier: z_C, added by the server.
      upper_levels: Further levels between zones and server, innermost first.
      clipping: The bound on one client's update.
      estimator: `fixed` divides by D_i = q_i W_i; `bounded` by
        max(q_i Wmin_i, sum w), with twice the sensitivity; `realised` by
        sum w, which has no bounded sensitivity and so allows no noise.
      zone_weights: W_i, the public sum of w over the whole zone; None means
        uniform weights, W_i = n_i.
      minimum_weights: Wmin_i for `bounded`; None means W_i.
      mixing: `weighted` (p_i proportional to D_i), `equal` (1/s), or p itself.
      cohort_hidden: Whether the aggregator does not learn who took part.
      participation_revealed: Whether every observer learns who took part.
      secure_aggregation: Whether a super-node sees only its zone's sum.
      secure_server: Whether the server sees only the sum over all zones.
      encoding: The fixed point in which those sums are taken; client noise, and
        with `secure_server` zone noise, is then discrete Gaussian on its grid.
        None accounts as if sums were real numbers.
      min_zone_clients: A zone with fewer participants than this is left out of
        the round; its super-node then adds its noise to zero.
      neighbours: `add_or_remove`, `zero_out` or `replace_one`; None lets the
        account take the relation that fits the sampling and the noise.
      colluding_super_nodes: How many super-nodes share what they know with the
        observer; their noise protects nobody from it.
      colluding_clients: How many noising clients do likewise.
      dropout_rate: Probability that a sampled client never delivers.
      top_up: Whether each super-node tops its zone's client noise up to that of
        all its noising clients, so that the total does not show who came.
      elected_super_nodes: Whether super-nodes are clients elected by their
        peers; one of another zone then receives the released model too.

    Raises:
      ValueError: If any field is out of range, naming it and its value.
    """

    zone_sizes: tuple[int, ...]
    sampling: Sampling
    client_noise_multiplier: float = 0.0
    noising_clients: tuple[int, ...] | None = None
    zone_noise_multipliers: tuple[float, ...] | None = None
    server_noise_multiplier: float = 0.0
    upper_levels: tuple[Level, ...] = ()
    clipping: Clipping = Clipping()
    estimator: Literal["fixed", "bounded", "realised"] = "fixed"
    zone_weights: tuple[float, ...] | None = None
    minimum_weights: tuple[float, ...] | None = None
    mixing: Literal["weighted", "equal"] | tuple[float, ...] = "weighted"
    cohort_hidden: bool = True
    participation_revealed: bool = False
    secure_aggregation: bool = False
    secure_server: bool = False
    encoding: FixedPoint | None = None
    min_zone_clients: int = 1
    neighbours: Literal["add_or_remove", "zero_out", "replace_one"] | None = None
    colluding_super_nodes: int = 0
    colluding_clients: int = 0
    dropout_rate: float = 0.0
    top_up: bool = False
    elected_super_nodes: bool = False

    def __post_init__(self) -> None:
        s = self._check_zones()
        self._check_noise(s)
        self._check_sampling(s)
        self._check_estimator(s)
        self._check_account(s)
        check_secure(self)

    # Derived quantities -----------------------------------------------------

    @property
    def num_zones(self) -> int:
        """Number of zones, s."""
        return len(self.zone_sizes)

    @property
    def num_clients(self) -> int:
        """Number of clients, n."""
        return sum(self.zone_sizes)

    @property
    def is_noisy(self) -> bool:
        """Whether anybody adds noise."""
        return bool(
            self.server_noise_multiplier
            or any(self.zone_noise_multipliers)
            or (self.client_noise_multiplier and any(self.noising_clients))
            or any(z for level in self.upper_levels for z in level.noise_multipliers)
        )

    @property
    def participation(self) -> tuple[float, ...]:
        """Per zone, the probability that a given client is drawn in a round."""
        if isinstance(self.sampling, PoissonSampling):
            return self.sampling.probabilities
        if isinstance(self.sampling, FixedSizeSampling):
            pairs = zip(self.sampling.sizes, self.zone_sizes, strict=True)
            return tuple(k / n for k, n in pairs)
        return (1.0,) * self.num_zones

    @property
    def denominators(self) -> tuple[float, ...]:
        """D_i = q_i W_i (`fixed`) or its floor q_i Wmin_i (`bounded`)."""
        weights = self.zone_weights or tuple(map(float, self.zone_sizes))
        if self.estimator == "bounded" and self.minimum_weights is not None:
            weights = self.minimum_weights
        return tuple(q * w for q, w in zip(self.participation, weights, strict=True))

    @property
    def zone_sensitivities(self) -> tuple[float, ...]:
        """L2 sensitivity of each zone's output X_i: S/D_i, twice it if bounded."""
        factor = 2.0 if self.estimator == "bounded" else 1.0
        return tuple(factor * self.clipping.clip_norm / d for d in self.denominators)

    @property
    def mixing_weights(self) -> tuple[float, ...]:
        """p_i, summing to 1."""
        if self.mixing == "weighted":
            total = sum(self.denominators)
            return tuple(d / total for d in self.denominators)
        if self.mixing == "equal":
            return (1.0 / self.num_zones,) * self.num_zones
        return self.mixing

    @property
    def released_sensitivities(self) -> tuple[float, ...]:
        """How far one client of zone i can move the released average, p_i * S_i."""
        if self.mixing == "weighted":
            # p_i undoes D_i; multiplied out, equal values would differ by rounding.
            moved = self.zone_sensitivities[0] * self.denominators[0]
            return (moved / sum(self.denominators),) * self.num_zones
        pairs = zip(self.mixing_weights, self.zone_sensitivities, strict=True)
        return tuple(p * u for p, u in pairs)

    # Validation -------------------------------------------------------------

    def _check_zones(self) -> int:
        object.__setattr__(self, "zone_sizes", tuple(self.zone_sizes))
        if not self.zone_sizes:
            raise ValueError("zone_sizes is empty")
        for i, n in enumerate(self.zone_sizes):
            if int(n) != n or n < 1:
                raise ValueError(f"zone_sizes[{i}] is {n}; a zone needs a client")
        object.__setattr__(self, "zone_sizes", tuple(int(n) for n in self.zone_sizes))
        return len(self.zone_sizes)

    def _check_noise(self, s: int) -> None:
        check_nonnegative("client_noise_multiplier", self.client_noise_multiplier)
        check_nonnegative("server_noise_multiplier", self.server_noise_multiplier)
        counts = (0,) * s if self.noising_clients is None else self.noising_clients
        zone_noise_multipliers = (
            (0.0,) * s
            if self.zone_noise_multipliers is None
            else self.zone_noise_multipliers
        )
        object.__setattr__(
            self, "noising_clients", _per_zone("noising_clients", counts, s)
        )
        object.__setattr__(
            self,
            "zone_noise_multipliers",
            _per_zone("zone_noise_multipliers", zone_noise_multipliers, s),
        )
        for i, (noising, n) in enumerate(
            zip(self.noising_clients, self.zone_sizes, strict=True)
        ):
            if int(noising) != noising or not 0 <= noising <= n:
                raise ValueError(
                    f"noising_clients[{i}] is {noising}; allowed is 0..{n}"
                )
        for i, z in enumerate(self.zone_noise_multipliers):
            check_nonnegative(f"zone_noise_multipliers[{i}]", z)
        below = s
        for j, level in enumerate(self.upper_levels):
            if len(level.parents) != below:
                raise ValueError(
                    f"upper_levels[{j}].parents has {len(level.parents)} entries "
                    f"for {below} nodes"
                )
            below = len(level.noise_multipliers)

    def _check_sampling(self, s: int) -> None:
        if isinstance(self.sampling, PoissonSampling):
            _per_zone("sampling.probabilities", self.sampling.probabilities, s)
        elif isinstance(self.sampling, FixedSizeSampling):
            sizes = _per_zone("sampling.sizes", self.sampling.sizes, s)
            for i, (k, n) in enumerate(zip(sizes, self.zone_sizes, strict=True)):
                if k > n:
                    raise ValueError(
                        f"sampling.sizes[{i}] is {k}; the zone has {n} clients"
                    )
        elif not isinstance(self.sampling, FullParticipation):
            raise ValueError(f"sampling is {self.sampling!r}; give a Sampling")

    def _check_estimator(self, s: int) -> None:
        if self.estimator not in ("fixed", "bounded", "realised"):
            raise ValueError(
                f"estimator is {self.estimator!r}; allowed are fixed, bounded, realised"
            )
        if self.estimator == "realised" and self.is_noisy:
            raise ValueError(
                "estimator is 'realised', whose sensitivity is unbounded; with noise "
                "use 'fixed' or 'bounded'"
            )
        for name in ("zone_weights", "minimum_weights"):
            weights = getattr(self, name)
            if weights is None:
                continue
            object.__setattr__(self, name, _per_zone(name, weights, s))
            for i, (w, n) in enumerate(zip(weights, self.zone_sizes, strict=True)):
                check_positive(f"{name}[{i}]", w)
                if w > n * (1 + 1e-9):
                    raise ValueError(
                        f"{name}[{i}] is {w}; with weights in [0, 1] and {n} clients "
                        f"it cannot exceed {n}"
                    )
        if self.minimum_weights is not None and self.estimator != "bounded":
            raise ValueError(
                f"minimum_weights are given but estimator is {self.estimator!r}"
            )
        if isinstance(self.mixing, str):
            if self.mixing not in ("weighted", "equal"):
                raise ValueError(
                    f"mixing is {self.mixing!r}; allowed are weighted, equal or p_i"
                )
            return
        object.__setattr__(self, "mixing", _per_zone("mixing", self.mixing, s))
        for i, p in enumerate(self.mixing):
            check_nonnegative(f"mixing[{i}]", p)
        if not math.isclose(sum(self.mixing), 1.0, rel_tol=1e-6):
            raise ValueError(f"mixing sums to {sum(self.mixing)}; it must sum to 1")

    def _check_account(self, s: int) -> None:
        if self.neighbours not in (None, "add_or_remove", "zero_out", "replace_one"):
            raise ValueError(
                f"neighbours is {self.neighbours!r}; allowed are add_or_remove, "
                "zero_out, replace_one"
            )
        if not 0 <= self.colluding_super_nodes <= s:
            raise ValueError(
                f"colluding_super_nodes is {self.colluding_super_nodes}; allowed is "
                f"0..{s} (the zones)"
            )
        if not 0 <= self.colluding_clients < self.num_clients:
            raise ValueError(
                f"colluding_clients is {self.colluding_clients}; allowed is "
                f"0..{self.num_clients - 1}"
            )
        if not 0.0 <= self.dropout_rate < 1.0:
            raise ValueError(f"dropout_rate is {self.dropout_rate}; allowed is [0, 1)")
        if (
            self.clipping.kind == "adaptive"
            and self.is_noisy
            and (
                self.client_noise_multiplier
                or any(self.zone_noise_multipliers)
                or self.upper_levels
            )
        ):
            raise ValueError(
                "clipping.kind is 'adaptive', which is sound only where the server "
                "alone adds noise (cdp, c4)"
            )


def _per_zone(name: str, values: Sequence[Any], s: int) -> tuple[Any, ...]:
    if len(values) != s:
        raise ValueError(f"{name} has {len(values)} entries for {s} zones")
    return tuple(values)
