"""The super-node's part in one round of secure aggregation."""

import random
from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeVar

import numpy as np

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg import graphs, keys
from tff_hdp.protocols.secagg.client import AGREEING, PHASES, Phase
from tff_hdp.protocols.secagg.errors import (
    BadInputError,
    BadKeyError,
    BadShareError,
    BelowThresholdError,
    ReplayError,
    SecureAggregationError,
    UnknownClientError,
    WrongPhaseError,
)
from tff_hdp.protocols.secagg.fixed_point import ring_dtype
from tff_hdp.protocols.secagg.graphs import Neighbours
from tff_hdp.protocols.secagg.messages import (
    Agreement,
    Agreements,
    Keys,
    MaskedUpdate,
    Message,
    PeerKeys,
    Round,
    Shares,
    SharesForClient,
    Survivors,
    Unmasking,
    check_round,
    list_digest,
    pack,
    unpack,
)
from tff_hdp.protocols.secagg.signing import Signer
from tff_hdp.protocols.secagg.unmasking import Unmasker, holders_of

_M = TypeVar("_M", bound=Message)


class Server:
    """Collects, passes on and at last unmasks the sum of the survivors.

    In every phase: `receive` each client's message, then end the phase by the
    method that makes the next messages to clients. A call that raises has
    changed nothing.

    Attributes:
      terms: What all parties agreed on.
      clients: Who may take part.
      phase: What is being collected.
      joined: The masking graph, once keys are in.
    """

    def __init__(
        self,
        terms: Round,
        client_ids: Iterable[str],
        *,
        degree: int | None = None,
        signer: Signer | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Opens a round.

        Args:
          terms: What all parties agreed on.
          client_ids: Who may take part.
          degree: Neighbours of each client; None for everybody.
          signer: Signs what the super-node says and checks what clients say; None
            believes the channel.
          rng: Decides the masking graph; None for the system's secure one.

        Raises:
          BelowThresholdError: If there are fewer clients than the threshold.
          UnknownClientError: If an id repeats.
          ArgumentError: If there is a `degree` where parties sign: who is whose
            neighbour is the super-node's word, and it may lie.
        """
        if degree is not None and signer is not None:
            raise ArgumentError("degree", degree, "None where parties sign")
        self.terms = terms
        self.clients = tuple(client_ids)
        if len(set(self.clients)) < len(self.clients):
            raise UnknownClientError(f"client_ids hold an id twice: {self.clients}")
        self._check_threshold(len(self.clients), "take part")
        self.phase: Phase | Literal["done"] = "advertise"
        self.joined: Neighbours = {}
        self._degree = degree
        self._signer = signer
        self._rng = random.SystemRandom() if rng is None else rng
        self._received: dict[str, dict[str, Any]] = {phase: {} for phase in PHASES}
        self._total = np.zeros(terms.size, ring_dtype(terms.bits))

    @property
    def survivors(self) -> tuple[str, ...]:
        """Who sent a masked update: the sum is over these."""
        return tuple(sorted(self._received["mask"]))

    def receive(
        self, message: Keys | Shares | MaskedUpdate | Agreement | Unmasking
    ) -> None:
        """Takes one client's message of the current phase.

        Raises:
          SecureAggregationError: If it is of another round or phase, of a
            client that takes no part (any more) or has sent its own, is not signed
            by it, or holds a wrong key, share or update. The message names which.
        """
        kind, sender = type(message).__name__, message.client
        check_round(message, self.terms.number)
        awaited, check = _MESSAGES.get(self.phase, ((), None))
        if not isinstance(message, awaited):
            raise WrongPhaseError(f"{kind} of {sender!r} came at {self.phase!r}")
        received = self._received[self.phase]
        if sender in received:
            raise ReplayError(f"{sender!r} has sent its {kind} already")
        if sender not in self._awaited():
            raise UnknownClientError(
                f"{kind} of {sender!r}, who takes no part at {self.phase!r}"
            )
        if self._signer is not None:
            self._signer.check(message, sender, self.terms.digest)
        check(self, message)
        if isinstance(message, MaskedUpdate):
            self._total += unpack(message.values, self.terms.bits)
            message = None  # Its place in the sum is all that is needed of it.
        received[sender] = message

    def end_advertise(self) -> dict[str, PeerKeys]:
        """Ends phase `advertise`: to each client the keys of its neighbours.

        Raises:
          BelowThresholdError: If fewer clients advertised than the threshold.
        """
        self._expect("advertise")
        sent = self._received["advertise"]
        self._check_threshold(len(sent), "advertised keys")
        self.joined = graphs.neighbours(self._degree, list(sent), rng=self._rng)
        self.phase = "share"
        return {
            client: self._signed(
                PeerKeys(
                    self.terms.number,
                    client,
                    {peer: sent[peer] for peer in sorted(peers)},
                )
            )
            for client, peers in self.joined.items()
        }

    def end_share(self) -> dict[str, SharesForClient]:
        """Ends phase `share`: to each client its neighbours' shares for it.

        Raises:
          BelowThresholdError: If fewer clients shared than the threshold.
        """
        self._expect("share")
        sent = self._received["share"]
        self._check_threshold(len(sent), "shared keys")
        self.phase = "mask" if self._signer is None else "settle"
        return {
            client: self._signed(
                SharesForClient(
                    self.terms.number,
                    client,
                    {
                        peer: sent[peer].ciphertexts[client]
                        for peer in sorted(self.joined[client] & sent.keys())
                    },
                )
            )
            for client in sent
        }

    def end_settle(self) -> dict[str, Agreements]:
        """Where parties sign: to each client who was told of the same sharers.

        Raises:
          BelowThresholdError: If fewer agreed than any of them will mask with.
        """
        self._expect("settle")
        return self._agreements("mask")

    def end_mask(self) -> dict[str, Survivors]:
        """Ends phase `mask`: to each survivor who survived around it.

        Raises:
          BelowThresholdError: If the survivors are fewer than the threshold or
            than `Round.min_survivors`, or fall into groups that mask only among
            themselves, so that more than their common sum would show.
        """
        self._expect("mask")
        alive = self._received["mask"].keys()
        if len(alive) < self.terms.min_survivors:
            raise BelowThresholdError(
                f"round {self.terms.number}: {len(alive)} clients sent updates; "
                f"the fewest accepted is {self.terms.min_survivors}"
            )
        self._check_threshold(len(alive), "sent updates")
        if not graphs.is_connected(self.joined, alive):
            raise BelowThresholdError(
                f"round {self.terms.number}: the {len(alive)} clients left fall into "
                "groups with no mask in common; their separate sums would show"
            )
        signed = self._signer is not None
        self.phase = "agree" if signed else "unmask"
        shared = self._received["share"].keys()
        return {
            client: self._signed(
                Survivors(
                    self.terms.number,
                    client,
                    tuple(sorted((self.joined[client] | {client}) & alive)),
                    tuple(sorted((self.joined[client] & shared) - alive)),
                    self.survivors if signed else (),
                )
            )
            for client in alive
        }

    def end_agree(self) -> dict[str, Agreements]:
        """Where parties sign: to each client who was told of the same survivors.

        Raises:
          BelowThresholdError: If fewer agreed than any of them will answer to.
        """
        self._expect("agree")
        return self._agreements("unmask")

    def end_unmask(self) -> np.ndarray:
        """Ends the round: exactly the sum of the survivors' updates.

        Returns:
          [size] ring elements.

        Raises:
          BelowThresholdError: If of some secret fewer than t shares came.
          BadShareError: If a client's shares do not give back its secret.
        """
        self._expect("unmask")
        unmasker = Unmasker(
            terms=self.terms,
            joined=self.joined,
            advertised=self._received["advertise"],
            dealt=self._received["share"],
            answers=self._received["unmask"],
        )
        total = unmasker.unmask(self._total, self.survivors)
        self.phase = "done"
        return total

    def _agreements(self, following: Phase) -> dict[str, Agreements]:
        agreed = self._received[self.phase]
        if len(agreed) < self._signer.quorum:
            raise BelowThresholdError(
                f"round {self.terms.number}: {len(agreed)} clients came to "
                f"{self.phase!r}; {self._signer.quorum} must"
            )
        self.phase = following
        signatures = {client: word.signature for client, word in agreed.items()}
        return {
            client: self._signed(Agreements(self.terms.number, client, signatures))
            for client in agreed
        }

    def _awaited(self) -> Collection[str]:
        if self.phase == "advertise":
            return self.clients
        phases = [p for p in PHASES if self._signer is not None or p not in AGREEING]
        return self._received[phases[phases.index(self.phase) - 1]]

    def _signed(self, message: _M) -> _M:
        if self._signer is None:
            return message
        return self._signer.sign(message, self.terms.digest)

    def _check_keys(self, message: Keys) -> None:
        taken = {
            key: client
            for client, sent in self._received["advertise"].items()
            for key in (sent.cipher_key, sent.mask_key)
        }
        for key in (message.cipher_key, message.mask_key):
            if len(key) != 32:
                raise BadKeyError(f"a key of {message.client!r} has {len(key)} bytes")
            if key in taken:
                raise BadKeyError(f"{message.client!r} uses a key of {taken[key]!r}")
            # Clients would refuse it too, and then all of them be lost.
            keys.check_usable(key, message.client)
            taken[key] = message.client

    def _check_shares(self, message: Shares) -> None:
        holders = holders_of(message.client, self.joined)
        if sorted({*message.ciphertexts, message.client}) != holders:
            raise BadShareError(
                f"{message.client!r} shared with {sorted(message.ciphertexts)}, not "
                "with its neighbours"
            )
        if sorted(message.share_digests) != holders:
            raise BadShareError(f"{message.client!r} lacks digests of some shares")

    def _check_update(self, message: MaskedUpdate) -> None:
        found = message.values
        wanted = pack(self._total, self.terms.bits)
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise BadInputError(
                f"update of {message.client!r} is {found.dtype}[{len(found)}]; allowed "
                f"is {wanted.dtype}[{len(wanted)}]"
            )

    def _check_agreement(self, message: Agreement) -> None:
        settles = self.phase == "settle"
        clients = sorted(self._received["share"]) if settles else self.survivors
        what = "sharers" if settles else "survivors"
        if message.told != list_digest(what, clients):
            raise SecureAggregationError(
                f"{message.client!r} agreed on other {what} than it was told of"
            )

    def _check_unmasking(self, message: Unmasking) -> None:
        me = message.client
        alive = self._received["mask"].keys()
        around = self.joined[me] | {me}
        dropped = (around & self._received["share"].keys()) - alive
        size = keys.SHARE_DIGEST_BYTES
        wanted = (
            ("seed_shares", slice(size), around & alive),
            ("key_shares", slice(size, 2 * size), dropped),
        )
        for kind, half, dealers in wanted:
            shares = getattr(message, kind)
            if shares.keys() != dealers:
                raise BadShareError(
                    f"{kind} of {me!r} are of {sorted(shares)}; allowed are "
                    f"{sorted(dealers)}"
                )
            for dealer, share in shares.items():
                digests = self._received["share"][dealer].share_digests[me]
                found = keys.share_digest(self.terms.digest, dealer, me, share)
                if found != digests[half]:
                    raise BadShareError(
                        f"{kind} of {me!r} are not all what {dealer!r} says it dealt"
                    )

    def _expect(self, phase: Phase) -> None:
        if self.phase != phase:
            raise WrongPhaseError(
                f"round {self.terms.number} is at {self.phase!r}, not {phase!r}"
            )

    def _check_threshold(self, count: int, what: str) -> None:
        if count < self.terms.threshold:
            raise BelowThresholdError(
                f"round {self.terms.number}: {count} clients {what}; the threshold "
                f"is {self.terms.threshold}"
            )


# What comes in each phase, and how it is checked.
_MESSAGES = {
    "advertise": (Keys, Server._check_keys),
    "share": (Shares, Server._check_shares),
    "settle": (Agreement, Server._check_agreement),
    "mask": (MaskedUpdate, Server._check_update),
    "agree": (Agreement, Server._check_agreement),
    "unmask": (Unmasking, Server._check_unmasking),
}
