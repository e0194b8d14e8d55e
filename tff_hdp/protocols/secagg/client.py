"""A client's part in one round of secure aggregation.

Bonawitz et al. (CCS 2017), figure 4, and Bell et al. (CCS 2020), which differs only
in who is a neighbour of whom. The super-node and colluding clients (t - 1, or what a
sparse graph is made for) learn the sum of the survivors' updates and no more: if they
are honest but curious, and with a `Signer` if fewer than a third of the clients lie.
Clients that sign agree on two lists. On who shared, before they mask: a super-node
that could have one client mask with few others would lay it bare by having these
drop out. And on who survived, before they unmask.
"""

import os
from collections.abc import Callable
from typing import Literal, TypeVar, get_args

import numpy as np

from tff_hdp.errors import require
from tff_hdp.protocols.secagg.client_secrets import ClientSecrets
from tff_hdp.protocols.secagg.errors import (
    BadInputError,
    BadKeyError,
    BelowThresholdError,
    ReplayError,
    SecureAggregationError,
    UnknownClientError,
    WrongPhaseError,
)
from tff_hdp.protocols.secagg.fixed_point import ring_dtype
from tff_hdp.protocols.secagg.messages import (
    SUPER_NODE,
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
    check_receiver,
    check_round,
    list_digest,
    pack,
)
from tff_hdp.protocols.secagg.signing import Signer

_M = TypeVar("_M", bound=Message)

Phase = Literal["advertise", "share", "settle", "mask", "agree", "unmask"]
PHASES: tuple[Phase, ...] = get_args(Phase)
# Clients agree, on who shared and on who survived, only where they sign.
AGREEING: tuple[Phase, ...] = ("settle", "agree")


class Client:
    """The steps, each once and in order: those of `PHASES`.

    Without a signer there is no `settle` and no `agree`.

    A step that raises has changed nothing and may be tried again with a right
    message.

    Attributes:
      client_id: Who this is.
      terms: What all parties agreed on.
    """

    def __init__(
        self,
        client_id: str,
        terms: Round,
        *,
        signer: Signer | None = None,
        unmasked: set[tuple[int, str]] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Draws the keys of one round.

        Args:
          client_id: Who this is.
          terms: What all parties agreed on.
          signer: Signs what this client says and checks what others say; None
            believes the channel.
          unmasked: The sums, by round and session, that this client has helped to
            unmask, in which it notes this one. Where it signs, it goes on with no
            other attempt at one of them, begun before or after: a super-node that says
            of a sum it has that it failed, and leaves out a client in the next attempt,
            would have that client's update. None is for a client that has helped with
            none.
          random_bytes: Source of secrets; another only for tests.

        Raises:
          ArgumentError: If it signs and the threshold is below the quorum: two attempts
            by the same clients could be unmasked by different honest ones.
        """
        if signer is not None:
            require(
                terms.threshold >= signer.quorum,
                "threshold",
                terms.threshold,
                f">= {signer.quorum}, the quorum, where parties sign",
            )
        self.client_id = client_id
        self.terms = terms
        self._signer = signer
        self._shares: SharesForClient | None = None
        self._told: Survivors | None = None
        self._unmasked = set() if unmasked is None else unmasked
        self._secrets = ClientSecrets(client_id, terms, random_bytes)
        self._next: Phase | Literal["done"] = "advertise"

    def advertise(self) -> Keys:
        """Phase `advertise`: the public keys.

        Raises:
          WrongPhaseError: If it was done before.
          ReplayError: If this client signs and has helped to unmask an earlier attempt
            at this sum.
        """
        self._expect("advertise")
        self._check_not_unmasked()
        self._next = "share"
        public = self._secrets.public_keys
        return self._signed(Keys(self.terms.number, self.client_id, *public))

    def share(self, message: PeerKeys) -> Shares:
        """Phase `share`: shares of the mask key and of the self-mask's seed.

        Args:
          message: The neighbours' keys.

        Raises:
          BelowThresholdError: If this client and its neighbours are fewer
            than t.
          BadKeyError: If a key is unusable or two clients have the same.
          SecureAggregationError: If the message is of another round, client or
            phase.
        """
        self._expect("share")
        self._check(message)
        self._check_peers(message.peers)
        self._check_threshold(len(message.peers) + 1, "share keys")
        dealt = self._secrets.deal(message.peers)
        self._next = "mask" if self._signer is None else "settle"
        return self._signed(Shares(self.terms.number, self.client_id, *dealt))

    def settle(self, message: SharesForClient) -> Agreement:
        """Where parties sign: who shared, as this client was told.

        Raises:
          BelowThresholdError: If too few neighbours are left.
          SecureAggregationError: As `mask`.
        """
        self._expect("settle")
        self._check_shares(message)
        self._shares = message
        self._next = "mask"
        return self._agreement(self._sharers)

    def mask(
        self, message: SharesForClient | Agreements, update: np.ndarray
    ) -> MaskedUpdate:
        """Phase `mask`: the update under its masks.

        Args:
          message: The neighbours' shares for this client; where parties sign, the
            signatures by which so many clients were told of the same sharers that
            nobody honest masks with others.
          update: [size] ring elements of the type `ring_dtype(bits)`.

        Raises:
          BelowThresholdError: If too few neighbours are left, or too few agreed.
          BadShareError: If a neighbour's shares cannot be opened.
          BadInputError: If `update` has another shape, type or range.
          SecureAggregationError: If the message is of another round, client or
            phase, or about a stranger.
        """
        self._expect("mask")
        if self._signer is None:
            self._check_shares(message)
        else:
            self._check(message)
            self._check_agreements(message, self._sharers)
            message = self._shares
        self._check_update(update)
        values = self._secrets.masked(update, message.ciphertexts)
        self._next = "unmask" if self._signer is None else "agree"
        packed = pack(values, self.terms.bits)
        return self._signed(MaskedUpdate(self.terms.number, self.client_id, packed))

    def agree(self, message: Survivors) -> Agreement:
        """Where parties sign: which survivors this client was told of.

        Raises:
          BelowThresholdError: If they are fewer than t or `Round.min_survivors`.
          SecureAggregationError: As `unmask`.
        """
        self._expect("agree")
        self._check_not_unmasked()
        self._check(message)
        self._check_survivors(message)
        summed = set(message.summed)
        # All pairs mask: nobody survives whom this client does not mask with.
        if tuple(sorted(summed)) != message.summed or summed != set(message.survivors):
            raise SecureAggregationError(
                f"survivors around {self.client_id!r} are not those of all"
            )
        if len(summed) < self.terms.min_survivors:
            raise BelowThresholdError(
                f"{len(summed)} clients sent updates; {self.client_id!r} agreed to no "
                f"fewer than {self.terms.min_survivors}"
            )
        self._told = message
        self._next = "unmask"
        return self._agreement(self._survivors)

    def unmask(self, message: Survivors | Agreements) -> Unmasking:
        """Phase `unmask`: shares of survivors' seeds and of dropped clients' keys.

        Never both of one client: together they would lay bare its update.

        Args:
          message: Who survived; where parties sign, the signatures by which so many
            clients were told the same that nobody honest was told otherwise.

        Raises:
          BelowThresholdError: If fewer than t of this client and its neighbours
            survive, or too few agreed; nothing is revealed.
          ReplayError: As `advertise`.
          SecureAggregationError: If the message is of another round, client or
            phase, or does not name exactly those who shared, each once.
        """
        self._expect("unmask")
        self._check_not_unmasked()
        self._check(message)
        if self._signer is not None:
            self._check_agreements(message, self._survivors)
            message = self._told
        else:
            self._check_survivors(message)
        self._next = "done"
        self._unmasked.add(self._sum)
        held = self._secrets.held
        return self._signed(
            Unmasking(
                self.terms.number,
                self.client_id,
                {client: held[client][0] for client in message.survivors},
                {client: held[client][1] for client in message.dropped},
            )
        )

    @property
    def _sum(self) -> tuple[int, str]:
        return self.terms.number, self.terms.session

    @property
    def _sharers(self) -> bytes:
        told = sorted({self.client_id, *self._shares.ciphertexts})
        return list_digest("sharers", told)

    @property
    def _survivors(self) -> bytes:
        return list_digest("survivors", self._told.summed)

    def _agreement(self, told: bytes) -> Agreement:
        return self._signed(Agreement(self.terms.number, self.client_id, told))

    def _check_agreements(self, message: Agreements, told: bytes) -> None:
        for client, signature in message.signatures.items():
            word = Agreement(self.terms.number, client, told, signature=signature)
            self._signer.check(word, client, self.terms.digest)
        clients = message.signatures.keys() - {SUPER_NODE}
        if len(clients) < self._signer.quorum:
            raise BelowThresholdError(
                f"{len(clients)} clients agreed with {self.client_id!r} on who is "
                f"there; {self._signer.quorum} must"
            )

    def _check_shares(self, message: SharesForClient) -> None:
        self._check(message)
        peers = self._secrets.peers
        stranger = next((p for p in message.ciphertexts if p not in peers), None)
        if stranger is not None:
            raise UnknownClientError(
                f"shares of {stranger!r}, who is no neighbour of {self.client_id!r}"
            )
        self._check_threshold(len(message.ciphertexts) + 1, "mask an update")

    def _check_survivors(self, message: Survivors) -> None:
        named: set[str] = set()
        held = self._secrets.held
        for client in (*message.survivors, *message.dropped):
            if client not in held:
                raise UnknownClientError(
                    f"{self.client_id!r} holds no share of {client!r}"
                )
            if client in named:
                raise SecureAggregationError(
                    f"{client!r} is named twice; its seed and its key together "
                    "would reveal its update"
                )
            named.add(client)
        missing = next((c for c in held if c not in named), None)
        if missing is not None:
            raise SecureAggregationError(f"{missing!r} is neither survivor nor dropped")
        if self.client_id not in message.survivors:
            raise SecureAggregationError(f"{self.client_id!r} has not dropped out")
        self._check_threshold(len(message.survivors), "unmask")

    def _signed(self, message: _M) -> _M:
        if self._signer is None:
            return message
        return self._signer.sign(message, self.terms.digest)

    def _expect(self, phase: Phase) -> None:
        if self._next != phase:
            raise WrongPhaseError(
                f"{self.client_id!r} is at {self._next!r}; this is {phase!r}"
            )

    def _check(self, message: Message) -> None:
        check_round(message, self.terms.number)
        check_receiver(message, self.client_id)
        if self._signer is not None:
            self._signer.check(message, SUPER_NODE, self.terms.digest)

    def _check_not_unmasked(self) -> None:
        terms = self.terms
        if self._signer is not None and self._sum in self._unmasked:
            raise ReplayError(
                f"{self.client_id!r} has helped to unmask {terms.session!r} of round "
                f"{terms.number}, and does not for attempt {terms.attempt}"
            )

    def _check_peers(self, peers: dict[str, Keys]) -> None:
        seen = dict.fromkeys(self._secrets.public_keys, self.client_id)
        for peer, sent in peers.items():
            check_round(sent, self.terms.number)
            # With a share of every secret, it would be a client that helps each time.
            if peer == SUPER_NODE:
                raise UnknownClientError(f"keys of {peer!r}, which is no client")
            if peer == self.client_id or sent.client != peer:
                raise UnknownClientError(f"keys of {sent.client!r} stand for {peer!r}")
            if self._signer is not None:
                self._signer.check(sent, peer, self.terms.digest)
            for key in (sent.cipher_key, sent.mask_key):
                if key in seen:
                    raise BadKeyError(f"{peer!r} uses a key of {seen[key]!r}")
                seen[key] = peer

    def _check_threshold(self, count: int, what: str) -> None:
        if count < self.terms.threshold:
            raise BelowThresholdError(
                f"{count} clients are left to {what} with {self.client_id!r} among "
                f"them; the threshold is {self.terms.threshold}"
            )

    def _check_update(self, update: np.ndarray) -> None:
        dtype = ring_dtype(self.terms.bits)
        if update.shape != (self.terms.size,) or update.dtype != dtype:
            raise BadInputError(
                f"update is {update.dtype}{list(update.shape)}; allowed is "
                f"{dtype}[{self.terms.size}]"
            )
        if update.size and int(update.max()) >> self.terms.bits:
            raise BadInputError(
                f"update holds {update.max()}; the ring is modulo 2^{self.terms.bits}"
            )
