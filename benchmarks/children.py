"""The parent's side of a measurement: one child process for every program."""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import processes

FOLDER = pathlib.Path(__file__).parent
PATHS = [str(FOLDER)]  # where programs and what they share are imported from
_ANSWER_SECONDS = 600  # a round takes seconds; a program that hangs must not
_RUN_SECONDS = 3600
_SHUTDOWN_SECONDS = 20


class ProgramError(RuntimeError):
    """A program under test failed; the message ends with its log's last lines."""


def environment() -> dict[str, str]:
    """The variables of a program, for the processes that it starts of its own too."""
    return {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(PATHS),
    }


def run_to_end(
    command: Sequence[str],
    *,
    cwd: pathlib.Path,
    env: Mapping[str, str] | None = None,
    poll_seconds: float,
) -> float:
    """Runs a program to its end, and ends whatever it leaves running.

    Args:
      command: The program and its arguments.
      cwd: Where it runs.
      env: Its variables; None for this process's.
      poll_seconds: How often its memory is looked at.

    Returns:
      Resident memory in MB, each of its processes at its own peak, summed.

    Raises:
      ProgramError: If it fails, or does not end.
    """
    peak, tree = 0, set()
    deadline = time.monotonic() + _RUN_SECONDS
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                found = processes.tree(process.pid)
                tree.update(found)
                peak = max(peak, sum(map(processes.peak_kb, found)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(poll_seconds)
        finally:
            for one in tree.union(processes.tree(process.pid)):
                processes.kill(one)
            process.wait()
        if process.returncode:
            log.seek(0)
            tail = log.read().decode(errors="replace")[-2000:]
            raise ProgramError(f"{' '.join(command)} failed:\n{tail}")
    return peak / 1024


class Child:
    """A program in a process of its own, which runs rounds when asked.

    Args:
      module: As in `python -m`, found from this folder.
      work: What it works on, a dataclass.
      python: Interpreter whose environment has the program's framework.
      **options: Further entries of the spec that the program reads.
    """

    def __init__(
        self,
        module: str,
        work: Any,
        *,
        python: str | os.PathLike[str] = sys.executable,
        **options: Any,
    ) -> None:
        answers, replies = os.pipe()
        spec = {"work": dataclasses.asdict(work), "replies": replies, **options}
        self._module = module
        self._folder = tempfile.TemporaryDirectory(prefix="tff_hdp_bench_")
        self._log = pathlib.Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", module, json.dumps(spec)],
                cwd=FOLDER,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[replies],
                text=True,
            )
        os.close(replies)
        self._answers = os.fdopen(answers)

    @property
    def pid(self) -> int:
        """Of the program's own process."""
        return self._process.pid

    def build(self, **options: Any) -> float:
        """Has the federation built anew, at the initial weights; its seconds."""
        return self._ask("build", **options)

    def round(self) -> float:
        """Has one round run; its seconds."""
        return self._ask("round")

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        path = pathlib.Path(self._folder.name) / "weights.npz"
        self._ask("save", path=str(path))
        with np.load(path) as arrays:
            return [arrays[name] for name in arrays.files]

    def reset_peak(self) -> None:
        """Starts `peak_rss_mb` from what the processes hold now."""
        for process in processes.tree(self._process.pid):
            processes.reset_peak(process)

    def peak_rss_mb(self) -> float:
        """Resident memory, each process of the program at its own peak, summed."""
        tree = processes.tree(self._process.pid)
        return sum(map(processes.peak_kb, tree)) / 1024

    def close(self) -> None:
        """Ends the program and all it started."""
        tree = processes.tree(self._process.pid)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in tree:
            processes.kill(process)
        self._answers.close()
        self._folder.cleanup()

    def _ask(self, action: str, **request: Any) -> float:
        message = json.dumps({"do": action, **request})
        try:
            print(message, file=self._process.stdin, flush=True)
            if select.select([self._answers], [], [], _ANSWER_SECONDS)[0]:
                line = self._answers.readline()
                reply = json.loads(line) if line else {"error": "it ended"}
            else:
                reply = {"error": f"no answer to {action} in {_ANSWER_SECONDS} s"}
        except BrokenPipeError:
            reply = {"error": "it ended"}
        if "error" in reply:
            tail = self._log.read_text(errors="replace").splitlines()[-15:]
            raise ProgramError("\n".join([f"{self._module}: {reply['error']}", *tail]))
        return reply["seconds"]
