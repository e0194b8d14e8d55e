"""Drawing each round's cohort, zone by zone."""

import secrets

import numpy as np

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FixedSizeSampling, NoisePlan
from tff_hdp.topology import Zoning


def fresh_entropy() -> int:
    """128 bits from the operating system, to draw a whole run's cohorts from."""
    return secrets.randbits(128)


class CohortSampler:
    """Draws every round's cohort from one secret.

    The cohort of a round depends on the secret and the round alone, so a resumed
    run draws the cohorts an uninterrupted one would have. Whoever knows the
    secret knows who took part; the account's amplification by sampling holds
    only against those who do not.

    Args:
      plan: How each zone samples.
      zoning: Who belongs where.
      entropy: The secret, an integer >= 0.

    Raises:
      ArgumentError: If plan and zoning disagree on the sizes of the zones.
    """

    def __init__(self, *, plan: NoisePlan, zoning: Zoning, entropy: int) -> None:
        if plan.zone_sizes != zoning.zone_sizes:
            raise ArgumentError(
                "plan.zone_sizes", plan.zone_sizes, f"the zoning's, {zoning.zone_sizes}"
            )
        self._plan = plan
        self._entropy = entropy
        zone_of = np.asarray(zoning.zone_of)
        self._members = [np.flatnonzero(zone_of == i) for i in range(zoning.num_zones)]

    def draw(self, round_number: int) -> np.ndarray:
        """Indices into `zoning.client_ids`, int64 [k], of one round's cohort."""
        rng = self.generator(round_number, stream=0)
        chosen = []
        for zone, members in enumerate(self._members):
            if isinstance(self._plan.sampling, FixedSizeSampling):
                size = self._plan.sampling.sizes[zone]
                chosen.append(rng.choice(members, size, replace=False))
            else:
                q = self._plan.participation[zone]
                chosen.append(members[rng.random(len(members)) < q])
        return np.concatenate(chosen)

    def generator(self, round_number: int, *, stream: int) -> np.random.Generator:
        """The round's own random stream number `stream` (0 draws the cohort)."""
        seed = np.random.SeedSequence(self._entropy, spawn_key=(round_number, stream))
        return np.random.default_rng(seed)
