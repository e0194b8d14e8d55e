"""Several attempts at one sum among parties that sign."""

import dataclasses

import numpy as np
import pytest

from tests.protocols.secagg.parties import masked
from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg import errors
from tff_hdp.protocols.secagg.client import Client
from tff_hdp.protocols.secagg.errors import BelowThresholdError
from tff_hdp.protocols.secagg.fixed_point import FixedPoint
from tff_hdp.protocols.secagg.messages import Round
from tff_hdp.protocols.secagg.real_sums import secure_sum
from tff_hdp.protocols.secagg.rounds import SUPER_NODE, masking_graph
from tff_hdp.protocols.secagg.server import Server
from tff_hdp.protocols.secagg.signing import make_signers, quorum

TERMS = Round(0, 2, 32, 5)


@pytest.fixture
def remembering():
    """Parties of a sum, by its terms; clients remember what they helped to unmask."""
    names = "abcdefg"
    signers, unmasked = make_signers(names), {name: set() for name in names}

    def parties(terms):
        server = Server(terms, names, signer=signers[SUPER_NODE])
        clients = {
            n: Client(n, terms, signer=signers[n], unmasked=unmasked[n]) for n in names
        }
        return server, clients

    return parties


def agreed(server, clients):
    for name, message in masked(server, clients).items():
        server.receive(clients[name].agree(message))
    return server.end_agree()


def unmask(server, clients, told):
    for name, message in told.items():
        server.receive(clients[name].unmask(message))
    return server.end_unmask()


ZONE_2 = dataclasses.replace(TERMS, session="zone 2")
AGAIN = dataclasses.replace(ZONE_2, attempt=1)
HELPED = "helped to unmask 'zone 2' of round 0, and does not for attempt"


def test_who_helped_to_unmask_a_sum_helps_with_no_other_attempt_at_it(remembering):
    """Of two sums with and without a client the difference is its update."""
    # An attempt that was given up before anything was unmasked may be made again.
    masked(*remembering(ZONE_2))
    parties = remembering(ZONE_2)
    unmask(*parties, agreed(*parties))
    for client in remembering(AGAIN)[1].values():
        with pytest.raises(errors.ReplayError, match=f"{HELPED} 1"):
            client.advertise()
    for changes in ({"session": "zone 3"}, {"number": 1}):
        parties = remembering(dataclasses.replace(ZONE_2, **changes))
        unmask(*parties, agreed(*parties))


@pytest.mark.parametrize("reached", [masked, agreed])
def test_of_two_attempts_at_once_one_is_unmasked(remembering, reached):
    first, second = remembering(ZONE_2), remembering(AGAIN)
    told, other = reached(*first), agreed(*second)
    unmask(*second, other)
    for name, message in told.items():
        step = first[1][name].agree if reached is masked else first[1][name].unmask
        with pytest.raises(errors.ReplayError, match=f"{HELPED} 0"):
            step(message)


def test_two_attempts_are_not_unmasked_by_different_honest_clients(remembering):
    """Of seven two may lie, and answer both times: five shares take three others."""
    first, second = remembering(ZONE_2), remembering(AGAIN)
    told, other = agreed(*first), agreed(*second)
    for name in "ab":
        first[0].receive(first[1][name].unmask(told[name]))
    for name in "cde":
        second[0].receive(second[1][name].unmask(other[name]))
    # The liars' shares of both; nobody else helps with either.
    for name in "fg":
        for (server, clients), message in ((first, told), (second, other)):
            clients[name]._unmasked = set()
            server.receive(clients[name].unmask(message[name]))
    with pytest.raises(BelowThresholdError, match="the threshold is 5"):
        first[0].end_unmask()
    second[0].end_unmask()


def test_two_attempts_that_differ_in_one_honest_client_are_not_both_unmasked():
    """Of two sums that do, the difference is its update.

    Each takes more than half of its honest clients, and none helps with both.
    """
    for called in range(3, 200):
        for liars in range((called - 1) // 3 + 1):
            honest = called - liars
            first = quorum(called) - liars
            # Those left out are one honest client and maybe liars.
            for others in range(honest - 1, called):
                corrupt = others - (honest - 1)
                if corrupt <= (others - 1) // 3:
                    assert first + quorum(others) - corrupt > honest


def test_two_attempts_that_differ_in_two_honest_clients_may_both_be_unmasked():
    """What protocols.md and privacy.json say is assumed not to happen."""
    first, second, liars = "abcdef", "abcf", {"f"}
    signers, unmasked = make_signers(first), {name: set() for name in first}
    told = {}
    for attempt, called in enumerate((first, second)):
        public = {n: signers["a"].public[n] for n in (*called, SUPER_NODE)}
        own = {n: dataclasses.replace(signers[n], public=public) for n in public}
        terms = dataclasses.replace(
            TERMS, session="zone 2", attempt=attempt, threshold=quorum(len(called))
        )
        server = Server(terms, called, signer=own[SUPER_NODE])
        clients = {
            n: Client(
                n, terms, signer=own[n], unmasked=None if n in liars else unmasked[n]
            )
            for n in called
        }
        told[called] = server, clients, agreed(server, clients)
    for called, helping in ((first, "fdea"), (second, "fbc")):
        server, clients, survivors = told[called]
        for name in helping:
            server.receive(clients[name].unmask(survivors[name]))
        server.end_unmask()


def test_a_threshold_below_the_quorum_is_refused():
    signers = make_signers("abcdefg")
    terms = dataclasses.replace(TERMS, threshold=4)
    with pytest.raises(ArgumentError, match="threshold is 4; allowed: >= 5, the quor"):
        Client("a", terms, signer=signers["a"])
    for clients in range(2, 60):
        graph = masking_graph("bonawitz", clients, signed=True)
        corrupt = (clients - 1) // 3
        assert 2 * (graph.threshold - corrupt) > clients - corrupt
        assert graph.threshold <= clients - corrupt


def test_a_sum_tried_again_by_the_same_clients_is_refused():
    updates = {name: np.ones(3) for name in "abcd"}
    unmasked = {name: set() for name in updates}
    options = {
        "encoding": FixedPoint.for_sum(clip=2.0, bits=32, max_clients=4),
        "graph": masking_graph("bonawitz", 4, signed=True),
        "signed": True,
        "unmasked": unmasked,
    }
    found = secure_sum(updates, **options)
    np.testing.assert_allclose(found.total, 4.0, atol=1e-6)
    with pytest.raises(errors.ReplayError, match="does not for attempt 1"):
        secure_sum(updates, attempt=1, **options)
