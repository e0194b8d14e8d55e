"""Who takes part in an election, who may win it, and how many may fail."""

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Literal

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tff_hdp.protocols import wire
from tff_hdp.protocols.elections import ristretto as group


class ElectionError(ValueError):
    """An election that cannot be held, or a message that is refused."""


class BeyondThresholdError(ElectionError):
    """More clients are faulty than the fault model tolerates."""


def max_faulty(voters: int, fault_model: Literal["crash", "byzantine"]) -> int:
    """How many of k voters may be faulty (the HDP paper's section IV-A).

    Crash faults: the largest f < (k - 1) / 2. Byzantine: f <= (k - 1) / 3. One
    voter alone elects itself and tolerates nothing.

    Raises:
      ElectionError: If there is no voter or no such fault model.
    """
    if voters < 1:
        raise ElectionError(f"voters is {voters}; an election needs one")
    if fault_model == "crash":
        return max(0, -(-(voters - 1) // 2) - 1)
    if fault_model == "byzantine":
        return (voters - 1) // 3
    raise ElectionError(f"fault_model is {fault_model!r}; allowed are crash, byzantine")


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


class Identity:
    """A client's long-term secret keys."""

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
        material = HKDF(hashes.SHA256(), 96, None, info).derive(secret)
        self.signing_key = Ed25519PrivateKey.from_private_bytes(material[:32])
        number = int.from_bytes(material[32:], "little")
        self.share_secret = 1 + number % (group.ORDER - 1)

    @functools.cached_property
    def public(self) -> Voter:
        """What everybody may know of this client."""
        share_key = group.multiply(self.share_secret, group.GENERATOR)
        return Voter(
            self.client_id,
            self.signing_key.public_key().public_bytes_raw(),
            group.encode(share_key),
        )


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all parties of one election agree on beforehand.

    Attributes:
      session: Names this election and no other, such as "zone 3, round 17".
      voters: The zone's online clients, who make the randomness.
      candidates: The ids of those who may be elected, among the voters.
      faulty: f, how many voters may be faulty.
      fault_model: `crash` or `byzantine`.

    Raises:
      BeyondThresholdError: If `faulty` exceeds what the fault model tolerates.
      ElectionError: If a voter or candidate repeats or is unknown, a key is no
        key, or there is no candidate.
    """

    session: str
    voters: tuple[Voter, ...]
    candidates: tuple[str, ...]
    faulty: int
    fault_model: str

    def __post_init__(self) -> None:
        k = len(self.voters)
        allowed = max_faulty(k, self.fault_model)
        if not 0 <= self.faulty <= allowed:
            raise BeyondThresholdError(
                f"faulty is {self.faulty}; with {k} voters and {self.fault_model} "
                f"faults allowed is 0..{allowed}"
            )
        ids = [voter.client_id for voter in self.voters]
        _refuse_repeats("voters", ids)
        _refuse_repeats("candidates", self.candidates)
        _refuse_repeats("voters' verify keys", [v.verify_key for v in self.voters])
        if not self.candidates:
            raise ElectionError("candidates is empty: no voter is eligible")
        unknown = next((c for c in self.candidates if c not in set(ids)), None)
        if unknown is not None:
            raise ElectionError(f"candidates names {unknown!r}, who is no voter")
        for voter in self.voters:
            _check_share_key(voter)

    @property
    def threshold(self) -> int:
        """How many shares recover a contribution: t = f + 1."""
        return self.faulty + 1

    @property
    def quorum(self) -> int:
        """How many voters must act, k - f: two such sets share an honest one."""
        return len(self.voters) - self.faulty

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that name this setup in every signature and proof."""
        return hashlib.sha256(b"tff_hdp election" + wire.encode(self)).digest()

    def share_number(self, client_id: str) -> int:
        """The number of that voter's share, from 1 in the order of `voters`.

        Raises:
          ElectionError: If there is no such voter.
        """
        for number, voter in enumerate(self.voters, start=1):
            if voter.client_id == client_id:
                return number
        raise ElectionError(f"{client_id!r} is no voter of {self.session!r}")

    def voter(self, client_id: str) -> Voter:
        """The voter of that id.

        Raises:
          ElectionError: If there is none.
        """
        return self.voters[self.share_number(client_id) - 1]


def setup_election(
    *,
    session: str,
    voters: Sequence[Voter],
    fault_model: Literal["crash", "byzantine"] = "byzantine",
    faulty: int | None = None,
    capability: Mapping[str, float] | None = None,
    min_capability: float | None = None,
) -> Setup:
    """Sets up an election among a zone's online clients.

    Args:
      session: Names this election and no other.
      voters: The online clients.
      fault_model: Which faults to withstand.
      faulty: f; None takes the most the fault model allows.
      capability: Each client's score, if eligibility asks for one.
      min_capability: Least score of an eligible client.

    Raises:
      ElectionError: As `Setup`; or if a voter's capability is unknown.
    """
    ids = [voter.client_id for voter in voters]
    candidates = tuple(ids)
    if min_capability is not None:
        scores = capability or {}
        missing = next((c for c in ids if c not in scores), None)
        if missing is not None:
            raise ElectionError(f"capability lacks client {missing!r}")
        candidates = tuple(c for c in ids if scores[c] >= min_capability)
        if not candidates:
            raise ElectionError(
                f"no online client of {session!r} reaches min_capability "
                f"{min_capability}"
            )
    if faulty is None:
        faulty = max_faulty(len(ids), fault_model)
    return Setup(session, tuple(voters), candidates, faulty, fault_model)


def _refuse_repeats(name: str, values: Sequence[object]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ElectionError(f"{name} hold {value!r} twice")
        seen.add(value)


def _check_share_key(voter: Voter) -> None:
    try:
        point = group.decode(voter.share_key)
    except group.DecodingError as error:
        raise ElectionError(
            f"share_key of {voter.client_id!r} is no key: {error}"
        ) from error
    if group.equal(point, group.IDENTITY):
        raise ElectionError(f"share_key of {voter.client_id!r} is the identity")
