"""Many runs of one program side by side, and their tables. Imports no TensorFlow."""

import contextlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import tqdm
from absl import flags

from scripts.parts import curves
from scripts.parts.sweep_job import Job
from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy.accountant import Sound
from tff_hdp.reading import read_json
from tff_hdp.runtime.worker_process import ended_with_this
from tff_hdp.simulation import report

_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0
_OTHERWISE = (
    "has tests of other rounds than its settings ask for, so it ran under others: move "
    "the folder away"
)


def combinations(grids: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of each grid's values.

    Args:
      grids: As `noise_multiplier=0.5,1;privacy=hdp,cdp`: settings with their values.
        The sweep is all of the first grid, then all of the second, and so on.

    Raises:
      ArgumentError: If one has no such form, or two combinations are the same.
    """
    found = []
    for grid in grids:
        axes: dict[str, list[str]] = {}
        for axis in filter(None, grid.split(";")):
            name, equals, values = axis.strip().partition("=")
            ok = equals and name.isidentifier() and name not in axes
            axes[name] = [value.strip() for value in values.split(",")]
            if not ok or not all(axes[name]):
                raise ArgumentError("grid", grid, "name=value,value;name=value,...")
        found += [
            dict(zip(axes, values, strict=True))
            for values in itertools.product(*axes.values())
        ]
    if len({tuple(sorted(each.items())) for each in found}) < len(found):
        raise ArgumentError("grid", ";".join(grids), "different combinations")
    return found


def job_of(
    program: str,
    given: Sequence[str],
    settings: Mapping[str, str],
    path: pathlib.Path,
) -> Job:
    """The run of a program of scripts/, refused here if the program would refuse it.

    Args:
      program: One of `systems.PROGRAMS`.
      given: Its flags.
      settings: What sets the run apart.
      path: The run folder.

    Raises:
      ArgumentError: If the program does not take the flags.
    """
    given = [*given, f"--out={path}"]
    own = flags.FlagValues()
    config_class = systems.config_class(systems.PROGRAMS[program])
    cli.define_flags(config_class, own)
    if len(left := own([program, *given])) > 1:
        raise ArgumentError("argument", left[1], "flags only after --")
    file = pathlib.Path(__file__).parents[1] / f"{program}.py"
    return Job(
        settings=settings,
        config=cli.config_from_flags(config_class, own),
        command=[sys.executable, str(file), *given],
    )


def folder_name(settings: Mapping[str, str]) -> str:
    """A run folder's name that says what sets the run apart."""
    name = "_".join(f"{name}={value}" for name, value in settings.items())
    return re.sub(r"[^\w.=+-]", "_", name) or "run"


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    metric: str | None = None,
    *,
    accounted: bool = False,
) -> list[Job]:
    """Runs what is not finished, some at a time, and shows how far it is.

    A bar on a terminal; elsewhere a line for each run that ends, with the time that is
    left if a round of the others takes as long as those so far.

    Args:
      jobs: Finished ones are left alone, killed ones resume.
      at_once: How many processes.
      metric: What each must measure, if that matters.
      accounted: Whether those are run again that state another account than their
        journal's rounds have, or began with other settings; making it takes as long as
        some rounds.

    Returns:
      Those that failed, in order; why, or the last line of their logs, is shown.

    Raises:
      ArgumentError: If a run that ended has not measured `metric`; the others, which
        would not either, are ended.
    """
    waiting = [
        job
        for job in jobs
        if not (job.is_finished and (not accounted or job.is_accounted))
    ]
    if metric is not None:
        check_measured([job for job in jobs if job not in waiting], metric)
    known = len(jobs) - len(waiting)
    failed: dict[Job, str] = {}
    shown = known
    start, before = time.monotonic(), _rounds_done(jobs)
    with _children() as running, _progress(jobs, waiting) as bar:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                running[job] = _start(job, at_once)
            time.sleep(_POLL_SECONDS)
            for job, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[job]
                if process.returncode != 0:
                    failed[job] = job.last_words
                elif not job.is_finished:
                    failed[job] = _OTHERWISE
                elif metric is not None:
                    check_measured([job], metric)
            ended = len(jobs) - len(waiting) - len(running)
            said = f"{ended}/{len(jobs)} runs, {known} before, {len(failed)} failed"
            done = _rounds_done(jobs)
            if bar.disable:
                if ended > shown:
                    seconds = (time.monotonic() - start) / max(1, done - before)
                    left = seconds * (sum(job.config.rounds for job in jobs) - done)
                    said += f", {tqdm.tqdm.format_interval(left)} left"
                    print(f"sweep: {said}", file=sys.stderr, flush=True)
            elif (done, said) != (bar.n, bar.postfix):
                bar.n = done
                bar.set_postfix_str(said)
            shown = ended
    for job in sorted(failed, key=jobs.index):
        print(f"failed: {job.path}: {failed[job]}", file=sys.stderr)
    return sorted(failed, key=jobs.index)


def _rounds_done(jobs: Sequence[Job]) -> int:
    return sum(min(job.rounds_done, job.config.rounds) for job in jobs)


def _progress(jobs: Sequence[Job], waiting: Sequence[Job]) -> tqdm.tqdm:
    """A bar over all rounds, whose rate and time left count from now."""
    return tqdm.tqdm(
        total=sum(job.config.rounds for job in jobs),
        initial=_rounds_done(jobs),
        unit="round",
        desc="sweep",
        smoothing=0,
        disable=None if waiting else True,
    )


@contextlib.contextmanager
def _children() -> Iterator[dict[Job, subprocess.Popen[bytes]]]:
    """Processes by job; those still there at the end, or at Ctrl-C, are ended."""
    running: dict[Job, subprocess.Popen[bytes]] = {}
    try:
        yield running
    finally:
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for process in running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(job: Job, at_once: int) -> subprocess.Popen[bytes]:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    own = {"TF_NUM_INTRAOP_THREADS": threads, "TF_NUM_INTEROP_THREADS": threads}
    with open(job.log, "ab", buffering=0) as log:
        if log.tell():
            # An attempt that says nothing has not ended with the last one's words.
            log.write(b"sweep: run again\n")
        return subprocess.Popen(
            [*ended_with_this(), *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=own | os.environ,
        )


# Tables ---------------------------------------------------------------------------


def headline(jobs: Sequence[Job]) -> str:
    """The test metric that the runs' system is judged by."""
    path = next(job.path for job in jobs if job.is_finished)
    (metric,) = _values(path / "model/last/card.json", "metric")
    return metric


def measured(job: Job) -> list[str]:
    """What metrics.csv of a finished run has, by round and in numbers."""
    columns = report.read_run(job.path).metrics.select_dtypes("number").columns
    return [name for name in columns if name not in ("round", *job.settings)]


def check_measured(jobs: Sequence[Job], metric: str) -> None:
    """Raises ArgumentError if one of finished runs has not measured a metric."""
    for names in map(measured, jobs):
        if metric not in names:
            raise ArgumentError("metric", metric, ", ".join(names))


def table(jobs: Sequence[Job]) -> pd.DataFrame:
    """One row a finished run: what it was, what it reached, every epsilon.

    An epsilon's column is named by observer and kind of client, and beside it stand
    neighbours, sampling and assumptions in full.
    """
    named = {name for job in jobs for name in job.settings}
    return pd.DataFrame([_row(job, named) for job in jobs if job.is_finished])


def _row(job: Job, named: Collection[str]) -> dict[str, Any]:
    """The row of a run beside others, of which settings are `named`."""
    run = report.read_run(job.path)
    last = run.metrics.iloc[-1].to_dict()
    last |= {k: v for k, v in _epsilons(run).items() if k in last}
    (commit,) = _values(job.path / "config.json", "git_commit")
    row: dict[str, Any] = {
        "digest": job.digest,
        "git_commit": commit,
        "seed": job.config.seed,
        **{k: v for k, v in job.settings.items() if k != "seed"},
        # A setting may have a column of its own: `clip_norm=auto`, and what it was.
        **{f"{k} in the run" if k in named else k: v for k, v in last.items()},
        "delta": job.config.delta,
    }
    best = job.path / "model" / "best" / "card.json"
    if best.exists():
        metric, value, number = _values(best, "metric", "value", "round")
        row |= {f"best_{metric}": value, "best_round": number}
    for account in run.accounts:
        zone = "" if account.zone is None else f".zone{account.zone}"
        level = "" if account.observer != "super_node" else f".level{account.level}"
        name = f"{account.observer}{level}.{account.client_kind}{zone}"
        for field in (
            *("noise_multiplier", "epsilon_rdp", "epsilon_pld", "epsilon_paper"),
            *("neighbours", "sampling", "assumptions"),
        ):
            row[f"{name}.{field}"] = getattr(account, field)
    return row | {"folder": str(job.path)}


def _epsilons(run: report.Run) -> dict[str, float]:
    """The columns of metrics.csv that the account of a run's rounds has too."""
    receivers = [row for row in run.accounts if row.observer == "released_model"]
    columns: dict[str, Sound | None] = {"epsilon": None, "epsilon_rdp": "rdp"}
    return {
        name: max(row.epsilon(method) for row in receivers)
        for name, method in columns.items()
        if receivers
    }


def _values(path: pathlib.Path, *names: str) -> list[Any]:
    """What a file of a finished run has by these names; FileError unless it has all."""
    fields = read_json(path)
    if not isinstance(fields, dict) or not fields.keys() >= set(names):
        raise FileError(path, f"is not as the run wrote it: no {', '.join(names)}")
    return [fields[name] for name in names]


def summary(frame: pd.DataFrame, settings: Sequence[str], metric: str) -> pd.DataFrame:
    """Mean and spread of a metric over the seeds of every combination.

    Args:
      frame: Of `table`.
      settings: The columns that tell combinations apart.
      metric: The column to sum up.
    """
    by = [frame[name].fillna("-") for name in settings] or [frame["digest"]]
    grouped = frame.groupby(by, sort=False)[metric]
    return grouped.agg(["count", "mean", "std", "min", "max"]).reset_index()


def draw(
    jobs: Sequence[Job], settings: Sequence[str], metric: str, path: pathlib.Path
) -> None:
    """A metric over rounds: a line a value of the first setting, a panel for the rest.

    Args:
      jobs: Of which the finished ones are drawn; a line is the mean over seeds, its
        band one standard deviation.
      settings: What tells combinations apart, the lines' first.
      metric: A column of metrics.csv.
      path: The picture to write.
    """
    panels: dict[str, dict[str, list[pd.Series]]] = {}
    for job in jobs:
        if job.is_finished:
            line, *rest = (f"{s}={job.settings.get(s, '-')}" for s in settings)
            lines = panels.setdefault(", ".join(rest), {})
            lines.setdefault(line, []).append(series(job, metric))
    curves.draw(
        [curves.Panel(lines, title) for title, lines in panels.items()],
        path,
        ylabel=f"test {metric}",
    )


def series(job: Job, metric: str) -> pd.Series:
    """A metric of a finished run by round, where it was tested."""
    return report.read_run(job.path).metrics.set_index("round")[metric].dropna()
