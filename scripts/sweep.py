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
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError

if TYPE_CHECKING:
    from scripts.parts.sweep_runs import Job


def define_flags() -> None:
    """Defines what is run, how often, and where."""
    flags.DEFINE_enum(
        "program", "train", list(systems.PROGRAMS), "The program in scripts/ to run."
    )
    flags.DEFINE_multi_string(
        "grid",
        [],
        "Settings and their values, as name=value,value;name=value: every combination "
        "is run. Given again, those of the other grid too.",
    )
    flags.DEFINE_list("seeds", ["0"], "One run of every combination each.")
    flags.DEFINE_integer(
        "jobs",
        max(1, (os.cpu_count() or 1) // 2),
        "Processes at a time.",
        lower_bound=1,
    )
    flags.DEFINE_string("out", "runs/sweep", "Folder of the run folders and tables.")
    flags.DEFINE_string(
        "metric", None, "Column of metrics.csv to sum up; None takes the system's own."
    )


def main(words: list[str]) -> int:
    """Runs what is left to run, then writes the tables."""
    from scripts.parts import sweep_runs as sweep
    from tff_hdp.files import alone_in

    given = flags.FLAGS
    seeds = given.seeds
    cli.check_seeds(seeds)
    settings = sweep.combinations(given.grid or [""])
    names = list(dict.fromkeys(name for each in settings for name in each))
    for name in ("seed", "out"):
        own = [word for word in words if re.match(rf"--?{name}\b", word)]
        if own or name in names:
            raise ArgumentError(
                name, own or given.grid, "this program's own flag, nowhere else"
            )
    folder = pathlib.Path(given.out)
    jobs: list[Job] = []
    for each in (each | {"seed": seed} for each in settings for seed in seeds):
        asked = [*words, *(f"--{name}={value}" for name, value in each.items())]
        path = folder / sweep.folder_name(each)
        jobs.append(sweep.job_of(given.program, asked, each, path))
    _check_apart(jobs)
    folder.mkdir(parents=True, exist_ok=True)
    # Of two at once each would have runs fail that the other is at.
    with alone_in(folder, wait=False):
        failed = sweep.run_jobs(jobs, given.jobs, given.metric, accounted=True)
        done = [job for job in jobs if job not in failed and job.is_finished]
        if not done:
            return 1
        _write_tables(done, names, folder)
    return 1 if failed else 0


def _write_tables(
    jobs: "Sequence[Job]", names: Sequence[str], folder: pathlib.Path
) -> None:
    """Writes and prints what came of finished runs, which `names` tell apart."""
    from scripts.parts import sweep_tables as tables
    from tff_hdp.files import write_text
    from tff_hdp.simulation import record

    given = flags.FLAGS
    frame = tables.table(jobs)
    # Beside the seed, hidden cohorts' epsilons bound nothing.
    said = [record.SEEDED.format(seed=seed) for seed in frame["seed"]]
    frame.insert(frame.columns.get_loc("seed") + 1, "seed fixes", said)
    metric = given.metric or tables.headline(jobs)
    write_text(folder / "runs.csv", frame.to_csv(index=False))
    tables.check_measured(jobs, metric)
    summed = tables.summary(frame, names, metric)
    write_text(folder / "summary.csv", summed.to_csv(index=False))
    tables.draw(jobs, names or ["seed"], metric, folder / f"{metric}.png")
    print(f"test {metric} after the last round, over seeds {','.join(given.seeds)}")
    print(summed.to_string(index=False, float_format="{:.4g}".format))
    print(f"table:  {folder / 'runs.csv'}\nfigure: {folder / f'{metric}.png'}")


def _check_apart(jobs: "Sequence[Job]") -> None:
    """Refuses runs with one folder, or with all settings, in common.

    One would go on where the other ended, or train the same again.
    """
    for what, of in (
        ("folder", lambda job: job.path),
        ("settings", lambda job: repr(job.config.to_dict() | {"out": None})),
    ):
        seen: dict[Any, Job] = {}
        for job in jobs:
            other = seen.setdefault(of(job), job)
            if other is not job:
                both = " and ".join(
                    " ".join(f"{name}={value}" for name, value in each.settings.items())
                    for each in (other, job)
                )
                allowed = f"runs that differ; {both} have the same {what}"
                raise ArgumentError("grid", flags.FLAGS.grid, allowed)


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags, takes_words=True))
