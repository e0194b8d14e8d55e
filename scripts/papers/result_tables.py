"""The tables of studies: made of their CSVs alone, and put into the pages of docs/.

A table lies between its page's markers `<!-- results <paper>/<study> -->` and
`<!-- /results -->`.

    python -m scripts.papers.result_tables docs/benchmarks.md
"""

import math
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import pandas as pd

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.files import write_text
from tff_hdp.privacy.table import legend, numbered, rests_on

_NAMES = {
    "super_node": "own super-node",
    "released_model": "released model",
    "fellow": "fellow party",
}
_AWAY = ("{} above", "{} below")
# An observer of whom an account has no row, as it is none or sees no more than another.
_NOBODY = "–"
_MARKED = re.compile(r"<!-- results (\S+) -->\n(.*?)<!-- /results -->", re.DOTALL)
_WORDS = {"neighbours", "sampling"}
NOT_RUN = "**Not run.**"
# Shares of one have three places, whatever else is measured three digits.
_SHARES = {"auroc", "loss", "hospital"} | {
    f"{prefix}accuracy"
    for prefix in (
        *("", "balanced_", "best_", "best_balanced_"),
        *("own_", "lost_", "cloud_"),
    )
}


def table(source: pathlib.Path | TextIO) -> str:
    """A study's CSV as Markdown: mean and spread over seeds beside what is printed.

    An epsilon is the largest of all clients', by the tighter of RDP and PLD; what it
    rests on are codes beside it, spelled out below. That against a fellow party is the
    largest against another client or another zone's super-node. A CSV that names no
    metric is shown as it is, with codes for words.

    Raises:
      FileError: If it is no CSV.
    """
    # In the clone alone, without which `cli.run` says in a line that it is missing.
    from scripts.papers import result_files

    frame = result_files.read(source)
    if "metric" not in frame:
        return _plain(frame)
    metric = frame["metric"][0]
    labels = list(frame.columns[: frame.columns.get_loc("printed")])
    also = [] if "also" not in frame else str(frame["also"][0]).split(";")
    seen = observers(frame)
    is_printed = bool(frame["printed"].notna().any())
    is_lost = "printed_loss" in frame and frame["printed_loss"].notna().any()
    groups = list(frame.groupby(labels, sort=False, dropna=False))
    first = groups[0][1]
    header = [*labels, "runs"]
    if is_printed:
        header.append("printed")
    header.append(f"{_words(metric)}, mean ± sd")
    if is_lost:
        of = str(first[labels[0]].iloc[0])
        header += [f"below {of}, printed", f"below {of}"]
    header += [_words(name) for name in also]
    header += [_NAMES.get(name, _words(name)) for name in seen]
    if is_printed or is_lost:
        header.append("verdict")
    lines = [_row(header), _row(["---"] * len(header))]
    found = [
        {name: _epsilon(group, seen[name]) for name in seen} for _, group in groups
    ]
    codes = numbered([b for each in found for _, b in each.values() if b])
    for (key, group), epsilons in zip(groups, found, strict=True):
        printed, within = group["printed"].iloc[0], group["within"].iloc[0]
        cells = [*map(str, key), len(group)]
        if is_printed:
            cells.append(_number(printed))
        cells.append(_spread(group[metric], metric))
        reached, is_loss = group[metric].mean(), False
        if is_lost:
            loss = _loss(first, group, metric)
            lost = group["printed_loss"].iloc[0]
            cells += [_number(lost), "" if math.isnan(lost) else _spread(loss, "loss")]
            is_loss = math.isnan(printed)
            if is_loss:
                printed, reached = lost, loss.mean()
        cells += [_spread(group[name], name) for name in also]
        for epsilon, basis in epsilons.values():
            cells.append(f"{epsilon} `{rests_on(basis, codes)}`" if basis else epsilon)
        if is_printed or is_lost:
            words = ("loses {} more", "loses {} less") if is_loss else _AWAY
            cells.append(_verdict(reached, printed, within, words))
        lines.append(_row(cells))
    if codes:
        deltas = ", ".join(f"{delta:g}" for delta in frame["delta"].unique())
        cells = {epsilon for each in found for epsilon, _ in each.values()}
        one = f"Epsilon at delta {deltas}, for"
        lines += _explained(codes, one, nobody=_NOBODY in cells)
    return "\n".join(lines)


def observers(frame: pd.DataFrame) -> dict[str, list[str]]:
    """By observer, what the columns of its epsilons begin with; all fellows are one."""
    found: dict[str, list[str]] = {}
    for column in frame:
        stem, dot, field = column.rpartition(".")
        name = stem.partition(".")[0]
        if dot and field == "epsilon_pld":
            name = "fellow" if name.startswith("fellow_") else name
            found.setdefault(name, []).append(stem)
    return found


def shown(name: str) -> str:
    """What a page shows of <paper>/<study>: its table, or that there is none."""
    from scripts.papers import formula_tables, result_files
    from scripts.papers.attacks import tables as attack_tables
    from scripts.papers.fl_top import tables

    made = attack_tables.TABLES | formula_tables.TABLES | tables.TABLES
    if name in made:
        return _plain(made[name](result_files.RESULTS))
    path = result_files.RESULTS / f"{name}.csv"
    return table(path) if path.exists() else NOT_RUN


def embed(page: pathlib.Path) -> None:
    """Puts what is shown of its CSV between each pair of a page's markers."""
    text = _MARKED.sub(
        lambda match: (
            f"<!-- results {match[1]} -->\n{shown(match[1])}\n<!-- /results -->"
        ),
        page.read_text(),
    )
    write_text(page, text)


def embedded(page: pathlib.Path) -> dict[str, str]:
    """The tables that a page holds, by what they are of."""
    return {
        match[1]: match[2].rstrip("\n") for match in _MARKED.finditer(page.read_text())
    }


def _explained(
    codes: Mapping[str, str], epsilon: str = "Epsilon is for", *, nobody: bool = False
) -> list[str]:
    """What stands below a table whose epsilons have codes beside them."""
    head = [f"{epsilon} one client with all its data; none: no guarantee."]
    if nobody:
        head.append(f"{_NOBODY}: no such party, or it sees what another column's does.")
    return ["", "```", *head, "", *legend(codes), "```"]


def _plain(frame: pd.DataFrame) -> str:
    below = []
    if set(frame) >= _WORDS:
        bases = [{"assumptions": "", **row} for row in frame.to_dict("records")]
        codes = numbered(bases)
        frame = frame.drop(columns=[*_WORDS, "assumptions"], errors="ignore")
        frame["rests on"] = [f"`{rests_on(basis, codes)}`" for basis in bases]
        below = _explained(codes)
    rows = [
        ["" if v != v else f"{v:.5g}" if isinstance(v, float) else v for v in row]
        for row in frame.itertuples(index=False)
    ]
    header = [_words(name) for name in frame]
    return "\n".join([*map(_row, [header, ["---"] * len(header), *rows]), *below])


def _loss(first: pd.DataFrame, group: pd.DataFrame, metric: str) -> pd.Series:
    """How far below the first line's a group's runs are, seed by seed."""
    of, own = (each.set_index("seed")[metric] for each in (first, group))
    return (of - own).dropna()


def _epsilon(
    group: pd.DataFrame, stems: Sequence[str]
) -> tuple[str, dict[str, str] | None]:
    """The largest epsilon against an observer, and the words that it rests on.

    Without noise there is no account, and no guarantee against anybody.
    """
    worst, basis = -math.inf, None
    noisy = group.filter(regex=r"\.neighbours$").notna().any(axis=None)
    for stem in stems:
        if group[f"{stem}.neighbours"].isna().all():
            continue  # no such clients here
        sound = group[[f"{stem}.epsilon_rdp", f"{stem}.epsilon_pld"]].min(axis=1)
        if sound.isna().any():
            return "none", None
        if sound.max() > worst:
            worst, row = sound.max(), group.loc[sound.idxmax()].fillna("")
            fields = ("neighbours", "sampling", "assumptions")
            basis = {field: row.get(f"{stem}.{field}", "") for field in fields}
    if basis is None:
        return (_NOBODY if noisy else "none", None)
    return f"{worst:.4g}", basis


def _verdict(
    found: float, printed: float, within: float, words: tuple[str, str]
) -> str:
    if math.isnan(printed):
        return "not printed"
    if abs(found - printed) <= within:
        return "reproduced"
    away = words[0] if found > printed else words[1]
    return f"not: {away.format(f'{abs(found - printed):.3f}')}"


def _spread(values: pd.Series, name: str) -> str:
    """Mean and standard deviation; the latter where the values differ.

    Of how many runs, where not of all: older ones may not have measured it.
    """
    mean = values.mean()
    if math.isnan(mean):
        return ""
    places = ".3f" if name in _SHARES else ".3g"
    shown = f"{mean:{places}}"
    if values.nunique() > 1:
        shown += f" ± {values.std():{places if name in _SHARES else '.2g'}}"
    count = values.count()
    return shown if count == len(values) else f"{shown} (of {count})"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main(words: list[str]) -> int:
    """Rewrites the tables of the pages named."""
    for page in map(pathlib.Path, words):
        if not page.is_file():
            raise ArgumentError("PAGE", page, "a page of docs/")
        embed(page)
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main, takes_words=True))
