"""Whole rounds of secure aggregation among simulated parties."""

import os
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, get_args

import numpy as np

from tff_hdp.errors import ArgumentError, check_bool, check_word
from tff_hdp.protocols import wire
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg import graphs
from tff_hdp.protocols.secagg.client import PHASES, Client, Phase
from tff_hdp.protocols.secagg.errors import (
    BelowThresholdError,
    MalformedMessageError,
    UnknownClientError,
)
from tff_hdp.protocols.secagg.graphs import MaskingGraph
from tff_hdp.protocols.secagg.messages import SUPER_NODE, Round
from tff_hdp.protocols.secagg.server import Server
from tff_hdp.protocols.secagg.signing import make_signers, quorum

RandomBytes = Callable[[str], Callable[[int], bytes]]
Protocol = Literal["bonawitz", "graph"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def masking_graph(
    protocol: Protocol, num_clients: int, *, signed: bool = False
) -> MaskingGraph:
    """The graph of a protocol by its name: `graphs.complete` or `sparse`.

    Args:
      protocol: One of `PROTOCOLS`.
      num_clients: k.
      signed: Whether parties sign; all pairs then have the quorum for a threshold.

    Raises:
      ArgumentError: If there is no such protocol.
    """
    check_word("protocol", protocol, PROTOCOLS)
    build = graphs.complete if protocol == "bonawitz" else graphs.sparse
    graph = build(num_clients)
    if signed and graph.degree is None:
        return graphs.complete(num_clients, threshold=quorum(num_clients))
    return graph


def run_round(
    inputs: Mapping[str, np.ndarray],
    terms: Round,
    *,
    encode: Callable[[np.ndarray], np.ndarray] = lambda values: values,
    degree: int | None = None,
    drops: Mapping[str, Phase] | None = None,
    signed: bool = False,
    unmasked: Mapping[str, set[tuple[int, str]]] | None = None,
    meter: Meter | None = None,
    rng: random.Random | None = None,
    random_bytes: RandomBytes = lambda _: os.urandom,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Runs one round of the protocol on ring elements.

    Args:
      inputs: For every client its [size] ring elements, or what `encode` turns
        into them.
      terms: What all parties agreed on.
      encode: Applied by each client to its input before it is masked.
      degree: Neighbours of each client; None for everybody.
      drops: Clients that go silent, with the first phase they miss.
      signed: Whether everybody signs what it says and clients agree on who shared
        before they mask and on who survived before they unmask, so that neither the
        channel nor the super-node can change a message or tell clients different
        things.
      unmasked: For every client the sums it has helped to unmask; see `Client`.
      meter: Counts time and bytes, if given.
      rng: Decides the masking graph; None for a secure one.
      random_bytes: For a client's id its source of secrets; another for tests.

    Returns:
      (sum, survivors): [size] ring elements, and whose inputs are in it.

    Raises:
      BelowThresholdError: If too few clients are left; nothing is revealed.
      ArgumentError: If there is a `degree` where parties sign, a threshold below the
        quorum, no such phase as in `drops`, or a client's id is no text.
      UnknownClientError: If `drops` names a stranger, or a client has the
        super-node's name.
      SecureAggregationError: If a party refuses a message that was changed.
    """
    signed = check_bool("signed", signed)
    drops = drops or {}
    _check_parties(inputs, drops)
    meter = Meter(SUPER_NODE) if meter is None else meter
    signers = make_signers(inputs) if signed else {}
    server = Server(
        terms, inputs, degree=degree, signer=signers.get(SUPER_NODE), rng=rng
    )
    clients = {
        client: Client(
            client,
            terms,
            signer=signers.get(client),
            unmasked=None if unmasked is None else unmasked[client],
            random_bytes=random_bytes(client),
        )
        for client in inputs
    }

    def deliver(sender: str, receiver: str, message: object) -> object:
        try:
            return meter.deliver(sender, receiver, message)
        except wire.WireError as error:
            raise MalformedMessageError(f"from {sender!r}: {error}") from error

    def stays(client: str, phase: Phase) -> bool:
        return client not in drops or PHASES.index(drops[client]) > PHASES.index(phase)

    def step(
        phase: Phase,
        messages: Mapping[str, object],
        act: Callable[[Client, Any], object],
        end: Callable[[], Any],
    ) -> Any:
        """Tells clients what is for them; what the server makes of their answers."""
        got = {
            client: None if message is None else deliver(SUPER_NODE, client, message)
            for client, message in messages.items()
            if stays(client, phase)
        }
        for client, message in got.items():
            try:
                with meter.time(client, phase):
                    answer = act(clients[client], message)
            except BelowThresholdError:
                continue  # A client that refuses is to the others one that left.
            answer = deliver(client, SUPER_NODE, answer)
            with meter.time(SUPER_NODE, phase):
                server.receive(answer)
        with meter.time(SUPER_NODE, phase):
            return end()

    def advertise(client: Client, _: None) -> object:
        return client.advertise()

    def mask(client: Client, got: Any) -> object:
        return client.mask(got, encode(inputs[client.client_id]))

    told = step("advertise", dict.fromkeys(inputs), advertise, server.end_advertise)
    told = step("share", told, Client.share, server.end_share)
    if signed:
        told = step("settle", told, Client.settle, server.end_settle)
    told = step("mask", told, mask, server.end_mask)
    if signed:
        told = step("agree", told, Client.agree, server.end_agree)
    total = step("unmask", told, Client.unmask, server.end_unmask)
    return total, server.survivors


def _check_parties(clients: Collection[str], drops: Mapping[str, Phase]) -> None:
    """Refuses ids that messages cannot bear, and drops of strangers or at no phase."""
    for client in clients:
        try:
            client.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            allowed = "an id that is text in UTF-8"
            raise ArgumentError("client", ascii(client), allowed) from error
    stranger = next((client for client in drops if client not in clients), None)
    if stranger is not None:
        raise UnknownClientError(f"drops name {stranger!r}, who takes no part")
    for phase in drops.values():
        check_word("drops", phase, PHASES)
    if SUPER_NODE in clients:
        raise UnknownClientError(f"{SUPER_NODE!r} is no client")
