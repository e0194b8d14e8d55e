"""Epsilon of every kind of client against every observer of a noise plan."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from tff_hdp.errors import ArgumentError, check_count, check_delta
from tff_hdp.privacy.composition import epsilon_by_pld, epsilon_by_rdp
from tff_hdp.privacy.mechanisms import Mechanism
from tff_hdp.privacy.paper import paper_epsilon
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import AccountedRound, ThreatModel
from tff_hdp.privacy.views import (
    CLIENT_KINDS,
    ClientKind,
    Observer,
    View,
    client_kind,
    observers,
    view,
)

Method = Literal["rdp", "pld", "paper"]
METHODS: tuple[Method, ...] = ("rdp", "pld", "paper")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountRow:
    """What one kind of client's participation is worth against one observer.

    Attributes:
      observer: `super_node` (the client's own), `aggregator` or `released_model`;
        other systems' accounts name observers of their own.
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
    history: History, delta: float, methods: Sequence[Method] = METHODS
) -> list[AccountRow]:
    """Accounts runs of rounds under different plans over the same zones.

    A client's kind is the one it has under the last plan.

    Args:
      history: Rounds with how many times each was run.
      delta: In (0, 1).
      methods: Which epsilons to compute.

    Returns:
      Rows as `account` gives them.

    Raises:
      ArgumentError: If an argument is out of range, or the plans' zones or levels
        differ.
    """
    check_delta("delta", delta)
    for method in methods:
        if method not in METHODS:
            raise ArgumentError("methods", method, ", ".join(METHODS))
    plans = [run.plan for run, _ in history]
    check_same_zones(plans)
    rows = []
    last = plans[-1]
    for observer, level in observers(last):
        cells: dict[ClientKind, list[tuple[int, AccountRow]]] = {}
        for zone, index in _cells(plans):
            kind = client_kind(last, zone, index < last.noising_clients[zone])
            row = _row(history, observer, level, kind, zone, index, delta, methods)
            cells.setdefault(kind, []).append((zone, row))
        for kind in CLIENT_KINDS:
            rows += _joined(cells.get(kind, []))
    return rows


def worst(
    rows: Sequence[AccountRow],
    observer: Observer,
    kind: ClientKind | None = None,
    method: Literal["rdp", "pld"] = "rdp",
) -> AccountRow:
    """The row with the largest epsilon; one without a guarantee is larger still.

    Args:
      rows: What `account` returned.
      observer: Whose rows.
      kind: Of which clients; None for all.
      method: Which epsilon to compare.

    Returns:
      One of the rows.

    Raises:
      ArgumentError: If no row matches.
    """
    found = [
        r
        for r in rows
        if r.observer == observer and (kind is None or r.client_kind == kind)
    ]
    if not found:
        there = sorted({f"{r.client_kind} clients against {r.observer}" for r in rows})
        asked = observer if kind is None else f"{observer}, for {kind} clients"
        raise ArgumentError("observer", asked, "; ".join(there))

    def size(row: AccountRow) -> float:
        epsilon = getattr(row, f"epsilon_{method}")
        return math.inf if epsilon is None else epsilon

    return max(found, key=size)


def check_same_zones(plans: Sequence[NoisePlan]) -> None:
    """Raises ArgumentError unless the plans have the same zones and levels."""
    zones, levels = plans[0].zone_sizes, len(plans[0].upper_levels)
    for plan in plans:
        if plan.zone_sizes != zones:
            allowed = f"{zones}, as in earlier rounds"
            raise ArgumentError("plan.zone_sizes", plan.zone_sizes, allowed)
        if len(plan.upper_levels) != levels:
            allowed = f"{levels} levels, as in earlier rounds"
            raise ArgumentError("plan.upper_levels", plan.upper_levels, allowed)


def _cells(plans: Sequence[NoisePlan]) -> list[tuple[int, int]]:
    """(zone, index) of one client for every kind of history that clients have."""
    cells = []
    for zone, n in enumerate(plans[0].zone_sizes):
        starts = {0, *(p.noising_clients[zone] for p in plans)} - {n}
        cells += [(zone, index) for index in sorted(starts)]
    return cells


def _joined(cells: Sequence[tuple[int, AccountRow]]) -> list[AccountRow]:
    """One row where all zones agree, else the worst row of every zone."""
    rows: dict[int, AccountRow] = {}
    for zone, row in cells:
        if zone in rows:
            row = max(rows[zone], row, key=_strength)
        rows[zone] = row
    distinct = set(rows.values())
    if len(distinct) == 1:
        return list(distinct)
    return [dataclasses.replace(row, zone=zone) for zone, row in sorted(rows.items())]


def _strength(row: AccountRow) -> float:
    values = [e for e in (row.epsilon_rdp, row.epsilon_pld) if e is not None]
    return max(values) if values else math.inf


def _row(
    history: History,
    observer: Observer,
    level: int,
    kind: ClientKind,
    zone: int,
    index: int,
    delta: float,
    methods: Sequence[Method],
) -> AccountRow:
    views = [
        (view(r, observer, level, zone, index < r.plan.noising_clients[zone]), count)
        for r, count in history
    ]
    bounded = any(run.plan.estimator == "bounded" for run, _ in history)
    paper = None
    if "paper" in methods and len({run for run, _ in history}) == 1:
        # The paper has no formula for rounds that differ.
        rounds = sum(count for _, count in history)
        plan = history[0][0].plan
        paper = paper_epsilon(plan, rounds, observer, kind, zone, delta)
    row = AccountRow(
        observer=observer,
        client_kind=kind,
        zone=None,
        noise_multiplier=views[-1][0].noise_multiplier,
        epsilon_rdp=None,
        epsilon_pld=None,
        epsilon_paper=paper,
        delta=delta,
        neighbours=_common_neighbours(views, bounded),
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
    return composed(row, [(v.mechanism, count) for v, count in seen], methods)


def composed(
    row: AccountRow,
    rounds: Iterable[tuple[Mechanism, int]],
    methods: Sequence[Method],
) -> AccountRow:
    """`row` with the sound epsilons of some rounds, and what they rest on.

    Args:
      row: With its delta and assumptions.
      rounds: Mechanisms with how often each was run.
      methods: Which epsilons to compute.
    """
    counts: dict[Mechanism, int] = {}
    for mechanism, count in rounds:
        counts[mechanism] = counts.get(mechanism, 0) + count
    notes = [row.assumptions] if row.assumptions else []
    found: dict[str, float | None] = {}
    for method, epsilon in (("rdp", epsilon_by_rdp), ("pld", epsilon_by_pld)):
        if method in methods:
            found[f"epsilon_{method}"], why = epsilon(
                frozenset(counts.items()), row.delta
            )
            notes += [w for w in why if w not in notes]
    return dataclasses.replace(row, **found, assumptions="; ".join(notes))


def _common_neighbours(views: Sequence[tuple[View, int]], bounded: bool) -> str:
    relations = {v.neighbours for v, _ in views if v.mechanism is not None}
    if not relations:
        return views[-1][0].neighbours
    if len(relations) == 1:
        return relations.pop()
    # With a fixed denominator a removed client and a zeroed one give the same
    # sum, so the account under add-or-remove holds under zero-out too.
    return "mixed" if bounded or "replace_one" in relations else "zero_out"


def _together(words: Sequence[str]) -> str:
    return " | then: ".join(dict.fromkeys(w for w in words if w))
