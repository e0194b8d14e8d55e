"""The HDP paper's tables and claims that need no training: rows, and how to read them.

Every function takes the folder for its figures and returns its rows and lines that
say how to read them.
"""

import math
import pathlib
from typing import Any

from scripts.papers.hdp import figures, tables
from scripts.papers.hdp.levels import multi_level
from tff_hdp.privacy.config import AccountConfig

Rows = list[dict[str, Any]]
FAN_INS = (10, 5, 2)


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
    rows = multi_level(fan_ins=FAN_INS)
    figures.draw_levels(rows, FAN_INS, str(folder / "levels.png"))
    return rows, [f"Fan-ins {', '.join(map(str, FAN_INS))}; 200 rounds; q = 0.2."]


def compare(folder: pathlib.Path) -> tuple[Rows, list[str]]:
    """LDP, HDP and CDP: the same multiplier, then the same noise in the model."""
    found = []
    for equal, z in (("multiplier", 1.0), ("release", math.sqrt(10))):
        rows = tables.comparison(AccountConfig(noise_multiplier=z), equal)
        path = folder / f"privacy_equal_{equal}.png"
        figures.draw_comparison(rows, equal, str(path))
        found += [{"equal": equal, **row} for row in rows]
    return found, ["500 clients, 100 a round, 10 zones, 200 rounds."]
