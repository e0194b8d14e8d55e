"""Pairwise masks of one server's clients: they hide an update, and cancel.

Every pair of clients agrees on a secret (X25519); each round both derive the same
key stream from it, one adds it and the other subtracts it. The masking of secure
aggregation without its recovery from drop-outs: whoever is drawn must send.
"""

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tff_hdp.protocols.secagg.keys import agree, mask_seed
from tff_hdp.protocols.secagg.masks import add_masks


class PairwiseMasks:
    """The keys of one server's clients and the masks they give.

    The keys come from the operating system and live as long as this object; a
    round's masks must be drawn once, since two vectors under one mask differ by
    what they hide.

    Args:
      clients: Distinct client ids.
    """

    def __init__(self, clients: Sequence[str]) -> None:
        self._keys = {client: X25519PrivateKey.generate() for client in clients}
        self._secrets: dict[tuple[str, str], bytes] = {}

    def draw(self, cohort: Sequence[str], round_number: int, size: int) -> np.ndarray:
        """One round's masks.

        Args:
          cohort: Distinct ids of the clients that take part, all of whom send.
          round_number: Binds the masks to the round.
          size: d.

        Returns:
          [len(cohort), d] uint32. Their sum over the cohort is 0 modulo 2^32; all
          but one of them together are uniform to whoever lacks the secrets.
        """
        masks = np.zeros((len(cohort), size), np.uint32)
        session = str(round_number).encode()
        seeds = {
            (i, j): mask_seed(self._secret(cohort[i], cohort[j]), session, a, b)
            for i, a in enumerate(cohort)
            for j, b in enumerate(cohort[:i])
        }
        for i, mask in enumerate(masks):
            add_masks(
                mask,
                plus=[seeds[i, j] for j in range(i)],
                minus=[seeds[j, i] for j in range(i + 1, len(cohort))],
            )
        return masks

    def _secret(self, one: str, other: str) -> bytes:
        pair = (min(one, other), max(one, other))
        if pair not in self._secrets:
            public = self._keys[pair[1]].public_key().public_bytes_raw()
            self._secrets[pair] = agree(self._keys[pair[0]], public, pair[1])
        return self._secrets[pair]
