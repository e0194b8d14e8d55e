"""A process and all it started, as Linux tells of them."""

import dataclasses
import os
import pathlib
import signal


@dataclasses.dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
      pid: Its number.
      started: Clock ticks from boot to its start.
    """

    pid: int
    started: int


def tree(pid: int) -> list[Process]:
    """The process `pid` and its descendants, ancestors first."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        stat = _stat(int(folder.name))
        if stat is None:
            continue
        parent, process = stat
        children.setdefault(parent, []).append(process)
        if process.pid == pid:
            found.append(process)
    for process in found:
        found += children.get(process.pid, [])
    return found


def kill(process: Process) -> None:
    """Ends the process if it still is."""
    stat = _stat(process.pid)
    if stat is not None and stat[1] == process:
        os.kill(process.pid, signal.SIGKILL)


def reset_peak(process: Process) -> None:
    """Makes `peak_kb` start from what the process holds now."""
    try:
        pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    except (FileNotFoundError, ProcessLookupError):
        return


def peak_kb(process: Process) -> int:
    """The most resident memory the process ever held; 0 if it ended."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmHWM"].split()[0]) if "VmHWM" in fields else 0


def _stat(pid: int) -> tuple[int, Process] | None:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may hold anything.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), Process(pid, int(fields[19]))
