r"""Runs a program over a grid of settings and seeds, side by side, and tabulates it.

    python scripts/sweep.py --program=train --grid="noise_multiplier=0.5,1,2" \
        --seeds=0,1,2 --out=runs/sweep -- --task=digits --zones=5 --rounds=60

What follows `--` goes to every run. The same command again leaves finished runs alone
and resumes those that were cut short; Ctrl-C ends them all. Leaves a run folder each,
runs.csv (one row a run), summary.csv (mean and spread over seeds) and a figure. Seeds
fix partition, cohorts and initial weights, never the noise; seeded runs are for
studies.
"""

import os
import pathlib
import sys
from typing import TYPE_CHECKING

from absl import flags

from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError

if TYPE_CHECKING:
    from scripts.sweep_runs import Job

PROGRAM = flags.DEFINE_enum(
    "program", "train", list(systems.PROGRAMS), "The program in scripts/ to run."
)
GRID = flags.DEFINE_multi_string(
    "grid",
    [],
    "Settings and their values, as name=value,value;name=value: every combination "
    "is run. Given again, those of the other grid too.",
)
SEEDS = flags.DEFINE_list("seeds", ["0"], "One run of every combination each.")
JOBS = flags.DEFINE_integer(
    "jobs", max(1, (os.cpu_count() or 1) // 2), "Processes at a time.", lower_bound=1
)
OUT = flags.DEFINE_string("out", "runs/sweep", "Folder of the run folders and tables.")
METRIC = flags.DEFINE_string(
    "metric", None, "Column of metrics.csv to sum up; None takes the system's own."
)


def main(argv: list[str]) -> int:
    """Runs what is left to run, then writes the tables."""
    from scripts import sweep_runs as sweep

    seeds = SEEDS.value
    if len(set(seeds)) < len(seeds) or not all(seed.isdigit() for seed in seeds):
        raise ArgumentError("seeds", seeds, "different whole numbers")
    settings = sweep.combinations(GRID.value or [""])
    jobs = [job(each | {"seed": seed}, argv[1:]) for each in settings for seed in seeds]
    failed = sweep.run_jobs(jobs, JOBS.value)
    for each in failed:
        said = each.log.read_text(errors="replace").strip().splitlines()
        print(f"failed: {each.path}: {said[-1] if said else ''}", file=sys.stderr)
    frame = sweep.table(jobs)
    if frame.empty:
        return 1
    folder = pathlib.Path(OUT.value)
    metric = METRIC.value or sweep.headline(jobs)
    if metric not in frame:
        raise ArgumentError("metric", metric, ", ".join(frame.columns))
    names = list(dict.fromkeys(name for each in settings for name in each))
    frame.to_csv(folder / "runs.csv", index=False)
    summed = sweep.summary(frame, names, metric)
    summed.to_csv(folder / "summary.csv", index=False)
    sweep.draw(jobs, names or ["seed"], metric, folder / f"{metric}.png")
    print(f"test {metric} after the last round, over seeds {','.join(seeds)}")
    print(summed.to_string(index=False, float_format="{:.4g}".format))
    print(f"table:  {folder / 'runs.csv'}\nfigure: {folder / f'{metric}.png'}")
    return 1 if failed else 0


def job(settings: dict[str, str], fixed: list[str]) -> "Job":
    """The run with these settings, refused here if the program would refuse it."""
    from scripts import sweep_runs as sweep

    out = pathlib.Path(OUT.value) / sweep.folder_name(settings)
    given = [*fixed, *(f"--{k}={v}" for k, v in settings.items()), f"--out={out}"]
    own = flags.FlagValues()
    config_class = systems.config_class(systems.PROGRAMS[PROGRAM.value])
    cli.define_flags(config_class, own)
    if len(left := own([PROGRAM.value, *given])) > 1:
        raise ArgumentError("argument", left[1], "flags only after --")
    program = pathlib.Path(__file__).with_name(f"{PROGRAM.value}.py")
    return sweep.Job(
        settings=settings,
        config=cli.config_from_flags(config_class, own),
        command=[sys.executable, str(program), *given],
    )


if __name__ == "__main__":
    sys.exit(cli.run(main))
