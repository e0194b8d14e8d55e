"""Drawing each round's cohort, zone by zone."""

import hmac
import secrets
from collections.abc import Callable

import numpy as np

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import FixedSizeSampling, NoisePlan
from tff_hdp.topology import Zoning

# Stream 0 draws cohorts.
_BATCHES = 1


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
        self._key = str(entropy).encode()
        self._members = zoning.members

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

    def generator(
        self, round_number: int, *, stream: int, client: int | None = None
    ) -> np.random.Generator:
        """The round's own random stream number `stream` (0 draws the cohort).

        A client's own, if one is named. NumPy's generators can be run backwards, so
        each is seeded by a one-way function of the secret: what one stream shows
        tells nothing of another.
        """
        label = f"{round_number} {stream} {client}".encode()
        seed = hmac.digest(self._key, label, "sha256")
        return np.random.default_rng(int.from_bytes(seed))

    def batch_generators(
        self, round_number: int
    ) -> Callable[[int], np.random.Generator]:
        """From a client's index to what orders its batches in a round.

        Every client has its own, so that nobody's batches hang on who else is there.
        """
        return lambda client: self.generator(
            round_number, stream=_BATCHES, client=int(client)
        )
