"""Work E: whole runs of scripts/train.py, to the same accuracy."""

import csv
import dataclasses
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import children
import measure
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


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of the script.

    Attributes:
      seconds: From its start to its end.
      round_seconds: Of its rounds, together.
      peak_rss_mb: Each of its processes at its peak, summed.
      accuracy: On the test set, after the last round.
    """

    seconds: float
    round_seconds: float
    peak_rss_mb: float
    accuracy: float


def whole_runs(
    runtimes: Sequence[str], *, training_rounds: int, accuracy: float, runs: int
) -> list[rows.Row]:
    """Seconds from start to end of a training run, imports and account included.

    Args:
      runtimes: Native with each client alone, as in TFF; others with stacks.
      training_rounds: Rounds of every run.
      accuracy: What the test accuracy after them must reach.
      runs: How often each is repeated, taking turns.

    Raises:
      CheckError: If a run falls short of `accuracy`.
      ProgramError: If a run fails.
    """
    subjects = [
        ("alone" if runtime == "native" else "stacked", runtime) for runtime in runtimes
    ]
    done: dict[tuple[str, str], list[Run]] = {subject: [] for subject in subjects}
    for _ in range(runs):
        for subject in subjects:
            run = _run(*subject, training_rounds)
            if not run.accuracy >= accuracy:
                raise measure.CheckError(
                    f"{' on '.join(subject)}: accuracy {run.accuracy:.3f} after "
                    f"{training_rounds} rounds; allowed: {accuracy} or more"
                )
            done[subject].append(run)
    seconds = {s: [run.seconds for run in done[s]] for s in subjects}
    result = []
    for program, runtime in subjects:
        own = done[program, runtime]
        reached = [run.accuracy for run in own]
        in_rounds = statistics.median(run.round_seconds for run in own)
        row = rows.Row(
            work="E",
            runtime=runtime,
            program=program,
            privacy="hdp",
            clients=_CLIENTS,
            peak_rss_mb=max(run.peak_rss_mb for run in own),
            notes=(
                f"on {runtime}, its {training_rounds} rounds take {in_rounds:.1f} s of "
                f"it; accuracy {min(reached):.3f}..{max(reached):.3f}"
            ),
            **rows.summary(seconds[program, runtime]),
        )
        rows.compare(row, seconds[program, runtime], seconds.get(("alone", "native")))
        rows.print_row(row)
        result.append(row)
    return result


def _run(program: str, runtime: str, rounds: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as folder:
        out = pathlib.Path(folder) / "run"
        command = [sys.executable, str(_ROOT / "scripts" / "train.py"), *_FLAGS]
        command += [f"--runtime={runtime}", f"--rounds={rounds}", f"--out={out}"]
        if program == "alone":
            command.append("--cohort_chunk=0")
        start = time.perf_counter()
        peak = children.run_to_end(command, cwd=_ROOT, poll_seconds=_POLL_SECONDS)
        seconds = time.perf_counter() - start
        with (out / "metrics.csv").open() as file:
            metrics = list(csv.DictReader(file))
        return Run(
            seconds=seconds,
            round_seconds=sum(float(row["round_seconds"]) for row in metrics),
            peak_rss_mb=peak,
            accuracy=float(metrics[-1]["accuracy"]),
        )
