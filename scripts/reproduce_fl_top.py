r"""Regenerates a table of the FL-TOP paper, and its Figure 1: one run a row.

    python scripts/reproduce_fl_top.py \
        --flagfile=scripts/flags/fl_top_table1_reduced.flags
    python scripts/reproduce_fl_top.py \
        --flagfile=scripts/flags/fl_top_table2.flags \
        --ratios=0.01,0.05,0.1

Takes every flag of scripts/fl_top.py; scheme and ratio of each row come from
--schemes and --ratios. Leaves a run folder a row, table.txt, table.csv, a figure of
the test metric and figure1.png in --out; the same command again resumes.
"""

import dataclasses
import pathlib
import secrets
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.systems.fl_top_config import FlTopConfig

ALL = FlTopConfig.choices["scheme"]
SCHEMES = flags.DEFINE_list("schemes", list(ALL), "Schemes, in the table's order.")
RATIOS = flags.DEFINE_list(
    "ratios", ["0.005", "0.05", "0.1"], "Every r, for all schemes but FL-STD."
)


def rows() -> list[FlTopConfig]:
    """The config of every row: by ratio, then scheme, the uncompressed last."""
    for name in SCHEMES.value:
        if name not in ALL:
            raise cli.UsageError(f"--schemes is {name}; allowed: {', '.join(ALL)}")
    try:
        ratios = [float(ratio) for ratio in RATIOS.value]
    except ValueError as error:
        raise cli.UsageError(
            f"--ratios is {','.join(RATIOS.value)}; allowed: numbers in (0, 1]"
        ) from error
    compressed = [s for s in SCHEMES.value if not s.startswith("fl_std")]
    pairs = [(scheme, ratio) for ratio in ratios for scheme in compressed]
    pairs += [(s, 1.0) for s in SCHEMES.value if s.startswith("fl_std")]
    if not pairs:
        raise cli.UsageError("--schemes is empty; allowed: at least one of them")
    return [row(scheme, ratio) for scheme, ratio in pairs]


def row(scheme: str, ratio: float) -> FlTopConfig:
    """The config of one row: the flags, with its scheme and ratio."""
    names = [field.name for field in dataclasses.fields(FlTopConfig)]
    values = {name: flags.FLAGS[name].value for name in names}
    if not scheme.endswith("_dp"):
        values |= {"noise_multiplier": None, "clip_norm": "auto"}
    out = table_folder() / f"{scheme}_{ratio:g}"
    return FlTopConfig(**values | {"scheme": scheme, "ratio": ratio, "out": str(out)})


def table_folder() -> pathlib.Path:
    """Where the table and its runs go."""
    return pathlib.Path(flags.FLAGS.out or f"runs/fl_top_{flags.FLAGS.task}")


def main(argv: list[str]) -> int:
    """Runs every row, then prints and writes the table."""
    cli.refuse_arguments(argv)
    configs, folder = rows(), table_folder()
    from tff_hdp.simulation import experiment, report
    from tff_hdp.simulation.systems import fl_top_table

    folder.mkdir(parents=True, exist_ok=True)
    seed = partition_seed(folder, configs[0])
    results = {config: experiment.run(config, seed) for config in configs}
    paths = [result.path for result in results.values()]
    table = fl_top_table.table(paths)
    table.to_csv(folder / "table.csv", index=False)
    text = fl_top_table.table_text(table)
    (folder / "table.txt").write_text(text + "\n")
    judged = next(iter(results.values())).headline
    runs = [report.read_run(path) for path in paths]
    report.comparison_figure(runs, folder / f"{judged}.png", judged)
    print(f"\n{text}\ntable: {folder / 'table.txt'}")
    std = [c for c in configs if c.scheme == "fl_std"]
    top = [c for c in configs if c.scheme == "fl_top"]
    if std and top:
        spread = fl_top_table.weights_figure(
            results[std[0]].path, results[top[0]].path, folder / "figure1.png"
        )
        print(f"standard deviation of the Top-K weights: {spread}")
    return 0


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
