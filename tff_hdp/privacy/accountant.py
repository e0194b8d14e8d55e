"""Epsilon of every kind of client against every observer of a noise plan."""

import dataclasses
import functools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, get_args

from tff_hdp.errors import ArgumentError, check_count, check_delta, check_word, require
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp, gathered
from tff_hdp.privacy.mechanisms import Mechanism
from tff_hdp.privacy.paper import paper_epsilon
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import (
    ALL_OBSERVERS,
    CLIENT_KINDS,
    OBSERVERS,
    AccountedRound,
    ClientKind,
    Observer,
    ThreatModel,
)
from tff_hdp.privacy.views import View, client_kind, common_neighbours, observers, view

Sound = Literal["rdp", "pld"]
SOUND: tuple[Sound, ...] = get_args(Sound)
Method = Literal[Sound, "paper"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountRow:
    """What one kind of client's participation is worth against one observer.

    Attributes:
      observer: `super_node` (the client's own), `aggregator`, `released_model` (who
        gets the model and added no noise to it), `fellow_super_node` (of another zone)
        or `fellow_client` (who knows when it takes part, and its own noise if it adds
        any); other systems' accounts name observers of their own.
      client_kind: `ldp` (noises its own update), `hdp` (relies on a super-node)
        or `trusting` (relies on the server).
      zone: The zone the row is for; None where all zones of the kind agree.
      noise_multiplier: Effective noise standard deviation over sensitivity at
        the expected number of participants; None where nothing is guaranteed.
      epsilon_rdp: By Renyi DP; None without a guarantee or if not asked for.
      epsilon_pld: By privacy loss distributions; None likewise.
      epsilon_paper: The HDP paper's formula on the accountant of its time; for
        comparison only.
      delta: The delta of all three.
      neighbours: The neighbour relation of the two sound epsilons.
      sampling: How the client comes to take part, in words.
      assumptions: What the row rests on; where an epsilon is None, why.
      level: The observer's level: 1 for zones' super-nodes, then upper levels,
        then the server, then those who get the model.
    """

    observer: str
    client_kind: str
    zone: int | None
    noise_multiplier: float | None
    epsilon_rdp: float | None
    epsilon_pld: float | None
    epsilon_paper: float | None
    delta: float
    neighbours: str
    sampling: str
    assumptions: str
    level: int = 1

    @property
    def is_guaranteed(self) -> bool:
        """Whether there is an epsilon at all, by whatever method."""
        return self.noise_multiplier is not None

    def epsilon(self, method: Sound | None = None) -> float:
        """By that method, or the least by any; infinite where nothing is guaranteed.

        Raises:
          ArgumentError: If it is no sound method, as the paper's is none.
        """
        methods = SOUND if method is None else (check_word("method", method, SOUND),)
        found = [getattr(self, f"epsilon_{m}") for m in methods]
        return min((e for e in found if e is not None), default=math.inf)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON types."""
        return dataclasses.asdict(self)


History = Sequence[tuple[AccountedRound, int]]


def account(
    plan: NoisePlan,
    rounds: int,
    delta: float,
    methods: Sequence[Method] = METHODS,
    *,
    threat: ThreatModel = ThreatModel(),
) -> list[AccountRow]:
    """Accounts `rounds` rounds of `plan` for every observer and kind of client.

    Args:
      plan: The noise plan.
      rounds: T >= 0.
      delta: In (0, 1).
      methods: Which epsilons to compute; the others are None.
      threat: What is assumed of the parties.

    Returns:
      Rows by observer from the client upwards, then kind, then zone.

    Raises:
      ArgumentError: If an argument is out of range, or the threat model does not fit
        the plan.
    """
    run = AccountedRound(plan, threat)
    return account_history([(run, check_count("rounds", rounds))], delta, methods)


def account_history(
    history: History,
    delta: float,
    methods: Sequence[Method] = METHODS,
    observer: str | None = None,
) -> list[AccountRow]:
    """Accounts runs of rounds under different plans over the same zones.

    A client's kind is the one it has under the last plan; observers are those of any.
    Clients of one kind may differ in what they did before: of a zone's that are told
    apart so, each has a row unless another one states as much or more, by every method
    and under the same neighbour relation, or no guarantee at all.

    Args:
      history: Rounds with how many times each was run.
      delta: In (0, 1).
      methods: Which epsilons to compute.
      observer: Against whom alone; None for all. Where it is not there, no rows.

    Raises:
      ArgumentError: If an argument is out of range, or the plans' zones or levels
        differ.
    """
    check_delta("delta", delta)
    if observer is not None:
        check_word("observer", observer, ALL_OBSERVERS)
    history = [(run, check_count("rounds", count)) for run, count in history]
    is_several = isinstance(methods, Sequence) and not isinstance(methods, str)
    require(is_several, "methods", repr(methods), f"a sequence of {METHODS}")
    for method in methods:
        check_word("methods", method, METHODS)
    plans = [run.plan for run, _ in history]
    check_same_zones(plans)
    rows, cells_of_clients = [], _cells(plans)
    peers_known = any(run.threat.peers_known for run, _ in history)
    # Whoever knows noise of its own in some of the rounds looks at all of them.
    looking = {
        (who, level)
        for plan in set(plans)
        for who, level in observers(plan, peers_known=peers_known)
        if observer in (None, who)
    }
    order = ALL_OBSERVERS.index
    row_of = functools.partial(client_row, history, delta=delta, methods=methods)
    for who, level in sorted(looking, key=lambda each: (each[1], order(each[0]))):
        cells: dict[ClientKind, list[tuple[int, AccountRow]]] = {}
        for zones, index in cells_of_clients:
            row = row_of(observer=who, level=level, zone=zones[0], index=index)
            cells.setdefault(row.client_kind, []).extend((each, row) for each in zones)
        for kind in CLIENT_KINDS:
            rows += _joined(cells.get(kind, []))
    return rows


def worst(
    rows: Sequence[AccountRow],
    observer: Observer,
    kind: ClientKind | None = None,
    method: Sound | None = None,
) -> AccountRow:
    """The row with the largest epsilon; one without a guarantee is larger still.

    Args:
      rows: What `account` returned.
      observer: Whose rows.
      kind: Of which clients; None for all.
      method: Which epsilon to compare; None takes each row's least.

    Raises:
      ArgumentError: If no row matches.
    """
    if method is not None:
        check_word("method", method, SOUND)
    require(isinstance(observer, str), "observer", observer, "the name of one")
    require(isinstance(kind, str | None), "kind", kind, "the name of one, or None")
    found = [
        r for r in rows if r.observer == observer and kind in (None, r.client_kind)
    ]
    if not found:
        there = sorted({f"{r.client_kind} clients against {r.observer}" for r in rows})
        asked = observer if kind is None else f"{observer}, for {kind} clients"
        raise ArgumentError("observer", asked, "; ".join(there) or "none, without rows")
    return max(found, key=lambda row: row.epsilon(method))


def check_same_zones(plans: Sequence[NoisePlan]) -> None:
    """Raises ArgumentError unless the plans have the same zones and levels."""
    for plan in plans:
        zones, levels = plans[0].zone_sizes, len(plans[0].upper_levels)
        if plan.zone_sizes != zones:
            allowed = f"{zones}, as in earlier rounds"
            raise ArgumentError("plan.zone_sizes", plan.zone_sizes, allowed)
        if len(plan.upper_levels) != levels:
            allowed = f"{levels} levels, as in earlier rounds"
            raise ArgumentError("plan.upper_levels", plan.upper_levels, allowed)


def _cells(plans: Sequence[NoisePlan]) -> list[tuple[list[int], int]]:
    """One client's index, and its zones, for every kind of history that clients have.

    Zones that any observer sees alike under every plan are one cell.
    """
    distinct = list(dict.fromkeys(plans))
    alike: dict[tuple[int, ...], list[int]] = {}
    for zone, key in enumerate(zip(*map(like_zones, distinct), strict=True)):
        alike.setdefault(key, []).append(zone)
    cells = []
    for zones in alike.values():
        n = plans[0].zone_sizes[zones[0]]
        starts = {0, *(p.noising_clients[zones[0]] for p in distinct)} - {n}
        cells += [(zones, index) for index in sorted(starts)]
    return cells


def like_zones(plan: NoisePlan, besides: Sequence[Hashable] = ()) -> list[int]:
    """A number for each zone, the same where the plan's zones could be swapped.

    That is where they themselves, and the nodes above them with all that is beneath
    those, are alike, also in what each zone is `besides`.
    """
    numbers: dict[Hashable, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    own = zip(
        plan.zone_sizes,
        plan.participation,
        plan.denominators,
        plan.mixing_weights,
        plan.noising_clients,
        plan.zone_noise,
        besides or plan.zone_sizes,
        strict=True,
    )
    nodes = [number(key) for key in own]
    paths, above = [(node,) for node in nodes], list(range(plan.num_zones))
    for level, noise in zip(plan.upper_levels, plan.node_noise[1:-1], strict=True):
        beneath: list[list[int]] = [[] for _ in noise]
        for node, parent in zip(nodes, level.parents, strict=True):
            beneath[parent].append(node)
        pairs = zip(noise, beneath, strict=True)
        nodes = [number((own, *sorted(children))) for own, children in pairs]
        above = [level.parents[node] for node in above]
        paths = [(*p, nodes[v]) for p, v in zip(paths, above, strict=True)]
    return [number(path) for path in paths]


def _joined(cells: Sequence[tuple[int, AccountRow]]) -> list[AccountRow]:
    """The rows of all zones where they agree, else of every zone.

    Of a zone's those are left out that another one covers.
    """
    rows: dict[int, tuple[AccountRow, ...]] = {}
    for zone, row in cells:
        kept = rows.get(zone, ())
        if not any(_covers(each, row) for each in kept):
            rows[zone] = (*(each for each in kept if not _covers(row, each)), row)
    distinct = set(rows.values())
    if len(distinct) == 1:
        return list(distinct.pop())
    return [
        dataclasses.replace(row, zone=zone)
        for zone, kept in sorted(rows.items())
        for row in kept
    ]


def _covers(row: AccountRow, other: AccountRow) -> bool:
    """Whether what `row` promises is kept to the clients of `other` too."""
    promised = any(math.isfinite(row.epsilon(method)) for method in SOUND)
    if promised and row.neighbours != other.neighbours:
        return False
    return all(row.epsilon(method) >= other.epsilon(method) for method in SOUND)


def client_row(
    history: History,
    *,
    observer: Observer,
    level: int,
    zone: int,
    index: int,
    delta: float,
    methods: Sequence[Method],
) -> AccountRow:
    """What one client's participation is worth against one observer.

    Args:
      history: Rounds with how many times each was run.
      observer: Who looks.
      level: Its level, as `tff_hdp.privacy.views.observers` yields it.
      zone: The client's zone.
      index: Its place in the zone's order, the noising ones first.
      delta: In (0, 1).
      methods: Which epsilons to compute.
    """
    last = history[-1][0].plan
    kind = client_kind(last, zone, index < last.noising_clients[zone])
    views, neighbours = _views(history, observer, level, zone, index)
    paper = None
    if "paper" in methods and observer in OBSERVERS and len(dict(history)) == 1:
        # The paper has no formula for rounds that differ, nor for fellows.
        rounds = sum(count for _, count in history)
        paper = paper_epsilon(last, rounds, observer, kind, zone, delta)
    row = AccountRow(
        observer=observer,
        client_kind=kind,
        zone=None,
        noise_multiplier=views[-1][0].effective_noise,
        epsilon_rdp=None,
        epsilon_pld=None,
        epsilon_paper=paper,
        delta=delta,
        neighbours=neighbours,
        sampling=_together([v.sampling for v, _ in views]),
        assumptions=_together(["; ".join(v.assumptions) for v, _ in views]),
        level=level,
    )
    seen = [(v, count) for v, count in views if count > 0 and not v.sees_nothing]
    if any(v.mechanism is None for v, _ in seen):
        return dataclasses.replace(row, noise_multiplier=None)
    if row.neighbours == "mixed":
        return dataclasses.replace(
            row,
            assumptions="no guarantee: these rounds' neighbour relations differ and "
            "do not compose",
        )
    numbers = float(sum(run.plan.drawn_numbers * count for run, count in history))
    rounds = [(v.mechanism, count) for v, count in seen]
    return composed(row, rounds, methods, numbers)


def _views(
    history: History, observer: Observer, level: int, zone: int, index: int
) -> tuple[list[tuple[View, int]], str]:
    """A client's rounds as an observer sees them, and the relation of them all."""

    def view_of(run: AccountedRound) -> View:
        noising = index < run.plan.noising_clients[zone]
        return view(run, observer, level, zone, noising)

    views = [(view_of(run), count) for run, count in history]
    relation = common_neighbours(views, [run.plan for run, _ in history])
    if relation == "zero_out":
        views = [(view_of(run.zeroing), count) for run, count in history]
    return views, relation


def composed(
    row: AccountRow,
    rounds: Iterable[tuple[Mechanism, int]],
    methods: Sequence[Method],
    numbers: float,
) -> AccountRow:
    """`row` with the sound epsilons of some rounds, and what they rest on.

    Args:
      row: With its delta and assumptions.
      rounds: Mechanisms with how often each was run.
      methods: Which epsilons to compute.
      numbers: How many numbers of noise are drawn in all rounds, at most.
    """
    together = gathered(rounds)
    notes = [row.assumptions] if row.assumptions else []
    numbers = numbers if together else 0.0
    if numbers:
        notes.append(f"noise of finite precision, {numbers:.2g} numbers, is accounted")
    found: dict[str, float | None] = {}
    for method, epsilon in (("rdp", epsilon_by_rdp), ("pld", epsilon_by_pld)):
        if method in methods:
            found[f"epsilon_{method}"], why = epsilon(together, row.delta, numbers)
            notes += [w for w in why if w not in notes]
    return dataclasses.replace(row, **found, assumptions="; ".join(notes))


def _together(words: Sequence[str]) -> str:
    return " | then: ".join(dict.fromkeys(w for w in words if w))
