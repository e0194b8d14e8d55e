"""What clients' shares give back at a round's end: its masks, and the sum beneath."""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tff_hdp.protocols.secagg import keys, shamir
from tff_hdp.protocols.secagg.errors import BadShareError, BelowThresholdError
from tff_hdp.protocols.secagg.fixed_point import reduce_in_place
from tff_hdp.protocols.secagg.graphs import Neighbours
from tff_hdp.protocols.secagg.masks import add_masks
from tff_hdp.protocols.secagg.messages import Keys, Round, Shares, Unmasking


def holders_of(client: str, joined: Neighbours) -> list[str]:
    """Who holds the shares of a client, in the order of their numbers."""
    return sorted(joined[client] | {client})


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Unmasker:
    """A super-node at the end of a round, with every message checked that it has.

    Attributes:
      terms: What all parties agreed on.
      joined: The masking graph.
      advertised: By client, its public keys.
      dealt: By client, the shares that it dealt.
      answers: By client, the shares that it gave.
    """

    terms: Round
    joined: Neighbours
    advertised: Mapping[str, Keys]
    dealt: Mapping[str, Shares]
    answers: Mapping[str, Unmasking]

    def unmask(self, masked: np.ndarray, survivors: Collection[str]) -> np.ndarray:
        """The sum of the survivors' updates.

        Args:
          masked: [size] ring elements, the sum of what survivors sent.
          survivors: Who sent them.

        Returns:
          [size] ring elements.

        Raises:
          BelowThresholdError: If of some secret fewer than t shares came.
          BadShareError: If a client's shares do not give back its secret.
        """
        alive = set(survivors)
        plus: list[bytes] = []
        minus = [self._seed(client) for client in sorted(alive)]
        for client in sorted(self.dealt.keys() - alive):
            left = self.joined[client] & alive
            if not left:
                continue
            key = self._mask_key(client)
            for peer in left:
                # The survivor added this mask if its id comes first.
                secret = keys.agree(key, self.advertised[peer].mask_key, peer)
                seed = keys.mask_seed(secret, self.terms.digest, client, peer)
                (minus if peer < client else plus).append(seed)
        total = masked.copy()
        add_masks(total, plus=plus, minus=minus)
        reduce_in_place(total, self.terms.bits)
        return total

    def _seed(self, client: str) -> bytes:
        seed = self._recover(client, "seed_shares")
        expected = self.dealt[client].seed_digest
        if (
            seed is None
            or keys.seed_digest(self.terms.digest, client, seed) != expected
        ):
            raise BadShareError(f"{client!r} dealt shares of another seed than its own")
        return seed

    def _mask_key(self, client: str) -> X25519PrivateKey:
        data = self._recover(client, "key_shares")
        key = None if data is None else X25519PrivateKey.from_private_bytes(data)
        expected = self.advertised[client].mask_key
        if key is None or key.public_key().public_bytes_raw() != expected:
            raise BadShareError(f"{client!r} dealt shares of another key than its own")
        return key

    def _recover(self, client: str, kind: str) -> bytes | None:
        """A client's secret from the first t shares that came."""
        shares = {
            number: getattr(self.answers[holder], kind)[client]
            for number, holder in enumerate(holders_of(client, self.joined), start=1)
            if holder in self.answers
        }
        t = self.terms.threshold
        if len(shares) < t:
            raise BelowThresholdError(
                f"round {self.terms.number}: {len(shares)} clients gave shares to "
                f"unmask {client!r}; the threshold is {t}"
            )
        return shamir.join(dict(list(shares.items())[:t]))
