"""Accounts as a table: short codes for what each row rests on, and their legend.

An epsilon stands beside its observer; delta is in the headline, and neighbour
relation, sampling and assumptions are codes in the last column, spelled out below.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTH = 88
# A statement's code is that of the first pattern that it begins with. The codes are
# those of docs/privacy.md.
_CODES = (
    ("A", "add_or_remove"),
    ("Z", "zero_out"),
    ("R", "replace_one"),
    ("M", "mixed"),
    ("E", "every client (takes part in )?every round"),
    ("Ph", "Poisson,.* hidden"),
    ("Pr", "Poisson,.* revealed"),
    ("Fh", r"\d+ of \d+ clients,.* hidden"),
    ("Fr", r"\d+ of \d+ clients,.* revealed|exactly \d+ of"),
    ("N", "no guarantee"),
    ("Ns", "the zone's mixing weight is 0"),
    ("H", "the observer does not learn who takes part"),
    ("K", "the observer may learn who takes part"),
    ("V", "participa.*taken as revealed"),
    ("C", "accounts the random number of noising participants"),
    ("D", "clients drop out"),
    ("L", "a zone with fewer than|that the client's coming may decide"),
    ("W", "replacing a client moves the sum"),
    ("U", r".*taken as unmasked|as if the noise of \d+ clients were known"),
    ("S", "secure "),
    ("X", ".*(collude|known to the observer|own super-node is not among)"),
    ("X", r"the elected super-node|received by another|\d+ noising clients subtract"),
    ("X", "a fellow client knows|a super-node (of another zone|elsewhere)"),
    ("Y", "noise of finite precision|noise on a grid"),
    ("U", ".*(not counted|none of their noise is|whose is lost is unknown)"),
    ("T", "super-nodes are trusted to top up"),
    ("J", "z is that of update and clipped count"),
    ("Cp", "the clip norm, measured without noise"),
    ("G", "PLD on a grid of"),
    ("B", ".* of delta pays for"),
    ("Q", "epsilon is the sum of the rounds'"),
    ("I", "no finite epsilon|PLD is not (resolved|taken)"),
    ("I", "noise too small for PLD|no PLD"),
    ("O", ""),
)
_FIELDS = ("neighbours", "sampling", "assumptions")
_MEANS = {
    "add_or_remove": "neighbours add or remove one client",
    "zero_out": "neighbours zero out one client",
    "replace_one": "neighbours replace one client by another",
    "mixed": "neighbours differ between rounds",
}
_EPSILONS = ("epsilon_rdp", "epsilon_pld")
_TITLES = {
    "client_kind": "client",
    "noise_multiplier": "multiplier",
    "party_noise_multiplier": "party's multiplier",
    "epsilon_rdp": "eps (RDP)",
    "epsilon_pld": "eps (PLD)",
    "epsilon_paper": "eps (paper)",
}
_GRID = re.compile(r"(?<=grid of )[\d.e-]+")
_THEN = " | then: "


def account_text(rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    """A table of accounts with all that its epsilons rest on.

    Args:
      rows: `AccountRow.to_dict()` each, with columns of the caller's own before.
      notes: Lines between the table and its legend.

    Returns:
      Lines of text; "" without rows.
    """
    if not rows:
        return ""
    codes = numbered(rows)
    deltas = {row["delta"] for row in rows}
    shown = [name for name in rows[0] if _is_shown(name, rows)]
    zones: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        cells = [_cell(name, row) for name in shown if name != "zone"]
        alike = zones.setdefault((*cells, rests_on(row, codes)), [])
        alike += [] if row["zone"] is None else [row["zone"]]
    at = shown.index("zone") if "zone" in shown else None
    lines = [[*(_TITLES.get(name, name) for name in shown), "rests on"]]
    for cells, alike in zones.items():
        line = list(cells)
        if at is not None:
            line.insert(at, _ranges(alike))
        lines.append(line)
    delta = f" at delta {deltas.pop():g}" if len(deltas) == 1 else ""
    return "\n".join(
        [
            f"Epsilon{delta}, for one client with all its data; none: no guarantee.",
            "",
            *aligned(lines),
            "",
            *([*notes, ""] if notes else []),
            *legend(codes),
        ]
    )


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines whose columns start below each other."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def statements(row: Mapping[str, Any]) -> list[str]:
    """What a row rests on, one by one: neighbours, sampling, assumptions."""
    return [s for field in _FIELDS for part in _parts(row[field]) for s in part]


def explained(row: Mapping[str, Any]) -> list[str]:
    """`statements` in words."""
    return [_MEANS.get(statement, statement) for statement in statements(row)]


def code_of(statement: str) -> str:
    """The code of a statement, before those that share one are numbered."""
    return next(code for code, pattern in _CODES if re.match(pattern, statement))


def numbered(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The statements of rows, each with its code; different ones of one get a number.

    Save for what names a PLD's grid, which differs from row to row.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for statement in dict.fromkeys(s for row in rows for s in statements(row)):
        alike = found.setdefault(code_of(statement), {})
        alike.setdefault(_GRID.sub("", statement), []).append(statement)
    return {
        statement: code if len(alike) == 1 else f"{code}{number}"
        for code, alike in found.items()
        for number, same in enumerate(alike.values(), 1)
        for statement in same
    }


def rests_on(row: Mapping[str, Any], codes: Mapping[str, str]) -> str:
    """The codes, of `numbered`, of what a row rests on."""
    words = []
    for field in _FIELDS:
        parts = (" ".join(codes[s] for s in part) for part in _parts(row[field]))
        words.append(" | ".join(parts))
    return " ".join(filter(None, words))


def legend(codes: Mapping[str, str]) -> list[str]:
    """Lines that say what the codes of `numbered` mean."""
    texts: dict[str, list[str]] = {}
    for statement, code in codes.items():
        texts.setdefault(code, []).append(_MEANS.get(statement, statement))
    lines = []
    for code in sorted(texts, key=_rank):
        text = texts[code][0]
        if len(texts[code]) > 1:
            grids = sorted((_GRID.search(t)[0] for t in texts[code]), key=float)
            text = _GRID.sub(f"{grids[0]} to {grids[-1]}", text)
        line = f"{code:<4} {text}"
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=" " * 5)
    return lines


def _parts(text: str) -> list[list[str]]:
    """Rounds that rest on different things, and the statements of each."""
    return [[s for s in part.split("; ") if s] for part in text.split(_THEN)]


def _ranges(zones: Sequence[int]) -> str:
    """0,1,2,5 as 0-2,5; "all" without zones."""
    runs: list[list[int]] = []
    for zone in sorted(zones):
        if runs and zone == runs[-1][-1] + 1:
            runs[-1].append(zone)
        else:
            runs.append([zone])
    words = (f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
    return ",".join(words) or "all"


def _rank(code: str) -> tuple[int, int]:
    letters = code.rstrip("0123456789")
    order = [known for known, _ in _CODES]
    return order.index(letters), int(code[len(letters) :] or 0)


def _is_shown(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    values = {row[name] for row in rows}
    if name in _FIELDS:
        return False
    if name == "delta":
        return len(values) > 1
    if name == "level":
        return len({(r["observer"], r["level"]) for r in rows}) > len(
            {r["observer"] for r in rows}
        )
    return name not in ("zone", "epsilon_paper") or values != {None}


def _cell(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is not None:
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    promised = any(row[epsilon] is not None for epsilon in _EPSILONS)
    return "-" if name == "epsilon_paper" or promised else "none"
