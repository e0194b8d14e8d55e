"""Work F: whole training loops, each framework's own, with test and checkpoint."""

import dataclasses
import json
import logging
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import children
import environments
import loop_checks
import measure
import numpy as np
import rows
import works
from measure import Subject
from populations import Population
from recording import Findings

import tasks

# Rounds that are not measured: those that trace, compile and fill caches.
WARM = 5
# Rounds of the checked run, and its clients, all of whom take part in each.
_CHECKED_ROUNDS, _CHECKED_CLIENTS = 3, 20
# Decides which examples go to which client.
_SEED = 1
# The server's z in the measured runs, with which a model still learns.
NOISE_MULTIPLIER = 0.1
# How far the accuracies that subjects end at may be apart.
_AGREE = 0.1
_POLL_SECONDS = 1.0
_OURS = (
    "the loop of scripts/train.py: journal, account, privacy.json, checkpoint, "
    "metrics.csv and TensorBoard"
)
_NATIVE = (
    "tff.simulation.run_training_process with build_fed_eval and "
    "FileProgramStateManager"
)
_LOG = logging.getLogger("tff_hdp_bench")


@dataclasses.dataclass(frozen=True)
class _Federation:
    """A task's clients, as every program gets them.

    Attributes:
      work: What a round of them is.
      task: Arguments of `tasks.load`.
      population: Their examples.
    """

    work: works.Work
    task: dict[str, Any]
    population: Population

    @classmethod
    def of(cls, task: str, work: works.Work, folder: pathlib.Path) -> "_Federation":
        """Loads a task and writes its clients' examples into a new folder."""
        options = {"name": task, "num_clients": work.registered, "seed": _SEED}
        loaded = tasks.load(**options)
        scale = np.float32(tasks.TASKS[task].max_value)
        x, test_x = (
            f.reshape(len(f), -1) / scale
            for f in (loaded.train.features, loaded.test_features)
        )
        population = Population(
            x, loaded.train.labels, loaded.train.offsets, test_x, loaded.test_labels
        )
        population.write(folder)
        work = dataclasses.replace(work, population=str(folder))
        return cls(work, options, population)


class Runs:
    """The measured runs of a subject on a task.

    Args:
      subject: Which.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject, self.peak_rss_mb = subject, 0.0
        self._found: list[Findings] = []

    def add(self, found: Findings, peak_rss_mb: float) -> None:
        """Adds a run."""
        self._found.append(found)
        self.peak_rss_mb = max(self.peak_rss_mb, peak_rss_mb)

    @property
    def accuracies(self) -> list[float]:
        """What each run ended at."""
        return [found.accuracies[-1] for found in self._found]

    @property
    def seconds(self) -> list[np.ndarray]:
        """Of each run's measured rounds, from the end of the one before to its own."""
        return [np.diff(found.ends)[WARM - 1 :] for found in self._found]

    def parts(self) -> dict[str, float] | None:
        """Median seconds of a round's parts and of the rest; None if none are known."""
        names = list(self._found[0].parts)
        if not names:
            return None
        parts = {
            name: np.concatenate([found.parts[name][WARM:] for found in self._found])
            for name in names
        }
        # The test is made beside the next round.
        parts["all else"] = np.concatenate(self.seconds) - parts["round"]
        return {name: float(np.median(seconds)) for name, seconds in parts.items()}


def training_loops(
    names: Sequence[str],
    runtimes: Sequence[str],
    peers: Sequence[str],
    *,
    rounds: int,
    runs: int,
) -> list[rows.Row]:
    """Seconds a round of each subject's own loop, on each task whose data is there.

    Args:
      names: Of the tasks, in `works.LOOPS`.
      runtimes: Native with TFF's loop; others with this project's.
      peers: Names of peers.
      rounds: Measured of every run, after `WARM`.
      runs: How often each subject's run is repeated, taking turns.

    Raises:
      CheckError: If a subject did something else.
      ProgramError: If one failed.
    """
    subjects = [own_subject(runtime) for runtime in runtimes]
    subjects += environments.loop_subjects(peers)
    result = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as folder:
            try:
                whole = _Federation.of(
                    name, works.LOOPS[name], pathlib.Path(folder) / "whole"
                )
            except tasks.DataNotFoundError as error:
                _LOG.warning("%s is left out: %s", name, error)
                continue
            few = _few(name, pathlib.Path(folder) / "few")
            for subject in subjects:
                _check(subject, few)
            done = [Runs(subject) for subject in subjects]
            for _ in range(runs):
                for of in done:
                    of.add(*_measured(of.subject, whole, WARM + rounds))
        _check_agreement(name, done)
        result += _rows(whole.work, name, done)
    return result


def own_subject(runtime: str) -> Subject:
    """TFF's own loop on the native runtime, this project's on others."""
    native = runtime == "native"
    return Subject(
        runtime,
        "fed_avg" if native else "stacked",
        "programs.native_loop" if native else "programs.train_loop",
        options={"runtime": runtime},
        notes=_NATIVE if native else _OURS,
    )


def _few(task: str, folder: pathlib.Path) -> _Federation:
    """A federation whose rounds nothing random decides but the noise."""
    work = dataclasses.replace(
        works.LOOPS[task], clients=_CHECKED_CLIENTS, registered=_CHECKED_CLIENTS
    )
    few = _Federation.of(task, work, folder)
    whole = dataclasses.replace(few.work, batch_size=few.population.largest)
    return dataclasses.replace(few, work=whole)


def _check(subject: Subject, few: _Federation) -> None:
    z = loop_checks.noise_multiplier(few.work, few.population)
    found, _ = _run(subject, few, _CHECKED_ROUNDS, z=z, reads_all=True)
    name = _name(subject, few)
    loop_checks.check_files(name, found, few.population)
    loop_checks.check_rounds(name, found, few.work, few.population, z)
    _LOG.info("%s: %d rounds are the work", name, _CHECKED_ROUNDS)


def _measured(
    subject: Subject, whole: _Federation, rounds: int
) -> tuple[Findings, float]:
    found, peak = _run(subject, whole, rounds, z=NOISE_MULTIPLIER, reads_all=False)
    loop_checks.check_files(_name(subject, whole), found, whole.population)
    return found, peak


def _check_agreement(task: str, done: Sequence[Runs]) -> None:
    reached = {of.subject.program: statistics.mean(of.accuracies) for of in done}
    if max(reached.values()) - min(reached.values()) > _AGREE:
        raise measure.CheckError(
            f"{task}: accuracies {reached}; allowed: {_AGREE} apart at most"
        )


def _name(subject: Subject, federation: _Federation) -> str:
    return f"{subject.program} on {subject.runtime}, {federation.task['name']}"


def _run(
    subject: Subject, federation: _Federation, rounds: int, *, z: float, reads_all: bool
) -> tuple[Findings, float]:
    """One run of a subject's loop in a process of its own, and its peak in MB."""
    with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as out:
        spec = {
            "work": dataclasses.asdict(federation.work),
            "task": federation.task,
            "noise_multiplier": z,
            "rounds": rounds,
            "reads_all": reads_all,
            "out": out,
            **subject.options,
        }
        peak = children.run_to_end(
            [subject.python, "-m", subject.module, json.dumps(spec)],
            cwd=children.FOLDER,
            env=children.environment(),
            poll_seconds=_POLL_SECONDS,
        )
        return Findings.read(pathlib.Path(out)), peak


def _rows(work: works.Work, task: str, done: Sequence[Runs]) -> list[rows.Row]:
    medians = {
        of.subject.runtime: [statistics.median(run) for run in of.seconds]
        for of in done
    }
    result = []
    for of in done:
        subject, seconds = of.subject, np.concatenate(of.seconds).tolist()
        row = rows.Row(
            work="F",
            task=task,
            runtime=subject.runtime,
            program=subject.program,
            clients=work.clients,
            registered=work.registered,
            rounds_per_second=len(seconds) / sum(seconds),
            parts=of.parts(),
            peak_rss_mb=of.peak_rss_mb,
            accuracy=statistics.mean(of.accuracies),
            notes=subject.notes,
            **rows.summary(seconds),
        )
        rows.compare(row, medians[subject.runtime], medians.get("native"))
        rows.print_row(row)
        result.append(row)
    return result
