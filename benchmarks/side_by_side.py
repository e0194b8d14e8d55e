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
# What a ratio is to, and the peer's name where that is a peer.
Ratio = tuple[float, str]
_UNITS = {"tff": "times", "peer": "times", "floor": "times its time"}
_BRIEF = {
    "tff": "times as fast as TFF",
    "peer": "times as fast as the fastest peer",
}


def _head(work: str, kind: str) -> str:
    is_loop = work in _LOOPS.values()
    if kind == "tff":
        return "faster than " + ("TFF's own" if is_loop else "native TFF")
    if kind == "peer":
        return "faster than the fastest peer" + ("'s loop" if is_loop else "")
    return "against the floor"


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
    columns = {
        machine: {
            f"{work}: {_head(work, kind)}": f"{ratio:.3g} {_UNITS[kind]}"
            + (f" ({peer})" if peer else "")
            for (work, kind), (ratio, peer) in found.items()
        }
        for machine, found in _of_machines(paths).items()
    }
    rows = dict.fromkeys(said for ratios in columns.values() for said in ratios)
    order = sorted(rows, key=lambda said: _ORDER.index(said.partition(":")[0]))
    frame = pd.DataFrame(columns, index=order).fillna("not measured")
    return frame.rename_axis("a round in process").reset_index()


def brief(paths: Sequence[pathlib.Path]) -> pd.DataFrame:
    """A row for each work: the least and the greatest of its ratios over machines.

    What was compared with nobody has no row.

    Args:
      paths: Files of rows of run.py as CSV, each of one machine.
    """
    machines = _of_machines(paths).values()
    rows = []
    for work in _ORDER:
        told: dict[str, str | int] = {"the same work": work}
        for kind, head in _BRIEF.items():
            found = [
                ratios[work, kind] for ratios in machines if (work, kind) in ratios
            ]
            told[head] = _range(found) if found else "not measured"
        told["machines"] = sum(any(of == work for of, _ in m) for m in machines)
        if told["machines"]:
            rows.append(told)
    return pd.DataFrame(rows)


def _range(found: Sequence[Ratio]) -> str:
    ratios, peers = zip(*found, strict=True)
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(ratios), max(ratios)))
    named = sorted({peer for peer in peers if peer}, key=str.lower)
    return " to ".join(ends) + (f" ({', '.join(named)})" if named else "")


def _of_machines(
    paths: Sequence[pathlib.Path],
) -> dict[str, dict[tuple[str, str], Ratio]]:
    found = {}
    for path in paths:
        rows = pd.read_csv(path)
        found[rows["machine"].iloc[0].removesuffix(", CPU only")] = _ratios(rows)
    return found


def _ratios(rows: pd.DataFrame) -> dict[tuple[str, str], Ratio]:
    """By work and what it is against."""
    found: dict[tuple[str, str], Ratio] = {}
    for work, said in _WORKS.items():
        of_work = _seconds(rows[rows["work"] == work])
        if _OURS not in of_work:
            continue
        ours = rows[(rows["work"] == work) & (rows["program"] == _OURS[0])]
        floor = ours[ours["runtime"] == _OURS[1]]["ratio_to_floor"].iloc[0]
        against = _against(of_work) | {"floor": (floor, "")}
        found |= {(said, kind): ratio for kind, ratio in against.items()}
    for task, said in _LOOPS.items():
        loops = _seconds(rows[(rows["work"] == "F") & (rows["task"] == task)])
        if _OURS in loops:
            found |= {(said, kind): r for kind, r in _against(loops).items()}
    return found


def _seconds(rows: pd.DataFrame) -> dict[tuple[str, str], float]:
    subjects = zip(rows["program"], rows["runtime"], strict=True)
    return dict(zip(subjects, rows["seconds_median"], strict=True))


def _against(seconds: dict[tuple[str, str], float]) -> dict[str, Ratio]:
    ours = seconds[_OURS]
    found: dict[str, Ratio] = {}
    if _TFF in seconds:
        found["tff"] = seconds[_TFF] / ours, ""
    peers = [name for name in _PEERS if (name, name) in seconds]
    if peers:
        fastest = min(peers, key=lambda name: seconds[name, name])
        found["peer"] = seconds[fastest, fastest] / ours, _PEERS[fastest]
    return found
