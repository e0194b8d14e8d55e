"""All five systems on one task at one sound epsilon, in one table."""

import json
import math
import pathlib
import secrets
from collections.abc import Sequence
from typing import Any

import pandas as pd

from scripts.papers.comparison.config import MatchedConfig
from scripts.papers.comparison.settings import build_config, released
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.table import account_text
from tff_hdp.simulation import experiment
from tff_hdp.simulation.config import RunConfig

_SLACK = 1e-3


def compare(config: MatchedConfig) -> pd.DataFrame:
    """Runs the systems one after the other and writes table.csv and table.txt.

    All share one partition over clients. Calling again resumes.

    Args:
      config: The settings; `out` gets one run folder a system.

    Returns:
      The table, one row a system.

    Raises:
      ArgumentError: If a system's epsilon is not the one asked for, or a setting does
        not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    folder = pathlib.Path(config.out)
    seed = _partition_seed(config, folder)
    rows, basis = [], []
    for name in config.systems:
        asked = build_config(config, name, seed)
        result = experiment.run(asked, seed)
        rows.append(_row(config, result, asked))
        basis += [{"system": name, **row.to_dict()} for row in result.accounts]
    found = pd.DataFrame(rows)
    found.to_csv(folder / "table.csv", index=False)
    text = "\n".join([found.to_string(index=False), "", account_text(basis)])
    (folder / "table.txt").write_text(text + "\n")
    return found


def _row(
    config: MatchedConfig, result: experiment.RunResult, asked: RunConfig
) -> dict[str, Any]:
    row = released(result.accounts)
    if row.epsilon_rdp is None or not (
        abs(row.epsilon_rdp - config.target_epsilon) <= _SLACK * config.target_epsilon
    ):
        raise ArgumentError(
            "target_epsilon",
            config.target_epsilon,
            f"what {asked.system} reaches, which is {row.epsilon_rdp} in {result.path}",
        )
    others = {
        f"eps {observer}": _tightest(result.accounts, observer)
        for observer in ("super_node", "aggregator")
    }
    accuracy, own = result.accuracy, None
    if asked.system == "udp_hypernet":
        users = pd.read_csv(result.path / "users.csv")
        own = accuracy
        accuracy = (
            users["common_accuracy"].mean() if "common_accuracy" in users else math.nan
        )
    return {
        "system": asked.system,
        "accuracy": round(accuracy, 4),
        "on own tests": own and round(own, 4),
        "eps released (RDP)": round(row.epsilon_rdp, 4),
        "eps released (PLD)": row.epsilon_pld and round(row.epsilon_pld, 4),
        **others,
        "delta": row.delta,
        "neighbours": row.neighbours,
        "sampling": row.sampling,
    }


def _tightest(rows: Sequence[AccountRow], observer: str) -> str:
    """The worst-off client's smaller sound epsilon; `none` without a guarantee."""
    worst_of = []
    for row in rows:
        if row.observer == observer:
            sound = [e for e in (row.epsilon_rdp, row.epsilon_pld) if e is not None]
            worst_of.append(min(sound, default=math.inf))
    if not worst_of:
        return "-"
    return f"{max(worst_of):.4g}" if max(worst_of) < math.inf else "none"


def _partition_seed(config: MatchedConfig, folder: pathlib.Path) -> int:
    """The one all systems share, kept in the folder."""
    path = folder / "partition.json"
    if path.exists():
        return int(json.loads(path.read_text())["partition_seed"])
    seed = config.seed
    if seed is None:
        seed = secrets.randbits(32)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"partition_seed": seed}) + "\n")
    return seed
