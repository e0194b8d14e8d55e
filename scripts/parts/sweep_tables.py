"""What came of a sweep's runs: tables, and lines to draw. Imports no TensorFlow."""

import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd

from scripts.parts import curves
from scripts.parts.sweep_job import Job
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy.accountant import Sound
from tff_hdp.reading import read_json
from tff_hdp.simulation import report


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
