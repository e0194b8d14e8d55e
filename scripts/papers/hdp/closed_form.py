"""The HDP paper's tables and claims that need no training: rows, and how to read them.

A part's function takes the folder for its figures and returns its rows and lines that
say how to read them.
"""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

from scripts.papers.hdp import figures, tables
from scripts.papers.hdp.tables import DELTA
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import paper
from tff_hdp.privacy.accountant import account, worst
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.configurations import c1, c2, c4, even_levels
from tff_hdp.privacy.parts import PoissonSampling
from tff_hdp.privacy.plan import NoisePlan

Rows = list[dict[str, Any]]
FAN_INS = (10, 5, 2)
_ROUNDS = 200


def table1(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """Table I with numbers: C1 to C7 at z = 1, 500 clients, 10 zones, 200 rounds."""
    return tables.table_i(), tables.verdicts()


def table3(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """Table III: printed, by the paper's formula, and sound."""
    return tables.table_iii(), tables.verdicts()


def others(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """Epsilons that the four other papers print, beside the sound ones."""
    return tables.other_papers(), [tables.OTHERS_REST_ON]


def levels(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """Section IV-C: noise at one level of a tree, seen from every level above."""
    rows = multi_level()
    figures.draw_levels(rows, FAN_INS, str(folder / "levels.png"))
    return rows, [f"Fan-ins {', '.join(map(str, FAN_INS))}; {_ROUNDS} rounds; q = 0.2."]


def compare(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """LDP, HDP and CDP: the same multiplier, then the same noise in the model."""
    found = []
    for equal, z in (("multiplier", 1.0), ("release", math.sqrt(10))):
        rows = tables.comparison(AccountConfig(noise_multiplier=z), equal)
        path = folder / f"privacy_equal_{equal}.png"
        figures.draw_comparison(rows, equal, str(path))
        found += [{"equal": equal, **row} for row in rows]
    return found, ["500 clients, 100 a round, 10 zones, 200 rounds."]


def multi_level(fan_ins: Sequence[int] = FAN_INS, q: float = 0.2) -> Rows:
    """Epsilon at every level of a tree, for noise of z = 1 added at any one level.

    The paper's section IV-C: noise worth eps where it is added is worth
    eps / sqrt(k_(a+1) ... k_b) at level b above level a.

    Args:
      fan_ins: k_1 clients online in every zone, k_2 zones under every node of
        level 2, ..., and last the nodes under the server.
      q: Sampling probability; a zone has k_1 / q clients.

    Returns:
      A row per noising level (0: clients, 1: super-nodes, ..., the last the
      server) and level from there on: who sees that level's output, the paper's
      epsilon, the sound one by RDP, and what it rests on.

    Raises:
      ArgumentError: If an argument is out of range or k_1 / q is no whole number.
    """
    if not fan_ins or any(int(k) != k or k < 1 for k in fan_ins):
        raise ArgumentError("fan_ins", fan_ins, "whole numbers >= 1")
    if not 0.0 < q <= 1.0:
        raise ArgumentError("q", q, "(0, 1]")
    size = round(fan_ins[0] / q)
    if not math.isclose(size * q, fan_ins[0]):
        raise ArgumentError("q", q, f"{fan_ins[0]} / q a whole number")
    epsilon = paper.accountant_epsilon(q, 1.0, _ROUNDS, DELTA)
    rows = []
    for noising in range(len(fan_ins) + 1):
        plan = _plan(fan_ins, size, q, noising)
        accounts = account(plan, _ROUNDS, DELTA, ("rdp",))
        for level in range(noising, len(fan_ins) + 1):
            # Level b's output is seen by the node above it.
            seen = [row for row in accounts if row.level == level + 1]
            row = worst(seen, seen[0].observer)
            rows.append(
                {
                    "noise_at": noising,
                    "level": level,
                    "observer": row.observer,
                    "epsilon_paper": paper.levels(epsilon, fan_ins[noising:level]),
                    "epsilon_rdp": row.epsilon_rdp,
                    "noise_multiplier": row.noise_multiplier,
                    "delta": DELTA,
                    "neighbours": row.neighbours,
                    "sampling": row.sampling,
                    "assumptions": row.assumptions,
                }
            )
    return rows


def _plan(fan_ins: Sequence[int], size: int, q: float, noising: int) -> NoisePlan:
    zones = math.prod(fan_ins[1:])
    counts = [math.prod(fan_ins[i:]) for i in range(2, len(fan_ins))]
    server = len(fan_ins)
    noise = {noising: 1.0} if 2 <= noising < server else {}
    options: dict[str, Any] = {
        "zone_sizes": (size,) * zones,
        "sampling": PoissonSampling((q,) * zones),
        "upper_levels": even_levels(zones, counts, noise),
    }
    if noising == server:
        return c4(noise_multiplier=1.0, **options)
    if noising > 1:
        return NoisePlan(**options)
    return (c1, c2)[noising](noise_multiplier=1.0, **options)
