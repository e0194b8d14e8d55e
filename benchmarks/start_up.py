"""Times what somebody waits for who starts: the demo's first round, and all of it.

    python benchmarks/start_up.py --csv=docs/results/benchmarks/start_up.csv
    python benchmarks/start_up.py --earlier=CHECKOUT --csv=FILE

`scripts/demo.py` as `make demo` calls it once everything is installed, in a new folder
and a new process each time. The first round is there when its row is in metrics.csv.
--earlier is a checkout of another version, run in the same environment, in turns.
Beside them stands what importing TensorFlow Federated takes, as nobody can do without.
"""

import collections
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

ROOT = pathlib.Path(__file__).resolve().parents[1]
_LOOK_AGAIN_SECONDS = 0.01


def define_flags() -> None:
    """Defines the versions, and how often each is timed."""
    flags.DEFINE_string("earlier", None, "A checkout of an earlier version.")
    flags.DEFINE_integer("runs", 3, "Of each version.", lower_bound=1)
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Times the versions in turns, and prints a row for each."""
    import machine

    machine.hide_gpus()
    f = flags.FLAGS
    versions = {"this": ROOT}
    if f.earlier is not None:
        versions["earlier"] = pathlib.Path(f.earlier).resolve()
        ok = (versions["earlier"] / "scripts" / "demo.py").is_file()
        if not ok:
            raise ArgumentError("earlier", f.earlier, "a checkout with scripts/demo.py")
    seconds: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for turn in range(1 + f.runs):
        took = {("TFF alone", "import"): imported()}
        for name, checkout in versions.items():
            both = zip(("first round", "whole demo"), timed(checkout), strict=True)
            took |= {(name, what): one for what, one in both}
        if turn:  # the first compiles Python's files
            for key, one in took.items():
                seconds[key].append(one)
    rows = [
        {
            "version": name,
            "commit": commit_of(versions[name]) if name in versions else "",
            "what": what,
            "runs": f.runs,
            "seconds": statistics.median(took),
            "least": min(took),
            "most": max(took),
        }
        for (name, what), took in seconds.items()
    ]
    machine.report(rows, f.csv, key=["version", "what"])
    return 0


def imported() -> float:
    """Seconds of a process that imports TensorFlow Federated and nothing else."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import tensorflow_federated"],
        env=environment_of(ROOT),
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began


def timed(checkout: pathlib.Path) -> tuple[float, float]:
    """Seconds to the first round's row, and to the end, of a demo.

    Raises:
      subprocess.CalledProcessError: If it fails; what it said is shown.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        command = [sys.executable, "scripts/demo.py", f"--out={out / 'demo'}"]
        with (out / "said").open("w+") as said:
            began = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=checkout,
                env=environment_of(checkout),
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            try:
                first = None
                while process.poll() is None:
                    if first is None and _has_a_round(out / "demo"):
                        first = time.monotonic() - began
                    time.sleep(_LOOK_AGAIN_SECONDS)
            finally:
                process.kill()
            whole = time.monotonic() - began
            if process.returncode or first is None:
                print((out / "said").read_text(), file=sys.stderr)
                raise subprocess.CalledProcessError(process.returncode, command)
    return first, whole


def environment_of(checkout: pathlib.Path) -> dict[str, str]:
    """The environment in which a checkout's own modules are imported."""
    found = {**os.environ, "PYTHONPATH": str(checkout)}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile
    return found


def commit_of(checkout: pathlib.Path) -> str:
    """The checkout's commit; `unknown` outside of git."""
    done = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def _has_a_round(folder: pathlib.Path) -> bool:
    return any(
        path.read_text().count("\n") >= 2 for path in folder.glob("*/metrics.csv")
    )


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
