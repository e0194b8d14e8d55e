"""Tables 1 and 2 of the FL-TOP paper, and the sweep that chooses step and clip norm."""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scripts.papers.fl_top import tables
from scripts.papers.result_files import RESULTS, read
from scripts.papers.studies import Line, Study
from tff_hdp.errors import ArgumentError, require
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.fl_top import results
from tff_hdp.systems.fl_top.config import SCHEMES, FlTopConfig
from tff_hdp.systems.fl_top.results import name_of

# Best accuracy of Table 1, best balanced accuracy of Table 2: by r, then by scheme.
PRINTED: dict[str, dict[float, dict[str, float]]] = {
    name: {
        ratio: dict(zip(rows["scheme"], rows["accuracy"], strict=True))
        for ratio, rows in table.groupby("r")
    }
    for name, table in tables.PRINTED.items()
}
COMPRESSED = tuple(s for s in SCHEMES if s != "fl_std")
# What the sweep tries. S is given beside the paper's rule, `auto`. Random weights, of
# which a step moves few, bear a larger one than the others.
STEPS = (0.03, 0.1, 0.3, 1.0, 3.0)
LARGEST_STEP = 10.0
CLIPS = ("auto", 0.5, 2.0)
SWEPT_RATIOS = (0.005, 0.1, 1.0)
# What it settles for each scheme and r.
_OWN = ("client_learning_rate", "clip_norm")
# The federation of the sweep is of MNIST, which is public here: as many clients with as
# many images, 10 of which are the server's.
PUBLIC = {
    "task": "mnist",
    "partition": "iid",
    "num_clients": 6_000,
    "public_data": "held_out",
    "rounds": 60,
}
SMALL = ("table2", "table2_digit")
TINY = {"rounds": 1, "num_clients": 40, "clients_per_round": 8}


class Schemes(Study):
    """A study some of whose lines have no noise."""

    def config(self, line: Line, changes: Mapping[str, Any]) -> RunConfig:
        """See base class; noise and clip norm given for all are the private lines'."""
        if not line.changes["scheme"].endswith("_dp"):
            noise = ("noise_multiplier", "clip_norm")
            changes = {k: v for k, v in changes.items() if k not in noise}
        return super().config(line, changes)


def table1(scale: str, extra: Sequence[float]) -> Study:
    """Fashion-MNIST."""
    return _table("table1", _preset(scale), extra)


def table2(scale: str, extra: Sequence[float]) -> Study:
    """A binary, imbalanced outcome: breast cancer in place of the hospital data."""
    del scale
    return _table("table2", "fl_top/table2", extra)


def table2_digit(scale: str, extra: Sequence[float]) -> Study:
    """The same on a task of 6,000 clients: MNIST's rarest digit against the others."""
    del scale
    return _table("table2_digit", "fl_top/table2_digit", extra)


def sweep(scale: str, extra: Sequence[float]) -> Study:
    """Step and clip norm of every scheme, judged on public data alone, by r."""
    del extra
    lines = []
    for row in _table("table1", _preset(scale), ()).lines:
        if row.changes["ratio"] not in SWEPT_RATIOS:
            continue
        scheme = row.changes["scheme"]
        steps = (*STEPS, LARGEST_STEP) if scheme.startswith("fl_basic") else STEPS
        for step in steps:
            for S in CLIPS if scheme.endswith("_dp") else CLIPS[:1]:
                changes = {**row.changes, **PUBLIC, "client_learning_rate": step}
                label = {**row.label, "step": step, "S": S}
                lines.append(Line(label, row.preset, {**changes, "clip_norm": S}))
    return Schemes(
        "fl_top", "sweep", lines, FlTopConfig, varied=_OWN, derived={"best": best}
    )


def best(rows: pd.DataFrame) -> pd.DataFrame:
    """Of every scheme at every r, the line of the sweep's best mean accuracy.

    Args:
      rows: A row a run.

    Returns:
      A row for each r and scheme: what did best, how well, and how the best with
      another step did.
    """
    label = ["r", "scheme", "step", "S"]
    # Rows of before are numbers, those of new runs their labels.
    rows = rows.astype({"r": float, "step": float, "S": str})
    means = rows.groupby(label, sort=False)["accuracy"].mean().reset_index()
    found = []
    for (r, scheme), lines in means.groupby(["r", "scheme"], sort=False):
        first = lines.loc[lines["accuracy"].idxmax()]
        others = lines[lines["step"] != first["step"]]
        found.append(
            {
                **{"r": r, "scheme": scheme, "step": first["step"], "S": first["S"]},
                "accuracy": first["accuracy"],
                "with another step": others["accuracy"].max(),
                "steps tried": len(set(lines["step"])),
            }
        )
    return pd.DataFrame(found)


def table1_own(
    scale: str, extra: Sequence[float], results: pathlib.Path = RESULTS
) -> Study:
    """Table 1 with each row's own step and clip norm, by the sweep.

    A ratio that was not swept takes those of the next that was.

    Raises:
      ArgumentError: If the sweep was not run, or not to its end.
    """
    study = table1(scale, extra)
    path = results / "fl_top" / f"sweep{'' if scale == 'full' else f'_{scale}'}.csv"
    own = chosen(path, sweep(scale, ()))

    def settings(line: Line) -> dict[str, Any]:
        ratio, swept = float(line.label["r"]), own[line.label["scheme"]]
        return swept[min(swept, key=lambda r: abs(math.log(r / ratio)))]

    lines = [
        dataclasses.replace(line, changes={**line.changes, **settings(line)})
        for line in study.lines
    ]
    return dataclasses.replace(study, name="table1_own", lines=lines, varied=_OWN)


def fl_cs(scale: str, extra: Sequence[float]) -> Study:
    """FL-CS by random coefficients of every round and by the largest on public data."""
    rows = [
        (scheme, ratio, coefficients)
        for scheme in ("fl_cs", "fl_cs_dp")
        for ratio in sorted({0.005, 0.05, 0.1, *extra})
        for coefficients in FlTopConfig.choices["coefficients"]
    ]
    lines = [
        Line(
            {"r": f"{r:.3g}", "scheme": name_of(scheme), "coefficients": coefficients},
            _preset(scale),
            {**_row_settings(scheme, r), "coefficients": coefficients},
            printed("table1", scheme, r),
        )
        for scheme, r, coefficients in rows
    ]
    return dataclasses.replace(
        table1(scale, ()), name="fl_cs", lines=lines, varied=("coefficients",)
    )


def masked(scale: str, extra: Sequence[float]) -> Study:
    """FL-TOP-DP with its secure sum in the clear, and under the masking protocol."""
    ratio = min(PRINTED["table1"])
    lines = [
        Line(
            {"r": f"{ratio:.3g}", "scheme": name_of("fl_top_dp"), "secure sum": how},
            _preset(scale),
            {
                **_row_settings("fl_top_dp", ratio),
                "secure_aggregation_protocol": protocol,
            },
            printed("table1", "fl_top_dp", ratio),
        )
        for how, protocol in (("in the clear", "none"), ("bonawitz", "bonawitz"))
    ]
    return dataclasses.replace(
        table1(scale, extra),
        name="masked",
        lines=lines,
        measure=measure_masked,
        varied=("secure_aggregation_protocol",),
        also=("accuracy", "upstream_kb", "secagg_seconds", "secagg_client_bytes"),
    )


def measure_masked(path: pathlib.Path) -> Mapping[str, Any]:
    """As `measure`, and what the protocol cost a round, on average."""
    metrics = read_run(path).metrics
    costs = ("secagg_seconds", "secagg_client_bytes")
    return {
        **measure(path, "table1"),
        **{name: metrics[name].mean() if name in metrics else None for name in costs},
    }


PARTS = {
    part.__name__: part
    for part in (table2, table2_digit, table1, sweep, table1_own, fl_cs, masked)
}


def studies(
    scale: str,
    parts: Sequence[str],
    extra: Sequence[float] = (),
    results: pathlib.Path = RESULTS,
) -> Mapping[str, Study]:
    """Studies at a scale, by part.

    Args:
      scale: One of `program.SCALES`.
      parts: Which.
      extra: Ratios that the paper has not.
      results: The folder of the papers' folders of CSVs. A study also has the ratios
        that are in its own there, whose rows would else be dropped.
    """

    def study(name: str, extra: Sequence[float]) -> Study:
        chooses = {"results": results} if name == "table1_own" else {}
        found = PARTS[name](scale, extra, **chooses)
        changes = TINY if scale == "tiny" else {}
        # The second table's tasks are small as they are.
        as_it_is = scale == "full" or (name in SMALL and not changes)
        return found if as_it_is else found.at(scale, changes)

    return {
        name: study(name, [*extra, *_ratios_in(study(name, extra).csv(results))])
        for name in parts
    }


def _ratios_in(path: pathlib.Path) -> set[float]:
    """The ratios below 1 of a CSV's rows; none of one that is not there."""
    if not path.exists():
        return set()
    # As text: pandas' numbers may be off by their last bit.
    rows = read(path, str)
    return {float(r) for r in rows.get("r", ())} - {1.0}


def chosen(path: pathlib.Path, study: Study) -> dict[str, dict[float, dict[str, Any]]]:
    """Every scheme's settings of the sweep's best mean accuracy, by r.

    Raises:
      ArgumentError: If it is not there, or lacks a line of the sweep.
      FileError: If it is no CSV.
    """
    if not path.exists():
        raise ArgumentError("what", "table1_own", "--what=sweep first")
    frame = read(path, {"S": str})
    there = frame.reindex(columns=["r", "scheme", "step", "S"]).to_dict("records")
    lacking = {line.key for line in study.lines} - {Line(x, "").key for x in there}
    allowed = f"--what=sweep first: {path} lacks {len(lacking)} of its lines"
    require(not lacking, "what", "table1_own", allowed)
    found: dict[str, dict[float, dict[str, Any]]] = {}
    for row in best(frame).to_dict("records"):
        settings = {"client_learning_rate": row["step"]}
        if row["scheme"].endswith("-DP"):
            settings["clip_norm"] = row["S"]
        found.setdefault(row["scheme"], {})[float(row["r"])] = settings
    return found


def printed(table: str, scheme: str, ratio: float) -> float | None:
    """What the paper prints in a row; None for a ratio that it has not."""
    return PRINTED[table].get(ratio, {}).get(name_of(scheme))


def measure(path: pathlib.Path, table: str) -> Mapping[str, Any]:
    """The paper's columns at the round of best test accuracy, and Figure 1's spread.

    Args:
      path: The run folder.
      table: Whose smallest r's Top-K weights Figure 1 shows.
    """
    from scripts.papers.fl_top.weights import top_k_values

    found = dict(results.table([path]).iloc[0])
    judged = next(n for n in ("balanced_accuracy", "accuracy") if n in found)
    kept = ("auroc", "downstream_kb", "upstream_kb", "epsilon_paper")
    row = {
        f"best_{judged}": found[judged],
        "best_round": found["round"],
        **{name: found[name] for name in kept if name in found},
    }
    record = json.loads((path / "config.json").read_text())
    scheme, ratio = (record["flags"][name] for name in ("scheme", "ratio"))
    if table in SMALL:
        row["hospital"] = printed(table, scheme, ratio)
    if scheme in ("fl_std", "fl_top"):
        size = max(1, int(min(PRINTED[table]) * record["resolved"]["weights"]))
        row["top_k_spread"] = float(top_k_values(path, size).std())
    return row


def _table(name: str, preset: str, extra: Sequence[float]) -> Study:
    ratios = sorted({*PRINTED[name], *extra} - {1.0})
    rows = [(scheme, ratio) for ratio in ratios for scheme in _all(COMPRESSED)]
    rows += [(scheme, 1.0) for scheme in _all(["fl_std"])]
    lines = [
        Line(
            {"r": f"{ratio:.3g}", "scheme": name_of(scheme)},
            preset,
            _row_settings(scheme, ratio),
            printed(name, scheme, ratio) if name == "table1" else None,
        )
        for scheme, ratio in rows
    ]
    also = ("best_round", "downstream_kb", "upstream_kb", "epsilon_paper")
    if name == "table1":
        metric, also = "best_accuracy", ("accuracy", *also)
    else:
        metric = "best_balanced_accuracy"
        also = ("hospital", "auroc", "balanced_accuracy", *also)
    return Schemes(
        paper="fl_top",
        name=name,
        lines=lines,
        config_class=FlTopConfig,
        metric=metric,
        also=also,
        measure=functools.partial(measure, table=name),
    )


def _preset(scale: str) -> str:
    """Table 1's; what is smaller than the reduced one changes its settings."""
    return f"fl_top/table1_{'full' if scale == 'full' else 'reduced'}"


def _all(schemes: Sequence[str]) -> list[str]:
    """Without noise, then with."""
    return [*schemes, *(f"{scheme}_dp" for scheme in schemes)]


def _row_settings(
    scheme: str, ratio: float, clip_norm: float | str = "auto"
) -> dict[str, Any]:
    """What is a row's alone; the preset's noise is that of the private ones."""
    found: dict[str, Any] = {"scheme": scheme, "ratio": ratio, "clip_norm": clip_norm}
    if not scheme.endswith("_dp"):
        found["noise_multiplier"] = None
    return found
