"""A long run of small rounds through elections and every fault, watched.

    python scripts/soak.py --rounds=500

Fails unless the model stays finite, no process is left and, from 500 rounds on,
memory stops growing.
"""

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

LEAST_ROUNDS = 30
# Memory settles over the first hundred rounds or two: fewer rounds than these tell
# nothing of what would go on growing.
MEMORY_ROUNDS = 500
# Some is left: oneDNN keeps what it compiled for a shape, of which random cohorts have
# many, up to a bound.
ALLOWED_GROWTH = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def define_flags() -> None:
    """Defines how long to run, and where."""
    flags.DEFINE_integer("rounds", 500, f"Rounds, {LEAST_ROUNDS} or more.")
    flags.DEFINE_enum("privacy", "hdp", ("none", "cdp", "hdp", "ldp"), "Who noises.")
    flags.DEFINE_enum("runtime", "in_process", ("in_process", "native"), "Where.")
    flags.DEFINE_enum("election_protocol", "pvss", ("pvss", "drawn"), "Elections.")
    flags.DEFINE_string("json", None, "Also write the findings to this file.")


def resident_bytes() -> int:
    """Resident memory of this process and its descendants."""
    total = 0
    for process in (os.getpid(), *descendants()):
        try:
            fields = pathlib.Path(f"/proc/{process}/statm").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += int(fields[1]) * PAGE
    return total


def descendants() -> list[int]:
    """Process ids of all children, theirs and so on."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        for task in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += children
            waiting += children
    return found


class Memory:
    """A tracker that notes resident memory, in bytes, at every round's release."""

    def __init__(self) -> None:
        self.by_round: dict[int, int] = {}

    async def release(self, value: object, key: int) -> None:
        """Notes it of the round `key`."""
        del value
        self.by_round[key] = resident_bytes()


def soak(rounds: int, out: str) -> dict[str, Any]:
    """Runs and returns what was seen; see `main` for what it must be."""
    import numpy as np
    import pandas as pd

    from tff_hdp.simulation import experiment
    from tff_hdp.systems.hdp.config import HdpConfig

    values = flags.FLAGS
    noise = None if values.privacy == "none" else 1.0
    config = HdpConfig(
        task="digits",
        privacy=values.privacy,
        noise_multiplier=noise,
        clip_norm=0.5,
        zones=5,
        clients_per_round=25,
        local_epochs=1,
        rounds=rounds,
        runtime=values.runtime,
        elect_super_nodes="persistent",
        election_protocol=values.election_protocol,
        voters=7,
        drop_rate=0.1,
        supernode_failure_rate=0.1,
        byzantine=("20:0.1",),
        out=out,
    )
    before = set(descendants())
    memory = Memory()
    result = experiment.run(config, trackers=[memory])
    frame = pd.read_csv(result.path / "metrics.csv")
    # Compilation and caches settle in the first tenth; then a tenth at either end.
    tenth = max(1, rounds // 10)
    warm = list(memory.by_round.values())[max(10, tenth) :]
    first, last = np.median(warm[:tenth]), np.median(warm[-tenth:])
    columns = ("dropped", "byzantine", "failed_super_nodes", "skipped_zones")
    return {
        "rounds": len(frame),
        "finite": bool(np.isfinite(frame["loss"]).all()),
        "memory_mb": [round(m / 2**20) for m in warm[::tenth]],
        "memory_growth": round(last / first - 1, 4),
        "processes_left": len(set(descendants()) - before),
        "median_round_seconds": round(float(frame["round_seconds"].median()), 3),
        "elections": int(frame["elections"].sum()),
        **{name: int(frame[name].sum()) for name in columns},
    }


def main() -> int:
    """Prints what was seen; exit code 1 if it is not as it must be."""
    rounds = flags.FLAGS.rounds
    if rounds < LEAST_ROUNDS:
        raise ArgumentError("rounds", rounds, f"{LEAST_ROUNDS} or more")
    with tempfile.TemporaryDirectory() as out:
        seen = soak(rounds, out)
    print(json.dumps(seen, indent=2))
    if flags.FLAGS.json:
        pathlib.Path(flags.FLAGS.json).write_text(json.dumps(seen, indent=2) + "\n")
    # The worker of --runtime=native lives as long as this process.
    workers = int(flags.FLAGS.runtime == "native")
    sound = (
        seen["finite"]
        and seen["rounds"] == rounds
        and (seen["memory_growth"] <= ALLOWED_GROWTH or rounds < MEMORY_ROUNDS)
        and seen["processes_left"] <= workers
    )
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
