"""How much faster than others a round in process is, machine by machine.

The rows of run.py lie in a file for each machine, `rounds_<machine>.csv`, and with GPUs
`gpu_rounds_<machine>.csv`, of which no comparison is made: too little ran there.
"""

import pathlib
import re
from collections.abc import Sequence

import pandas as pd

_OURS = ("stacked", "in_process")
_PEERS = {"flower": "Flower", "fedjax": "FedJAX", "pfl": "pfl-research"}
_TFF = ("fed_avg", "native")
_WORKS = {
    "A": "100 clients, dense",
    "B": "20 clients, two convolutions",
    "cnn_small": "20 clients, cnn_small",
    "lenet": "20 clients, LeNet",
}
_LOOPS = {"mnist": "whole loop on mnist", "digits": "whole loop on digits"}
_ORDER = [*_WORKS.values(), *_LOOPS.values()]


def file_name(machine: str) -> str:
    """Of a machine's rows.

    Args:
      machine: What `machine.described` said.
    """
    words = machine.removesuffix(", CPU only")
    kind = "gpu_rounds" if words == machine else "rounds"
    words = words.replace("(R)", "").lower()
    return f"{kind}_{re.sub('[^a-z0-9]+', '_', words).strip('_')}.csv"


def compared(paths: Sequence[pathlib.Path]) -> pd.DataFrame:
    """A row for each comparison and a column for each machine, ratios of medians.

    Args:
      paths: Files of rows of run.py as CSV, each of one machine.
    """
    columns = {}
    for path in paths:
        rows = pd.read_csv(path)
        columns[rows["machine"].iloc[0].removesuffix(", CPU only")] = _ratios(rows)
    rows = dict.fromkeys(said for ratios in columns.values() for said in ratios)
    order = sorted(rows, key=lambda said: _ORDER.index(said.partition(":")[0]))
    frame = pd.DataFrame(columns, index=order).fillna("not measured")
    return frame.rename_axis("a round in process").reset_index()


def _ratios(rows: pd.DataFrame) -> dict[str, str]:
    found = {}
    for work, said in _WORKS.items():
        of_work = _seconds(rows[rows["work"] == work])
        if _OURS not in of_work:
            continue
        ours = rows[(rows["work"] == work) & (rows["program"] == _OURS[0])]
        floor = ours[ours["runtime"] == _OURS[1]]["ratio_to_floor"].iloc[0]
        found |= _against(of_work, f"{said}: ", "native TFF", "")
        found[f"{said}: against the floor"] = f"{floor:.3g} times its time"
    for task, said in _LOOPS.items():
        loops = _seconds(rows[(rows["work"] == "F") & (rows["task"] == task)])
        if _OURS in loops:
            found |= _against(loops, f"{said}: ", "TFF's own", "'s loop")
    return found


def _seconds(rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    subjects = zip(rows["program"], rows["runtime"], strict=True)
    return dict(zip(subjects, rows["seconds_median"], strict=True))


def _against(
    seconds: dict[tuple[str, str], float], said: str, tff: str, of: str
) -> dict[str, str]:
    ours, found = seconds[_OURS], {}
    if _TFF in seconds:
        found[f"{said}faster than {tff}"] = f"{seconds[_TFF] / ours:.3g} times"
    peers = [name for name in _PEERS if (name, name) in seconds]
    if peers:
        fastest = min(peers, key=lambda name: seconds[name, name])
        ratio = f"{seconds[fastest, fastest] / ours:.3g} times"
        found[f"{said}faster than the fastest peer{of}"] = (
            f"{ratio} ({_PEERS[fastest]})"
        )
    return found
