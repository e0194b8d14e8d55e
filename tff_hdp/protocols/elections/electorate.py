"""A zone's clients, their keys, and how many of them may fail."""

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.errors import ArgumentError, ShortError, check_count, check_word, require
from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import group, ristretto

FaultModel = Literal["crash", "byzantine"]
FAULT_MODELS: tuple[FaultModel, ...] = get_args(FaultModel)
Policy = Literal["persistent", "rotate"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
RUN_BYTES = 16
# The relay's name among parties.
RELAY = "relay"

# What reading fields of any kinds may raise.
_NOT_AS_MADE = (TypeError, ValueError, AttributeError, OverflowError)


class ElectionError(ShortError):
    """An election that cannot be held, or a message that is refused.

    Attributes:
      transcripts: Of the elections that led here, the refused one last; empty where
        there is nothing to put on record.
    """

    transcripts: tuple[Any, ...] = ()


class BeyondThresholdError(ElectionError):
    """Too few clients came, may be elected, or did their part."""


def max_faulty(voters: int, fault_model: str) -> int:
    """How many of k voters may be faulty (the HDP paper's section IV-A).

    Crash faults: the largest f < (k - 1) / 2. Byzantine: f <= (k - 1) / 3. One
    voter alone elects itself and tolerates nothing.

    Raises:
      ArgumentError: If there is no voter or no such fault model.
    """
    if voters < 1:
        raise ArgumentError("voters", voters, "1 or more")
    check_word("fault_model", fault_model, FAULT_MODELS)
    if fault_model == "crash":
        return max(0, -(-(voters - 1) // 2) - 1)
    return (voters - 1) // 3


@dataclasses.dataclass(frozen=True)
class Voter:
    """A client as the zone knows it: its id and its two public keys.

    Attributes:
      client_id: The client's id.
      verify_key: 32 bytes, its Ed25519 key.
      share_key: 32 bytes, its ristretto255 key, to which shares are encrypted.
    """

    client_id: str
    verify_key: bytes
    share_key: bytes

    def check_keys(self) -> None:
        """Raises ArgumentError unless it can sign, and shares be encrypted to it."""
        _check_signing_key(f"verify_key of {self.client_id!r}", self.verify_key)
        name = f"share_key of {self.client_id!r}"
        try:
            group.backend.check(self.share_key)
        except group.DecodingError as error:
            raise ArgumentError(name, str(error), "a key of ristretto255") from error
        if self.share_key == group.IDENTITY:
            raise ArgumentError(name, "the identity", "a key of ristretto255")


class Identity:
    """A client's long-term secret keys.

    Attributes:
      client_id: Whose they are.
      signing_key: The Ed25519 key that signs what it says.
      share_secret: The scalar that decrypts shares.
      nonce_secret: 32 bytes from which nonces of proofs are hedged.
    """

    def __init__(self, client_id: str, *, secret: bytes | None = None) -> None:
        """Makes the keys of `client_id`.

        Args:
          client_id: Whose they are.
          secret: Derives them, so that a simulated client has the same keys
            whenever it is made again; None draws fresh ones.
        """
        self.client_id = client_id
        if secret is None:
            secret = secrets.token_bytes(32)
        info = b"identity" + client_id.encode()
        material = HKDF(hashes.SHA256(), 128, None, info).derive(secret)
        self.signing_key = Ed25519PrivateKey.from_private_bytes(material[:32])
        number = int.from_bytes(material[32:96], "little")
        self.share_secret = 1 + number % (group.ORDER - 1)
        self.nonce_secret = material[96:]

    @functools.cached_property
    def public(self) -> Voter:
        """What everybody may know of this client."""
        return Voter(
            self.client_id,
            self.signing_key.public_key().public_bytes_raw(),
            group.backend.multiply_generator(self.share_secret),
        )


@dataclasses.dataclass(frozen=True)
class Registry:
    """A zone's clients as everybody knows them before any election.

    Whoever votes or verifies has it beforehand and takes nothing of it from the
    relay or from a transcript: neither keys nor who may win nor how many may fail,
    nor when an election is due.

    Attributes:
      zone: The zone.
      voters: Its clients.
      eligible: The ids of those who may be elected.
      fault_model: `crash` or `byzantine`.
      policy: `persistent`: a super-node leads until it fails; `rotate`: every round
        elects anew.
      call_size: How many of the clients are called to vote in a round.
      relay_key: 32 bytes, the Ed25519 key by which the relay seals transcripts; empty
        where no election is held in full.
      run: 16 bytes that no other run of elections has: keys may outlive one, and what
        was said in it must not count in the next. Empty where there is no relay.

    Raises:
      ArgumentError: If there is no client, a client or a key to sign by repeats, an
        eligible id is unknown, there is no such policy, or `zone` or `call_size` is no
        number or not in 1..n; and, where there is a relay, if a client has its name,
        `run` is not of 16 bytes, a share key repeats, or a key is not one: a client
        without a share key would stop every election.
    """

    zone: int
    voters: tuple[Voter, ...]
    eligible: tuple[str, ...]
    fault_model: str
    policy: str
    call_size: int
    relay_key: bytes
    run: bytes

    def __post_init__(self) -> None:
        for name in ("zone", "call_size"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        max_faulty(len(self.voters), self.fault_model)
        ids = [voter.client_id for voter in self.voters]
        _refuse_repeats("voters", ids)
        _refuse_repeats("verify_keys", [voter.verify_key for voter in self.voters])
        _refuse_repeats("eligible", self.eligible)
        known = set(ids)
        unknown = next((c for c in self.eligible if c not in known), None)
        if unknown is not None:
            raise ArgumentError("eligible", unknown, "clients of the zone")
        check_word("policy", self.policy, POLICIES)
        fits = 1 <= self.call_size <= len(ids)
        require(fits, "call_size", self.call_size, f"1..{len(ids)}")
        if not self.relay_key:
            return
        if RELAY in known:
            raise ArgumentError("client_ids", RELAY, "ids that are not the relay's")
        is_run = isinstance(self.run, bytes) and len(self.run) == RUN_BYTES
        require(is_run, "run", self.run, f"{RUN_BYTES} bytes")
        _check_signing_key("relay_key", self.relay_key)
        _refuse_repeats("share_keys", [voter.share_key for voter in self.voters])
        for voter in self.voters:
            voter.check_keys()

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all of it."""
        return hashlib.sha256(b"tff_hdp registry" + wire.encode(self)).digest()

    @functools.cached_property
    def _by_id(self) -> dict[str, Voter]:
        return {voter.client_id: voter for voter in self.voters}

    def voter(self, client_id: str) -> Voter:
        """The client of that id.

        Raises:
          ElectionError: If there is none.
        """
        if client_id not in self._by_id:
            raise ElectionError(f"{client_id!r} is no client of zone {self.zone}")
        return self._by_id[client_id]

    def called(self, round_number: int) -> tuple[str, ...]:
        """Who is to vote in a round, in the order of `voters`.

        Drawn by a rule that leaves nobody a choice: those whose id has the least
        hash with zone and round.
        """
        ids = [voter.client_id for voter in self.voters]
        if self.call_size == len(ids):
            return tuple(ids)
        salt = f"tff_hdp call {self.zone} {round_number} ".encode()
        order = sorted(ids, key=lambda c: hashlib.sha256(salt + c.encode()).digest())
        chosen = set(order[: self.call_size])
        return tuple(client for client in ids if client in chosen)

    def to_fields(self) -> dict[str, Any]:
        """The registry as JSON types, keys in hexadecimal."""
        return {
            "zone": self.zone,
            "fault_model": self.fault_model,
            "policy": self.policy,
            "call_size": self.call_size,
            "relay_key": self.relay_key.hex(),
            "run": self.run.hex(),
            "eligible": list(self.eligible),
            "voters": {
                voter.client_id: [voter.verify_key.hex(), voter.share_key.hex()]
                for voter in self.voters
            },
        }

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> "Registry":
        """Reads what `to_fields` made.

        Raises:
          ElectionError: If the fields are no registry's.
        """
        try:
            voters = tuple(
                Voter(str(client), *(bytes.fromhex(key) for key in keys))
                for client, keys in fields["voters"].items()
            )
            registry = Registry(
                check_count("zone", fields["zone"]),
                voters,
                tuple(map(str, fields["eligible"])),
                fields["fault_model"],
                fields["policy"],
                check_count("call_size", fields["call_size"]),
                bytes.fromhex(fields["relay_key"]),
                bytes.fromhex(fields["run"]),
            )
            _ = registry.digest  # what has none, is no registry
        except KeyError as error:
            raise ElectionError(f"no registry: it lacks {error}") from error
        except _NOT_AS_MADE as error:
            raise ElectionError(f"no registry: {error}") from error
        return registry


def eligible_clients(
    client_ids: Sequence[str],
    *,
    capability: Mapping[str, float] | None = None,
    min_capability: float | None = None,
) -> tuple[str, ...]:
    """Those who reach the least score, all without one.

    Raises:
      ArgumentError: If a client's capability is unknown.
    """
    if min_capability is None:
        return tuple(client_ids)
    scores = capability or {}
    missing = next((c for c in client_ids if c not in scores), None)
    if missing is not None:
        raise ArgumentError("capability", f"without {missing!r}", "one per client")
    return tuple(c for c in client_ids if scores[c] >= min_capability)


def _check_signing_key(name: str, key: bytes) -> None:
    ok = isinstance(key, bytes) and ristretto.is_signing_key(key)
    require(ok, name, key, "a key of Ed25519, of large order")


def _refuse_repeats(name: str, values: Collection[object]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ArgumentError(name, f"with {value!r} twice", "distinct")
        seen.add(value)
