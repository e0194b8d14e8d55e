"""How long one run of each of the neighbours' presets takes at the papers' scale.

    python benchmarks/presets.py --csv=docs/results/benchmarks/presets.csv

Every scripts/papers/{gfl,hfl_dp,fl_top,udp_alg}/*.flags is run for some rounds as its
script runs it, tests, journal and checkpoints included, in a process of its own. The
median round times the rounds, and what went before the first, is the estimate.
Needs the tasks' data: --data_dir or TFF_HDP_DATA; what has none is left out, as are
presets with names in `_small` or `_reduced`.
"""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import neighbour_works
from absl import flags
from clock import Clock

import tasks
from tff_hdp import cli

_SYSTEMS = {
    "gfl": "gfl",
    "hfl_dp": "hfl_dp",
    "fl_top": "fl_top",
    "udp_alg": "udp_hypernet",
}
# Where the preset leaves its scheme open: the paper's own.
_OPEN = {"fl_top": {"scheme": "fl_top_dp", "noise_multiplier": 1.0}}
# Rows of a preset's table whose rounds cost otherwise.
_ALSO = {
    "fl_top/table1_full": {
        "r = 10 %": {"ratio": 0.1},
        "all weights": {"scheme": "fl_std_dp", "ratio": 1.0},
    }
}


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("papers", _SYSTEMS, _SYSTEMS)
    flags.DEFINE_integer("rounds", 4, "Of each preset.", lower_bound=3)
    flags.DEFINE_string("preset", None, "Only this, and print what a caller reads.")
    flags.DEFINE_string("data_dir", None, "As in scripts/train.py.")
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Prints a row for each preset, and the sum."""
    f = flags.FLAGS
    if f.preset is not None:
        try:
            found = timed(f.preset, f.rounds)
        except tasks.DataNotFoundError as error:
            found = {"left_out": str(error)}
        print(json.dumps(found))
        return 0
    import machine

    machine.hide_gpus()
    rows = []
    for preset in _presets(f.papers):
        command = [sys.executable, __file__, f"--preset={preset}"]
        command += [f"--rounds={f.rounds}", f"--data_dir={f.data_dir or ''}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
            return 1
        row = json.loads(done.stdout.splitlines()[-1])
        if "left_out" in row:
            print(f"{preset} left out: {row['left_out']}", flush=True)
            continue
        rows.append(row)
        print(row, flush=True)
    if not rows:
        raise tasks.DataNotFoundError("no preset has its data")
    hours = sum(row["minutes"] for row in rows) / 60
    machine.report(rows, f.csv, key=["preset"])
    print(f"one run of each: {hours:.1f} h")
    return 0


def _presets(papers: Sequence[str]) -> list[str]:
    folder = pathlib.Path(__file__).parents[1] / "scripts" / "papers"
    names = (
        f"{paper}/{path.stem}"
        for paper in papers
        for path in sorted((folder / paper).glob("*.flags"))
        if not path.stem.endswith(("_small", "_reduced"))
    )
    return [
        row
        for name in names
        for row in (name, *(f"{name}, {other}" for other in _ALSO.get(name, ())))
    ]


def timed(preset: str, rounds: int) -> dict[str, Any]:
    """Runs some rounds of a preset.

    Args:
      preset: One of `_presets`.
      rounds: How many.
    """
    from tff_hdp.simulation import experiment

    name, _, other = preset.partition(", ")
    paper = name.split("/")[0]
    changes = _OPEN.get(paper, {}) | (_ALSO[name][other] if other else {})
    work = neighbour_works.Neighbour(preset, _SYSTEMS[paper], name, changes)
    whole = work.config(noisy=True)
    clock = Clock(time.monotonic)
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        data = flags.FLAGS.data_dir or None
        config = work.config(noisy=True, rounds=rounds, out=out, data_dir=data)
        began = time.monotonic()
        experiment.run(config, trackers=[clock])
    # A round is released when the next one has been computed; the last at once.
    a_round = statistics.median(b - a for a, b in itertools.pairwise(clock.times[:-1]))
    before = clock.times[0] - began - a_round
    return {
        "preset": preset,
        "rounds": whole.rounds,
        "seconds a round": a_round,
        "seconds before": before,
        "minutes": (before + whole.rounds * a_round) / 60,
    }


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
