"""What clients and super-node send each other in one round."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from typing import Literal

import numpy as np

from tff_hdp.errors import check_count, require
from tff_hdp.protocols import wire
from tff_hdp.protocols.secagg.errors import UnknownClientError, WrongRoundError
from tff_hdp.protocols.secagg.fixed_point import MAX_BITS, ring_dtype

SUPER_NODE = "super-node"
# Of the numbers of a `Round`.
_LEAST = {
    "number": 0,
    "size": 1,
    "bits": 1,
    "threshold": 2,
    "attempt": 0,
    "min_survivors": 0,
}


@dataclasses.dataclass(frozen=True)
class Round:
    """What all parties of one round agree on beforehand.

    Attributes:
      number: The round; every message says it.
      size: d, coordinates of every update.
      bits: b, sums are modulo 2^bits.
      threshold: t, how many shares recover a secret.
      session: Which of the round's sums, such as "zone 3".
      attempt: At this sum. No two that a party may take part in have the same round,
        session and attempt.
      min_survivors: With fewer updates the sum is refused. At least the `fewest` of
        the masking graph.

    Raises:
      ArgumentError: If a number is not whole or out of range, or the session no text.
    """

    number: int
    size: int
    bits: int
    threshold: int
    session: str = ""
    attempt: int = 0
    min_survivors: int = 0

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            found = check_count(name, getattr(self, name), least)
            object.__setattr__(self, name, found)
        require(self.bits <= MAX_BITS, "bits", self.bits, f"1..{MAX_BITS}")
        require(isinstance(self.session, str), "session", self.session, "a name")

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes of all this, to which signatures and derived keys are bound."""
        return hashlib.sha256(b"tff_hdp secagg round" + wire.encode(self)).digest()


@dataclasses.dataclass(frozen=True)
class Message:
    """What every message says besides its own.

    Attributes:
      round_number: The round.
      client: Who sends it, or gets it; the super-node is at the other end.
      signature: Where parties sign the sender's, 64 bytes; elsewhere empty.
    """

    round_number: int
    client: str
    _: dataclasses.KW_ONLY
    signature: bytes = b""


@dataclasses.dataclass(frozen=True)
class Keys(Message):
    """Phase `advertise`, from a client: its two X25519 public keys, 32 bytes each."""

    cipher_key: bytes
    mask_key: bytes


@dataclasses.dataclass(frozen=True)
class PeerKeys(Message):
    """The end of phase `advertise`, to a client: the keys of its neighbours."""

    peers: dict[str, Keys]


@dataclasses.dataclass(frozen=True)
class Shares(Message):
    """Phase `share`, from a client: its two secrets, shared.

    Attributes:
      ciphertexts: For every neighbour its two shares, encrypted to it.
      seed_digest: SHA-256 of the self-mask's seed.
      share_digests: For every holder (neighbours and dealer) 16 bytes of each
        share's SHA-256, so that a wrong share can be told, and by whom.
    """

    ciphertexts: dict[str, bytes]
    seed_digest: bytes
    share_digests: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class SharesForClient(Message):
    """The end of phase `share`, to a client: its neighbours' shares for it."""

    ciphertexts: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class MaskedUpdate(Message):
    """Phase `mask`, from a client: its masked update, packed to whole bytes."""

    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Survivors(Message):
    """The end of phase `mask`, to a client: who sent a masked update.

    Attributes:
      survivors: Those of its neighbourhood, itself included, who did.
      dropped: Those of its neighbourhood who shared but did not.
      summed: Where parties sign, all clients who did; else empty.
    """

    survivors: tuple[str, ...]
    dropped: tuple[str, ...]
    summed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Agreement(Message):
    """Where parties sign, from a client: that it was told of just these clients.

    Attributes:
      told: 32 bytes, `list_digest` of those who shared, or of those who survived.
    """

    told: bytes


@dataclasses.dataclass(frozen=True)
class Agreements(Message):
    """Where parties sign, to a client: the signatures of `Agreement` by client."""

    signatures: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Unmasking(Message):
    """Phase `unmask`, from a client: shares that take the masks off the sum.

    Attributes:
      seed_shares: Shares of survivors' self-mask seeds.
      key_shares: Shares of dropped clients' mask keys.
    """

    seed_shares: dict[str, bytes]
    key_shares: dict[str, bytes]


def list_digest(what: Literal["sharers", "survivors"], clients: Iterable[str]) -> bytes:
    """32 bytes that stand for a list of clients, in order, and for what they did."""
    names = b"".join(hashlib.sha256(client.encode()).digest() for client in clients)
    return hashlib.sha256(f"tff_hdp {what} ".encode() + names).digest()


def check_round(message: Message, number: int) -> None:
    """Raises WrongRoundError unless `message` is of that round."""
    if message.round_number != number:
        kind = type(message).__name__
        raise WrongRoundError(
            f"{kind} of {message.client!r} is of round {message.round_number}; "
            f"this is round {number}"
        )


def check_receiver(message: Message, client: str) -> None:
    """Raises UnknownClientError unless `message` is meant for `client`."""
    if message.client != client:
        kind = type(message).__name__
        raise UnknownClientError(f"{kind} is for {message.client!r}, not {client!r}")


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Ring elements in as few whole bytes each as `bits` needs."""
    width = -(-bits // 8)
    if width == values.itemsize:
        return values
    return np.ascontiguousarray(
        values.view(np.uint8).reshape(-1, values.itemsize)[:, :width]
    ).reshape(-1)


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """The ring elements that `pack` packed."""
    dtype = ring_dtype(bits)
    width = -(-bits // 8)
    if width == dtype.itemsize:
        return packed
    values = np.zeros((len(packed) // width, dtype.itemsize), np.uint8)
    values[:, :width] = packed.reshape(-1, width)
    return values.view(dtype).reshape(-1)
