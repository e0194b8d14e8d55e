"""Many runs of one program side by side. Imports no TensorFlow."""

import contextlib
import itertools
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import tqdm
from absl import flags

from scripts.parts.sweep_job import Job
from scripts.parts.sweep_tables import check_measured
from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime.worker_process import ended_with_this

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
                    left = seconds * (sum(job.rounds for job in jobs) - done)
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
    return sum(min(job.rounds_done, job.rounds) for job in jobs)


def _progress(jobs: Sequence[Job], waiting: Sequence[Job]) -> tqdm.tqdm:
    """A bar over all rounds, whose rate and time left count from now."""
    return tqdm.tqdm(
        total=sum(job.rounds for job in jobs),
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
