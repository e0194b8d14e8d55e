"""Tables 1 and 2 of the FL-TOP paper and its Figure 1: one run a row.

    python scripts/papers/fl_top/reproduce.py --scale=reduced

Runs the presets scripts/papers/fl_top/table*.flags with every --schemes and --ratios
(or resumes them) and leaves, in a folder for each table under --out, a run folder a
row, table.txt, table.csv, a figure of the test metric and figure1.png. Takes every
flag of scripts/fl_top.py, which then counts for all rows instead of the presets'.
"""

import dataclasses
import pathlib
import secrets
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.fl_top.config import FlTopConfig

ALL = FlTopConfig.choices["scheme"]
# The preset of a table at a scale; the second table's task is small as it is.
PRESETS = {
    "full": {"table1": "fl_top/table1_full", "table2": "fl_top/table2"},
    "reduced": {"table1": "fl_top/table1_reduced", "table2": "fl_top/table2"},
}
# The paper's r; its 0.1 % would leave the second table's small model one weight.
PAPER_RATIOS = {"table1": (0.005, 0.05, 0.1), "table2": (0.01, 0.05, 0.1)}

SCALE = flags.DEFINE_enum("scale", "reduced", list(PRESETS), "Of Table 1's model.")
WHAT = flags.DEFINE_list("what", list(PAPER_RATIOS), "Which tables.")
SCHEMES = flags.DEFINE_list("schemes", list(ALL), "Schemes, in the table's order.")
RATIOS = flags.DEFINE_list(
    "ratios", None, "Every r, for all schemes but FL-STD; default: the paper's."
)


def rows(preset: FlTopConfig, ratios: tuple[float, ...]) -> list[FlTopConfig]:
    """The config of every row: by ratio, then scheme, the uncompressed last."""
    compressed = [s for s in SCHEMES.value if not s.startswith("fl_std")]
    pairs = [(scheme, ratio) for ratio in ratios for scheme in compressed]
    pairs += [(s, 1.0) for s in SCHEMES.value if s.startswith("fl_std")]
    return [row(preset, scheme, ratio) for scheme, ratio in pairs]


def row(preset: FlTopConfig, scheme: str, ratio: float) -> FlTopConfig:
    """The config of one row: the table's, with its scheme and ratio."""
    changes = {"scheme": scheme, "ratio": ratio}
    changes["out"] = str(pathlib.Path(preset.out) / f"{scheme}_{ratio:g}")
    if not scheme.endswith("_dp"):
        changes |= {"noise_multiplier": None, "clip_norm": "auto"}
    return dataclasses.replace(preset, **changes)


def ratios_of(part: str) -> tuple[float, ...]:
    """The ratios asked for, or the paper's."""
    if RATIOS.value is None:
        return PAPER_RATIOS[part]
    try:
        return tuple(float(ratio) for ratio in RATIOS.value)
    except ValueError as error:
        raise ArgumentError("ratios", RATIOS.value, "numbers in (0, 1]") from error


def main(argv: list[str]) -> int:
    """Runs every row of the tables, then prints and writes them."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", WHAT.value, PAPER_RATIOS)
    cli.check_choices("schemes", SCHEMES.value, ALL)
    from scripts.papers import presets

    given = presets.given(FlTopConfig)
    for name in {"scheme", "ratio"} & given.keys():
        raise ArgumentError(name, given[name], f"--{name}s, for all rows")
    out = pathlib.Path(given.pop("out", "runs/fl_top"))
    tables = {}
    for part, name in PRESETS[SCALE.value].items():
        if part in WHAT.value:
            preset = presets.read(name, FlTopConfig, **given, out=str(out / part))
            tables[out / part] = rows(preset, ratios_of(part))
    for folder, configs in tables.items():
        reproduce(folder, configs)
    return 0


def reproduce(folder: pathlib.Path, configs: list[FlTopConfig]) -> None:
    """Runs the rows of one table, then prints and writes it."""
    from scripts.papers.fl_top import figures
    from tff_hdp.simulation import experiment, report
    from tff_hdp.systems.fl_top import results

    folder.mkdir(parents=True, exist_ok=True)
    seed = partition_seed(folder, configs[0])
    finished = {config: experiment.run(config, seed) for config in configs}
    paths = [run.path for run in finished.values()]
    table = results.table(paths)
    table.to_csv(folder / "table.csv", index=False)
    text = results.table_text(table)
    (folder / "table.txt").write_text(text + "\n")
    judged = next(iter(finished.values())).headline
    runs = [report.read_run(path) for path in paths]
    report.comparison_figure(runs, folder / f"{judged}.png", judged)
    print(f"\n{text}\ntable: {folder / 'table.txt'}")
    std = [c for c in configs if c.scheme == "fl_std"]
    top = [c for c in configs if c.scheme == "fl_top"]
    if std and top:
        spread = figures.weights_figure(
            finished[std[0]].path, finished[top[0]].path, folder / "figure1.png"
        )
        print(f"standard deviation of the Top-K weights: {spread}")


def partition_seed(folder: pathlib.Path, config: RunConfig) -> int:
    """One split, one public batch and the same random subsets for every row."""
    path = folder / "partition_seed"
    if not path.exists():
        drawn = secrets.randbits(32) if config.seed is None else config.seed
        path.write_text(f"{drawn}\n")
    return int(path.read_text())


if __name__ == "__main__":
    cli.define_flags(FlTopConfig)
    sys.exit(cli.run(main))
