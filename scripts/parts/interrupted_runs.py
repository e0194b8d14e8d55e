"""Training runs in children of this process, stopped at will and watched."""

import dataclasses
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

from scripts.parts.interruptions import Interruption, sample
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation.config import RunConfig

Started = tuple[int, pathlib.Path, threading.Timer | None]


@dataclasses.dataclass
class Attempt:
    """One start of a program.

    Attributes:
      code: Its exit code; -9 after a kill.
      said: What it wrote to stderr.
      models: `sample` of every round that it completed.
      events: How often it changed files of its folder, if it ended.
    """

    code: int
    said: str
    models: list[bytes]
    events: int


def launch(
    config: RunConfig,
    *,
    at: int | None = None,
    act: Callable[[], None] = lambda: None,
    after: float | None = None,
) -> Started:
    """Starts a run in a child of this process, which has imported all it needs.

    Args:
      config: The run's.
      at: `Interruption`'s event.
      act: What then happens.
      after: Seconds until the child is killed; None lets it end.
    """
    log = pathlib.Path(tempfile.mkdtemp())
    child = os.fork()
    if child == 0:
        _run_as_child(config, log, at, act)
    timer = None
    if after is not None:
        timer = threading.Timer(after, os.kill, (child, signal.SIGKILL))
        timer.start()
    return child, log, timer


def finish(started: Started) -> Attempt:
    """Waits for a child of `launch`."""
    child, log, timer = started
    _, status = os.waitpid(child, 0)
    if timer is not None:
        timer.cancel()
    models, events = log / "models", log / "events"
    # A last line without its end is of a round that a kill interrupted.
    whole = models.read_text().rpartition("\n")[0] if models.exists() else ""
    found = Attempt(
        code=os.waitstatus_to_exitcode(status),
        said=(log / "stderr").read_text(errors="replace"),
        models=[bytes.fromhex(line) for line in whole.split()],
        events=int(events.read_text()) if events.exists() else 0,
    )
    shutil.rmtree(log)
    return found


def _run_as_child(
    config: RunConfig, log: pathlib.Path, at: int | None, act: Callable[[], None]
) -> None:
    """Never returns. Ends as `cli.run` does, with nothing else on stderr."""
    code = 1
    try:
        descriptor = os.open(log / "stderr", os.O_WRONLY | os.O_CREAT)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        with Interruption(pathlib.Path(config.out), at, act) as interruption:
            try:
                _run_watched(config, log / "models")
                code = 0
            except (ArgumentError, FileError, OSError) as error:
                os.write(2, f"error: {' '.join(str(error).split())}\n".encode())
                code = 2
        (log / "events").write_text(str(interruption.events))
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(code)


def _run_watched(config: RunConfig, models: pathlib.Path) -> None:
    """Trains, and notes every completed round's model outside the run folder."""
    from tff_hdp.simulation import experiment, training

    class Watched:
        def __init__(self, system: Any) -> None:
            self._process, self._weights_of = system.process, system.weights_of

        def __getattr__(self, name: str) -> Any:
            return getattr(self._process, name)

        def next(self, *arguments: Any) -> Any:
            output = self._process.next(*arguments)
            with models.open("a") as file:
                file.write(sample(self._weights_of(output.state)).hex() + "\n")
            return output

    def train(*, system: Any, **others: Any) -> Any:
        system.process = Watched(system)
        return training.train(system=system, **others)

    experiment.train = train
    experiment.run(config)
