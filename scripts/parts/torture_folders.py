"""Run folders under torture, and what is known of them from outside.

Used by `scripts/torture.py`.
"""

import errno
import json
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from scripts.parts.interrupted_runs import Attempt, finish, launch
from scripts.parts.interruptions import Observer
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

ROUNDS = 5
_COMMON = {"num_clients": 20, "rounds": ROUNDS, "seed": 3, "quiet": True}
SYSTEMS: dict[str, Callable[..., RunConfig]] = {
    "hdp": lambda **more: HdpConfig(
        noise_multiplier=1.0, zones=2, clients_per_round=8, local_epochs=1, **more
    ),
    "hdp_elected": lambda **more: HdpConfig(
        noise_multiplier=1.0,
        zones=2,
        clients_per_round=8,
        local_epochs=1,
        elect_super_nodes="persistent",
        voters=5,
        drop_rate=0.1,
        supernode_failure_rate=0.3,
        **more,
    ),
    "hfl_dp": lambda **more: HflDpConfig(
        noise="theorem_1", eps1=10.0, eps2=10.0, edges=2, local_steps=2, **more
    ),
    "gfl": lambda **more: GflConfig(
        task="gfl_logistic",
        scheme="hybrid",
        sigma_g=0.2,
        servers=4,
        per_round=3,
        **more,
    ),
    "fl_top": lambda **more: FlTopConfig(
        scheme="fl_top_dp", clients_per_round=4, local_epochs=1, **more
    ),
    "udp_hypernet": lambda **more: UdpHypernetConfig(
        noise_multiplier=2.0,
        sampling_rate=0.3,
        local_steps=2,
        descriptor_dim=4,
        hidden_width=8,
        **more,
    ),
}
KINDS = ("kill", "events", "full", "damage", "twins")
HARMS = ("truncate", "flip", "empty", "delete", "folder")


class Folder:
    """A run folder under torture, and all that is known of it from outside."""

    def __init__(self, system: str, path: pathlib.Path) -> None:
        self.path, self._system = path, system
        self._observer, self._models = Observer(path), []
        self.understated = self.tracebacks = 0
        # What file was harmed and how: what privacy.json then says is not the run's.
        self.harmed = ""

    def config(self, **changes: Any) -> RunConfig:
        """The settings of the run."""
        return SYSTEMS[self._system](**{**_COMMON, "out": str(self.path)} | changes)

    def start(self, **how: Any) -> Attempt:
        """Runs the program in a child, and sees what is released after it."""
        found = finish(launch(self.config(), **how))
        self.see(found)
        return found

    def see(self, found: Attempt) -> None:
        """Takes note of an attempt."""
        self._models += found.models
        # A round is computed while the one before is released.
        self._observer.released.update(found.models[:-2])
        released = self._observer.look(self._models)
        if found.code == 0 or not self.harmed:
            self.understated += self.rounds < released
        errors = sum(line.startswith("error: ") for line in found.said.splitlines())
        if (
            found.code not in (0, 2, -signal.SIGKILL)
            or "Traceback" in found.said
            or errors != (found.code == 2)
        ):
            self.tracebacks += 1
            said = f"{self._system} {self.harmed}: exit code {found.code}"
            print(said, found.said, sep="\n", file=sys.stderr)

    @property
    def rounds(self) -> int:
        """How many rounds privacy.json states; 0 if it states nothing."""
        return self._stated("rounds")

    @property
    def is_finished(self) -> bool:
        """Whether privacy.json is that of a whole run."""
        return self._stated("last_round") == ROUNDS

    def harm(self, name: pathlib.Path, how: str) -> None:
        """Damages, deletes or replaces a file, if it is there."""
        file = self.path / name
        if not file.exists():
            return
        self.harmed = f"{name}: {how}"
        content = file.read_bytes()
        if how in ("delete", "folder"):
            file.unlink()
            if how == "folder":
                file.mkdir()
        elif how == "flip" and content:
            at = random.randrange(len(content))
            flipped = bytes([content[at] ^ 8])
            file.write_bytes(content[:at] + flipped + content[at + 1 :])
        else:
            file.write_bytes(content[: len(content) // 2 if how == "truncate" else 0])

    def _stated(self, name: str) -> int:
        try:
            return json.loads((self.path / "privacy.json").read_text())[name]
        except (OSError, ValueError, KeyError, TypeError):
            return 0


# Kinds -----------------------------------------------------------------------


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _disk_is_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill(new: Callable[[], Folder], cases: int) -> Iterator[Folder]:
    """SIGKILL at a random time of a run, and of the run that goes on with it."""
    began = time.monotonic()
    yield _ended(new())
    seconds = time.monotonic() - began
    for _ in range(cases):
        folder = new()
        for _ in range(2):
            folder.start(after=seconds * random.random())
        yield _ended(folder)


def events(
    new: Callable[[], Folder], cases: int, act: Callable[[], None] = _kill_self
) -> Iterator[Folder]:
    """SIGKILL just before, or after, something is done to a file."""
    whole = new()
    count = whole.start().events
    yield whole
    for at in sorted(random.sample(range(count), min(cases, count))):
        folder = new()
        folder.start(at=at, act=act)
        yield _ended(folder)


def full(new: Callable[[], Folder], cases: int) -> Iterator[Folder]:
    """A full disk, from one write on to the end of the program."""
    yield from events(new, cases, _disk_is_full)


def damage(new: Callable[[], Folder], cases: int) -> Iterator[Folder]:
    """Every file of a run that was killed, harmed in every way."""
    first = new()
    count = first.start().events
    yield first
    for _ in range(max(1, cases // 10)):
        pattern = new()
        pattern.start(at=random.randrange(count // 2, count), act=_kill_self)
        names = [
            file.relative_to(pattern.path)
            for file in sorted(pattern.path.rglob("*"))
            if file.is_file() and "tensorboard" not in file.parts
        ]
        todo = [(name, harm) for name in names for harm in HARMS]
        for name, harm in random.sample(todo, min(cases * 4, len(todo))):
            folder = new()
            folder.start(at=random.randrange(count // 2, count), act=_kill_self)
            folder.harm(name, harm)
            yield _ended(folder)


def twins(new: Callable[[], Folder], cases: int) -> Iterator[Folder]:
    """Two starts at once: one runs, with its own settings on file, one is refused."""
    for _ in range(cases):
        folder = new()
        configs = [folder.config(delta=delta) for delta in (1e-5, 2e-5)]
        both = [finish(child) for child in [launch(config) for config in configs]]
        for attempt in both:
            folder.see(attempt)
        (winner,) = (i for i, attempt in enumerate(both) if attempt.code == 0)
        record = json.loads((folder.path / "config.json").read_text())
        folder.tracebacks += record["flags"]["delta"] != configs[winner].delta
        yield folder


def _ended(folder: Folder) -> Folder:
    folder.start()
    return folder
