"""What a client keeps secret in one round: keys and seed, and what others dealt it."""

from collections.abc import Callable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tff_hdp.protocols.secagg import keys, shamir
from tff_hdp.protocols.secagg.errors import BadShareError
from tff_hdp.protocols.secagg.fixed_point import reduce_in_place
from tff_hdp.protocols.secagg.masks import SEED_BYTES, add_masks
from tff_hdp.protocols.secagg.messages import Keys, Round


class ClientSecrets:
    """A client's two keys and its self-mask's seed, and its shares of others'.

    A method that raises has changed nothing.

    Attributes:
      public_keys: Of the key to which shares are encrypted, and of that from which
        masks come, 32 bytes each.
      peers: The neighbours' public keys, once its own secrets are dealt.
      held: By dealer, itself among them, its shares of the seed and of the mask key.
    """

    def __init__(
        self, client_id: str, terms: Round, random_bytes: Callable[[int], bytes]
    ) -> None:
        """Draws keys and seed.

        Args:
          client_id: Whose they are.
          terms: What all parties agreed on.
          random_bytes: So many of them, secret.
        """
        self._me, self._terms = client_id, terms
        self._random_bytes = random_bytes
        self._cipher_key = X25519PrivateKey.from_private_bytes(random_bytes(32))
        self._mask_key = X25519PrivateKey.from_private_bytes(random_bytes(32))
        self._seed = random_bytes(SEED_BYTES)
        own = (self._cipher_key, self._mask_key)
        self.public_keys = tuple(key.public_key().public_bytes_raw() for key in own)
        self.peers: dict[str, Keys] = {}
        self.held: dict[str, tuple[bytes, bytes]] = {}
        self._cipher_secrets: dict[str, bytes] = {}

    def deal(
        self, peers: Mapping[str, Keys]
    ) -> tuple[dict[str, bytes], bytes, dict[str, bytes]]:
        """Shares the seed and the mask key among the neighbours and itself.

        Args:
          peers: The neighbours' keys.

        Returns:
          What `Shares` says of it: ciphertexts, seed digest and share digests.

        Raises:
          BadKeyError: If a key is unusable.
        """
        session, me = self._terms.digest, self._me
        secrets = {
            peer: keys.agree(self._cipher_key, sent.cipher_key, peer)
            for peer, sent in peers.items()
        }
        holders = sorted({*peers, me})
        seeds = self._split(self._seed, len(holders))
        mask_keys = self._split(self._mask_key.private_bytes_raw(), len(holders))
        pairs = zip(seeds, mask_keys, strict=True)
        dealt = dict(zip(holders, pairs, strict=True))
        ciphertexts = {
            peer: keys.seal(secret, session, me, peer, b"".join(dealt[peer]))
            for peer, secret in secrets.items()
        }
        share_digests = {
            holder: b"".join(
                keys.share_digest(session, me, holder, share) for share in pair
            )
            for holder, pair in dealt.items()
        }
        self.peers, self._cipher_secrets = dict(peers), secrets
        self.held = {me: dealt[me]}
        return ciphertexts, keys.seed_digest(session, me, self._seed), share_digests

    def masked(
        self, update: np.ndarray, ciphertexts: Mapping[str, bytes]
    ) -> np.ndarray:
        """An update under its masks; the neighbours' shares are held from then on.

        y_u = x_u + PRG(b_u) + sum_{u<v} PRG(s_uv) - sum_{u>v} PRG(s_uv) over the
        neighbours v that shared, modulo 2^bits.

        Args:
          update: [size] ring elements.
          ciphertexts: Of the neighbours that shared, their shares for this client.

        Raises:
          BadKeyError: If a neighbour's key is unusable.
          BadShareError: If its shares cannot be opened.
        """
        held = {
            dealer: self._open(dealer, data) for dealer, data in ciphertexts.items()
        }
        plus, minus = [self._seed], []
        for peer in held:
            secret = keys.agree(self._mask_key, self.peers[peer].mask_key, peer)
            (plus if self._me < peer else minus).append(
                keys.mask_seed(secret, self._terms.digest, self._me, peer)
            )
        values = update.copy()
        add_masks(values, plus=plus, minus=minus)
        reduce_in_place(values, self._terms.bits)
        self.held |= held
        return values

    def _split(self, secret: bytes, holders: int) -> list[bytes]:
        threshold = self._terms.threshold
        return shamir.split(
            secret, threshold=threshold, holders=holders, below=self._below
        )

    def _below(self, bound: int) -> int:
        # 128 bits beyond the bound: the bias is below 2^-128.
        size = bound.bit_length() // 8 + 17
        return int.from_bytes(self._random_bytes(size), "big") % bound

    def _open(self, dealer: str, data: bytes) -> tuple[bytes, bytes]:
        secret = self._cipher_secrets[dealer]
        text = keys.unseal(secret, self._terms.digest, dealer, self._me, data)
        if len(text) != 2 * shamir.SHARE_BYTES:
            raise BadShareError(
                f"shares of {dealer!r} have {len(text)} bytes; allowed is "
                f"{2 * shamir.SHARE_BYTES}"
            )
        return text[: shamir.SHARE_BYTES], text[shamir.SHARE_BYTES :]
