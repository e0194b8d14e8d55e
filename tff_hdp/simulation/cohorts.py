"""Drawing each round's cohort, zone by zone."""

import hmac
import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.random.bit_generator import ISeedSequence

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy import FixedSizeSampling, NoisePlan
from tff_hdp.topology import Zoning

# Streams of a round.
_COHORT = 0
_BATCHES = 1


def fresh_entropy() -> int:
    """128 bits from the operating system, to draw a whole run's cohorts from."""
    return secrets.randbits(128)


class CohortSampler:
    """Draws every round's cohort from one secret.

    The cohort of a round depends on the secret, the round and how often it was
    released before, so a resumed run draws the cohorts an uninterrupted one would
    have, and a round that is released again one of its own: the account composes
    rounds whose cohorts are independent. Whoever knows the secret knows who took
    part; the account's amplification by sampling holds only against those who do not.

    Args:
      plan: How each zone samples.
      zoning: Who belongs where.
      entropy: The secret, an integer >= 0.

    Raises:
      ArgumentError: If plan and zoning disagree on the sizes of the zones, or
        `entropy` is something else.
    """

    def __init__(self, *, plan: NoisePlan, zoning: Zoning, entropy: int) -> None:
        # A secret is not shown.
        ok = type(entropy) is int and entropy >= 0
        kind = type(entropy).__name__
        require(ok, "entropy", f"of type {kind}", "a secret whole number >= 0")
        if plan.zone_sizes != zoning.zone_sizes:
            raise ArgumentError(
                "plan.zone_sizes", plan.zone_sizes, f"the zoning's, {zoning.zone_sizes}"
            )
        self._plan = plan
        self._key = str(entropy).encode()
        self._members = zoning.members

    def draw(self, round_number: int, *, earlier: int = 0) -> np.ndarray:
        """Indices into `zoning.client_ids`, int64 [k], of one round's cohort.

        Args:
          round_number: The round.
          earlier: How often it was released before.
        """
        drawn = self._words(round_number, earlier, sum(self._plan.zone_sizes))
        ends = np.cumsum(self._plan.zone_sizes)
        chosen = []
        for zone, own in enumerate(np.split(drawn, ends[:-1])):
            if isinstance(self._plan.sampling, FixedSizeSampling):
                size = self._plan.sampling.sizes[zone]
                least = np.argsort(own, kind="stable")[:size]
                chosen.append(self._members[zone][np.sort(least)])
            else:
                # Of 2^53 numbers those of the first q 2^53, whole ones: never more.
                numbers = (own >> np.uint64(11)) + np.uint64(1)
                taken = numbers <= self._plan.participation[zone] * 2.0**53
                chosen.append(self._members[zone][taken])
        return np.concatenate(chosen)

    def _words(self, round_number: int, earlier: int, count: int) -> np.ndarray:
        """Random numbers of 64 bits, uint64 [count], one a client.

        By AES-256 in counter mode: clients that know which of them took part, and so
        something of their own numbers, learn nothing of another's.
        """
        key = self._derived(round_number, _COHORT, None, earlier)
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        return np.frombuffer(stream.update(bytes(8 * count)), "<u8")

    def generator(
        self,
        round_number: int,
        *,
        stream: int,
        earlier: int = 0,
    ) -> np.random.Generator:
        """The round's own random stream number `stream`, 1 or more.

        Another each time, if it is said how often the round was released before.
        NumPy's generators can be run backwards, so each is seeded by a one-way function
        of the secret: what one stream shows tells nothing of another, nor of the
        cohort.
        """
        seed = self._derived(round_number, stream, None, earlier)
        return np.random.default_rng(int.from_bytes(seed))

    def _derived(
        self, round_number: int, stream: int, client: int | None, earlier: int
    ) -> bytes:
        """32 bytes that tell nothing of the secret or of any others."""
        label = f"{round_number} {stream} {client}"
        if earlier:
            label += f" again {earlier}"
        return hmac.digest(self._key, label.encode(), "sha256")

    def batch_generators(
        self, round_number: int
    ) -> Callable[[int], np.random.Generator]:
        """From a client's index to what orders its batches in a round.

        Every client has its own, seeded as `generator`'s, so that nobody's batches hang
        on who else is there.
        """

        def generator(client: int) -> np.random.Generator:
            seed = self._derived(round_number, _BATCHES, int(client), 0)
            return np.random.Generator(np.random.PCG64(_Seed(seed)))

        return generator


class _Seed(ISeedSequence):
    """Random bytes from which a generator starts as they are.

    NumPy's own would mix them first, which takes longer than to order a client's
    batches.
    """

    def __init__(self, seed: bytes) -> None:
        self.bytes = seed

    def generate_state(
        self, n_words: int, dtype: npt.DTypeLike = np.uint32
    ) -> np.ndarray:
        """See base class."""
        return np.frombuffer(self.bytes, dtype, n_words)
