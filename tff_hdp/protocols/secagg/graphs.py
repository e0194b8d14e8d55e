"""Who masks with whom: everybody (Bonawitz et al.), or a few (Bell et al.)."""

import dataclasses
import math
import random
from collections.abc import Iterable, Mapping, Sequence

from tff_hdp.errors import ArgumentError, check_count

Neighbours = Mapping[str, frozenset[str]]


@dataclasses.dataclass(frozen=True)
class MaskingGraph:
    """The shape of a round's masking graph.

    Attributes:
      num_clients: k, the clients that it is for.
      degree: How many neighbours each client masks and shares with; even, or
        None for everybody.
      threshold: t, how many shares recover a secret. A client's shares are held
        by itself and its neighbours.
      fewest: How many must send an update. Where fewer do, a sparse graph may leave
        honest clients apart that only a colluding one joins, whose masks it knows:
        `Round.min_survivors` is this, or more.
    """

    num_clients: int
    degree: int | None
    threshold: int
    fewest: int


def complete(num_clients: int, *, threshold: int | None = None) -> MaskingGraph:
    """Bonawitz et al. (CCS 2017): all pairs, t of k.

    Args:
      num_clients: k.
      threshold: t; None takes a majority, floor(k/2) + 1.

    Raises:
      ArgumentError: If `threshold` is not in 2..k, or a number is not whole.
    """
    num_clients = check_count("num_clients", num_clients, 1)
    if threshold is None:
        threshold = num_clients // 2 + 1
    threshold = check_count("threshold", threshold)
    if not 2 <= threshold <= num_clients:
        raise ArgumentError(
            "threshold", threshold, f"2..{num_clients} with {num_clients} clients"
        )
    return MaskingGraph(num_clients, None, threshold, threshold)


def sparse(
    num_clients: int,
    *,
    corrupt: float = 0.1,
    dropout: float = 0.2,
    security_bits: int = 40,
    correctness_bits: int = 30,
) -> MaskingGraph:
    """Bell et al. (CCS 2020): the sparsest sound Harary graph, O(log k) degree.

    The clients stand in a random ring and each is joined to the degree/2 next
    on either side. The least even degree is taken for which a threshold t
    exists so that, by union bounds over the random order,

    - with probability 1 - 2^-security_bits no client has t corrupt neighbours,
      and the honest clients that stay are connected (cutting the ring takes two
      gaps of degree/2 neighbours each);
    - with probability 1 - 2^-correctness_bits every client keeps t neighbours.

    Falls back to `complete` where no sparse graph will do, as for small k.

    Args:
      num_clients: k.
      corrupt: Largest share of clients that collude with the server; unless 0 it is
        one client at least, such as a super-node that is a client of its zone.
      dropout: Largest share of clients that drop out.
      security_bits: As above.
      correctness_bits: As above.

    Raises:
      ArgumentError: If a share is not in [0, 1), both leave nobody, or another number
        is not whole and 1 or more.
    """
    for name, share in (("corrupt", corrupt), ("dropout", dropout)):
        if not 0 <= share < 1:
            raise ArgumentError(name, share, "[0, 1)")
    if corrupt + dropout >= 1:
        raise ArgumentError("corrupt + dropout", corrupt + dropout, "< 1")
    k = check_count("num_clients", num_clients, 1)
    security_bits = check_count("security_bits", security_bits, 1)
    correctness_bits = check_count("correctness_bits", correctness_bits, 1)
    gone = math.floor(dropout * k)
    bad = max(math.floor(corrupt * k), 1) if corrupt else 0
    for degree in range(2, k - 1, 2):
        # Half of the security error for each of its two conditions.
        cut = math.comb(k, 2) * _all_taken(k, bad + gone, degree)
        if cut > 2.0 ** -(security_bits + 1):
            continue
        threshold = next(
            t
            for t in range(2, degree + 2)
            if k * _tail(k - 1, bad, degree, t) <= 2.0 ** -(security_bits + 1)
        )
        too_many_gone = degree - threshold + 1
        if too_many_gone < 0:
            continue
        if k * _tail(k - 1, gone, degree, too_many_gone) <= 2.0**-correctness_bits:
            return MaskingGraph(k, degree, threshold, max(k - gone, threshold))
    return complete(k)


def neighbours(
    degree: int | None, client_ids: Sequence[str], *, rng: random.Random
) -> Neighbours:
    """Draws a Harary graph on some clients.

    Args:
      degree: Even number of neighbours of each; None, or as many as there are
        other clients, joins everybody.
      client_ids: Distinct ids.
      rng: Decides the order around the ring.

    Raises:
      ArgumentError: If `degree` is odd or below 2.
    """
    if degree is not None and (degree < 2 or degree % 2):
        raise ArgumentError("degree", degree, "an even number >= 2")
    ring = sorted(client_ids)
    if degree is None or degree >= len(ring) - 1:
        everyone = frozenset(ring)
        return {client: everyone - {client} for client in ring}
    rng.shuffle(ring)
    reach = range(1, degree // 2 + 1)
    return {
        client: frozenset(
            ring[(position + side * offset) % len(ring)]
            for offset in reach
            for side in (-1, 1)
        )
        for position, client in enumerate(ring)
    }


def is_connected(joined: Neighbours, among: Iterable[str]) -> bool:
    """Whether the graph is in one piece when only `among` are kept."""
    unseen = set(among)
    if not unseen:
        return False
    frontier = {unseen.pop()}
    while frontier:
        client = frontier.pop()
        found = unseen & joined[client]
        unseen -= found
        frontier |= found
    return not unseen


def _all_taken(population: int, marked: int, drawn: int) -> float:
    """P(all `drawn` given positions fall on the `marked` of `population`)."""
    return math.comb(marked, drawn) / math.comb(population, drawn)


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """P(at least `least` of the `drawn` are marked), hypergeometric, exact."""
    hits = sum(
        math.comb(marked, i) * math.comb(population - marked, drawn - i)
        for i in range(least, min(marked, drawn) + 1)
    )
    return hits / math.comb(population, drawn)
