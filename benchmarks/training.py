"""Work E: whole runs of scripts/train.py, to the same accuracy."""

import csv
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import processes
import rows

_ROOT = pathlib.Path(__file__).parents[1]
_CLIENTS = 50
_FLAGS = (
    "--task=digits",
    "--privacy=hdp",
    "--zones=5",
    f"--clients_per_round={_CLIENTS}",
    "--client_learning_rate=0.1",
    "--noise_multiplier=0.5",
    "--clip_norm=0.5",
    "--seed=1",
)
_POLL_SECONDS = 0.1


class AccuracyError(RuntimeError):
    """A run did not reach the accuracy it is timed for."""


def whole_runs(
    runtimes: Sequence[str], *, training_rounds: int, accuracy: float, runs: int
) -> list[rows.Row]:
    """Seconds from start to end of a training run, imports and account included.

    Args:
      runtimes: Each with clients alone (native only) and in stacks.
      training_rounds: Rounds of every run.
      accuracy: What the test accuracy after them must reach.
      runs: How often each is repeated, taking turns.

    Raises:
      AccuracyError: If a run falls short of `accuracy`.
    """
    subjects = [("stacked", runtime) for runtime in runtimes]
    if "native" in runtimes:
        subjects.insert(0, ("alone", "native"))
    seconds: dict[tuple[str, str], list[float]] = {s: [] for s in subjects}
    peaks = dict.fromkeys(subjects, 0.0)
    reached = {s: [] for s in subjects}
    for _ in range(runs):
        for subject in subjects:
            taken, peak, final = _run(*subject, training_rounds)
            if final < accuracy:
                raise AccuracyError(
                    f"{subject}: accuracy {final:.3f} after {training_rounds} rounds; "
                    f"allowed: {accuracy} or more"
                )
            seconds[subject].append(taken)
            peaks[subject] = max(peaks[subject], peak)
            reached[subject].append(final)
    baseline = seconds.get(("alone", "native"))
    result = []
    for program, runtime in subjects:
        subject = (program, runtime)
        row = rows.Row(
            work="E",
            runtime=runtime,
            program=program,
            privacy="hdp",
            clients=_CLIENTS,
            peak_rss_mb=peaks[subject],
            notes=(
                f"whole run of {training_rounds} rounds on digits; accuracy "
                f"{min(reached[subject]):.3f}..{max(reached[subject]):.3f}"
            ),
            **rows.summary(seconds[subject]),
        )
        rows.compare(row, seconds[subject], baseline)
        rows.print_row(row)
        result.append(row)
    return result


def _run(program: str, runtime: str, rounds: int) -> tuple[float, float, float]:
    """Seconds, peak resident MB summed over processes, and final accuracy."""
    with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as folder:
        out = pathlib.Path(folder) / "run"
        command = [sys.executable, str(_ROOT / "scripts" / "train.py"), *_FLAGS]
        command += [f"--runtime={runtime}", f"--rounds={rounds}", f"--out={out}"]
        if program == "alone":
            command.append("--cohort_chunk=0")
        log_path = pathlib.Path(folder) / "log"
        peak = 0
        start = time.perf_counter()
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT)
        while process.poll() is None:
            tree = processes.tree(process.pid)
            peak = max(peak, sum(map(processes.peak_kb, tree)))
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise RuntimeError(
                f"{' '.join(command)} failed:\n{log_path.read_text()[-2000:]}"
            )
        return seconds, peak / 1024, _last_accuracy(out)


def _last_accuracy(out: pathlib.Path) -> float:
    with (out / "metrics.csv").open() as file:
        return float(list(csv.DictReader(file))[-1]["accuracy"])
