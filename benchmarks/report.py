"""Writes measurements into docs/benchmarks.md and draws its figure.

    python benchmarks/report.py FILE...
    python benchmarks/report.py --rows_only FILE...

The files are what run.py and profile_round.py wrote with --json, all of one machine;
their tables replace what stands between the page's markers, and are refused where the
page would lose one. Rows of run.py are left beside the page as
results/benchmarks/rounds_<machine>.csv, in which other works' rows stay, and what such
files of all machines come to, compared, as results/benchmarks/fast.csv, in brief as
brief.csv; --rows_only writes these alone.
"""

import collections
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import works
from absl import flags
from side_by_side import brief, compared, file_name

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.files import write_figure, write_text

_FIGURE = "figures/benchmarks_rounds.png"
_RESULTS = "results/benchmarks"
_DOCS = pathlib.Path(__file__).parents[1] / "docs"
_HEADINGS = {
    "A": "A: 100 clients, Dense(200)-Dense(10)",
    "B": "B: 20 clients, two convolutions",
    "cnn_small": "cnn_small: B with the tasks' small model, 96,418 weights",
    "lenet": "lenet: B with LeNet, 89,822 weights",
    "C": "C: work A in 10 zones, by who adds noise",
    "D": "D: work A by cohort",
    "E": "E: whole runs of scripts/train.py",
    "F": "F: whole training loops, with test and checkpoint each round",
    "G": "G: cohorts out of many registered clients, in processor seconds",
}
# First columns of a work's table, where its rows differ in more than the subject.
_LEADING = {
    "C": ["privacy"],
    "D": ["clients"],
    "F": ["task"],
    "G": ["registered", "clients"],
}
# Further columns of numbers, by header, of works that have no floor.
_NUMBERS = {
    "E": {},
    "F": {"rounds a second": "rounds_per_second", "accuracy": "accuracy"},
}
Measurement = dict[str, Any]


def main(words: list[str]) -> int:
    """Rewrites the page and the figure."""
    if not words:
        raise ArgumentError("FILE", None, "files written by --json")
    timed, profiled = _read(words)
    if not timed and not profiled:
        raise ArgumentError("FILE", words, "files with measurements")
    machines = {row["machine"] for row in timed}
    if len(machines) > 1:
        found = " and ".join(sorted(machines))
        raise ArgumentError("FILE", words, f"files of one machine, not of {found}")
    page = pathlib.Path(flags.FLAGS.page)
    if not flags.FLAGS.rows_only:
        _write_page(page, timed, profiled)
    if timed:
        _write_rows(timed, page.parent / _RESULTS)
    return 0


def _write_page(
    page: pathlib.Path, timed: Sequence[Measurement], profiled: Sequence[Measurement]
) -> None:
    text = page.read_text()
    if timed:
        text = _replace(text, "measurements", _tables(timed))
    if profiled:
        text = _replace(text, "profile", _profile_table(profiled))
    if _drawn(timed):
        figure = page.parent / _FIGURE
        _draw(_drawn(timed), figure)
        print(figure)
    page.write_text(text)
    print(page)


def _read(paths: Sequence[str]) -> tuple[list[Measurement], list[Measurement]]:
    """Rows of run.py and of profile_round.py."""
    timed, profiled = [], []
    for path in paths:
        for row in json.loads(pathlib.Path(path).read_text()):
            (profiled if "shares" in row else timed).append(row)
    return timed, profiled


def _write_rows(timed: Sequence[Measurement], folder: pathlib.Path) -> None:
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    rows = pd.DataFrame(
        {
            **row,
            **{f"seconds, {kind}": s for kind, s in (row.get("parts") or {}).items()},
        }
        for row in timed
    ).drop(columns=["parts", "notes"], errors="ignore")
    path = folder / file_name(rows["machine"].iloc[0])
    if path.exists():
        before = pd.read_csv(path)
        # Of a work's tasks those that were not measured again stay.
        others = before[~_measured(before).isin(_measured(rows))]
        columns = before.columns.union(rows.columns, sort=False)
        # pandas is not yet settled on what an empty column does to another's type.
        told = [frame.dropna(axis=1, how="all") for frame in (others, rows)]
        rows = pd.concat(told).reindex(columns=columns)
    write_text(path, rows.to_csv(index=False, float_format="%.4g"))
    print(path)
    machines = sorted(folder.glob("rounds_*.csv"))
    for name, table in (("fast", compared(machines)), ("brief", brief(machines))):
        write_text(folder / f"{name}.csv", table.to_csv(index=False))
        print(folder / f"{name}.csv")


def _measured(rows: Any) -> Any:
    """Each row's work, and of which task where it is of one."""
    return rows.reindex(columns=["work", "task"]).fillna("").agg(", ".join, axis=1)


def _replace(text: str, marker: str, body: str) -> str:
    start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    before = pattern.search(text)
    if before is None:
        raise FileError(flags.FLAGS.page, f"lacks the markers {start} and {end}")
    if lost := _headed(before[0]) - _headed(body):
        raise FileError(
            flags.FLAGS.page,
            f"has {', '.join(sorted(lost))} too, which the files have not: give all of "
            f"a machine's, or empty the page between {start} and {end}",
        )
    return pattern.sub(lambda _: f"{start}\n{body}\n{end}", text)


def _headed(body: str) -> set[str]:
    """The headings of what stands between markers, or else its first table's."""
    lines = body.splitlines()
    headings = {line[4:] for line in lines if line.startswith("### ")}
    table = next((line for line in lines if line.startswith("| ")), "")
    return headings or {cell.strip() for cell in table.strip("|").split(" | ")} - {""}


def _tables(timed: Sequence[Measurement]) -> str:
    """A table for every work, in the works' order."""
    by_work = collections.defaultdict(list)
    neighbours = [row for row in timed if row.get("preset")]
    for row in timed:
        if row not in neighbours:
            by_work[row["work"]].append(row)
    machines = dict.fromkeys(row["machine"] for row in timed)
    parts = [f"Measured on {'; '.join(machines)}."]
    if _drawn(timed):
        parts.append(f"![Seconds a round]({_FIGURE})")
    for work in filter(by_work.get, _HEADINGS):
        parts.append(f"### {_HEADINGS[work]}\n\n{_table(work, by_work[work])}")
    if neighbours:
        parts += [_neighbour_table(neighbours), _preset_table(neighbours)]
    return "\n\n".join(parts)


def _table(work: str, measured: Sequence[Measurement]) -> str:
    columns = [*_LEADING.get(work, []), "program", "runtime"]
    header = [*columns, "median s", "min..max s", "native / this", "min..max"]
    numbers = _NUMBERS.get(work, {"this / floor": "ratio_to_floor"})
    header += [*numbers, "peak MB"]
    lines = [_line(header), _line(["---"] * len(header))]
    for row in measured:
        cells = [str(row.get(name)) for name in columns]
        cells += [
            f"{row['seconds_median']:.3g}",
            f"{row['seconds_min']:.3g}..{row['seconds_max']:.3g}",
            _number(row["ratio_to_native"]),
            _range(row["ratio_to_native_min"], row["ratio_to_native_max"]),
            *(_number(row[key]) for key in numbers.values()),
            f"{row['peak_rss_mb']:.0f}",
        ]
        lines.append(_line(cells))
    first = measured[0]
    said = f"{first['rounds']} {'runs' if work == 'E' else 'rounds'} each."
    if work in ("C", *works.COHORT_WORKS):
        said += (
            f" Floor {first['floor_seconds']:.3g} s at {first['sgemm_gflops']:.0f} "
            "GFLOP/s."
        )
    notes = dict.fromkeys(
        f"{row['program']}: {row['notes']}." for row in measured if row["notes"]
    )
    parts = _parts_table(measured)
    return "\n".join([*lines, *parts, "", " ".join([said, *notes])])


def _parts_table(measured: Sequence[Measurement]) -> list[str]:
    """Lines of what a round consists of, of the rows that tell."""
    told = [row for row in measured if row.get("parts")]
    if not told:
        return []
    kinds = list(told[0]["parts"])
    header = ["of a round, in ms", *kinds, f"{kinds[-1]} / {kinds[0]}"]
    lines = ["", _line(header), _line(["---"] * len(header))]
    for row in told:
        parts = [row["parts"][kind] for kind in kinds]
        share = f"{parts[-1] / parts[0]:.1%}"
        name = f"{row['program']}, {row['task']}"
        lines.append(_line([name, *(f"{1e3 * p:.1f}" for p in parts), share]))
    return lines


def _neighbour_table(measured: Sequence[Measurement]) -> str:
    """The neighbour systems, each beside its clients trained alone and its floor."""
    header = ["system", "clients", "program", "median s", "min..max s"]
    header += ["alone / this", "min..max", "floor s", "this / floor", "peak MB"]
    lines = [_line(header), _line(["---"] * len(header))]
    for row in measured:
        cells = [row["work"], str(row["clients"]), row["program"]]
        cells += [
            f"{row['seconds_median']:.3g}",
            f"{row['seconds_min']:.3g}..{row['seconds_max']:.3g}",
            _number(row["ratio_to_native"]),
            _range(row["ratio_to_native_min"], row["ratio_to_native_max"]),
            f"{row['floor_seconds']:.2g}",
            f"{row['ratio_to_floor']:.3g}",
            f"{row['peak_rss_mb']:.0f}",
        ]
        lines.append(_line(cells))
    rates = [row["sgemm_gflops"] for row in measured]
    said = f"{measured[0]['rounds']} rounds each, in process. Floors at "
    said += f"{min(rates):.0f} to {max(rates):.0f} GFLOP/s."
    return "\n".join(["### Neighbour systems\n", *lines, "", said])


def _preset_table(measured: Sequence[Measurement]) -> str:
    """How long a run of each preset is, by its rounds in the loop."""
    header = ["preset in scripts/papers/", "rounds", "s a round", "all rounds"]
    lines = [_line(header), _line(["---"] * len(header))]
    for row in measured:
        if row["program"] == "loop":
            rounds, median = row["preset_rounds"], row["seconds_median"]
            cells = [row["preset"], f"{rounds:,}", f"{median:.3g}"]
            lines.append(_line([*cells, _duration(rounds * median)]))
    return "\n".join(["### A run at a paper's own size\n", *lines])


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _profile_table(profiled: Sequence[Measurement]) -> str:
    kinds = dict.fromkeys(kind for row in profiled for kind in row["shares"])
    header = ["share of the cores' time"]
    header += map(_profiled, profiled)
    lines = [_line(header), _line(["---"] * len(header))]
    for of in kinds:
        shares = [row["shares"].get(of, 0.0) for row in profiled]
        lines.append(_line([of, *(f"{share:.0%}" for share in shares)]))
    return "\n".join(lines)


def _profiled(row: Measurement) -> str:
    """What was profiled, as the head of its column."""
    held = f", oneDNN held to {row['held_to']}" if row.get("held_to") else ""
    return f"{row['work']}, {row['program']}{held}"


def _drawn(timed: Sequence[Measurement]) -> list[Measurement]:
    """The rows that the figure shows."""
    return [row for row in timed if row["work"] in ("A", "B")]


def _draw(measured: Sequence[Measurement], path: pathlib.Path) -> None:
    """Bars of seconds a round for works A and B, with their floors."""
    from matplotlib.figure import Figure

    shown_works = sorted({row["work"] for row in measured})
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6 * len(shown_works), 3.6))
    axes = figure.subplots(1, len(shown_works), squeeze=False)
    for work, axis in zip(shown_works, axes[0], strict=True):
        shown = [row for row in measured if row["work"] == work]
        shown.sort(key=lambda row: -row["seconds_median"])
        medians = [row["seconds_median"] for row in shown]
        spread = [
            [row["seconds_median"] - row["seconds_min"] for row in shown],
            [row["seconds_max"] - row["seconds_median"] for row in shown],
        ]
        names = [_subject(row) for row in shown]
        colours = ["C1" if row["program"] == "stacked" else "C0" for row in shown]
        axis.barh(names, medians, xerr=spread, color=colours, capsize=2)
        axis.axvline(
            shown[0]["floor_seconds"], color="grey", linestyle=":", label="floor"
        )
        axis.set(xlabel="seconds a round", title=_HEADINGS[work])
        axis.legend(fontsize=8)
    figure.tight_layout()
    write_figure(path, figure)


def _subject(row: Measurement) -> str:
    if row["program"] == row["runtime"]:
        return row["program"]
    return f"{row['program']}, {row['runtime']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None else f"{_number(low)}..{_number(high)}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    flags.DEFINE_string("page", str(_DOCS / "benchmarks.md"), "The page to rewrite.")
    flags.DEFINE_boolean("rows_only", False, "Leave the page as it is.")
    sys.exit(cli.run(main, takes_words=True))
