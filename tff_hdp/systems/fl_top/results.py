"""The columns of the FL-TOP paper's tables, from run folders."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tff_hdp.privacy.accountant import worst
from tff_hdp.simulation.plain_words import epsilon_against
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.fl_top.config import PRIVATE_SUFFIX
from tff_hdp.systems.fl_top.plan import FlTopLedger

WEIGHTS_FILE = "weights.npz"
NAMES = {
    "fl_std": "FL-STD",
    "fl_basic": "FL-BASIC",
    "fl_cs": "FL-CS",
    "fl_top": "FL-TOP",
}
EPSILONS = (
    "epsilon_paper: Theorem 1 after `round`, Poisson sampling hidden from the server, "
    "which is not what is run. epsilon_released, epsilon_server: RDP or PLD, the whole "
    "run, for replacing a client with all its data, a fixed number drawn without "
    "replacement; against who gets the models and does not learn who takes part, and "
    "against the server, who does. A client that takes part also knows its own noise: "
    "privacy.json has it as fellow_client."
)


def name_of(scheme: str) -> str:
    """What the paper calls a scheme."""
    name = NAMES[scheme.removesuffix(PRIVATE_SUFFIX)]
    return name + ("-DP" if scheme.endswith(PRIVATE_SUFFIX) else "")


def headline(num_classes: int) -> str:
    """The metric a task is judged by."""
    return "balanced_accuracy" if num_classes == 2 else "accuracy"


def table(paths: Sequence[pathlib.Path]) -> pd.DataFrame:
    """The paper's columns, one row a run, at the round of best accuracy.

    Returns:
      Columns `r`, `scheme`, `accuracy` (or `balanced_accuracy` and `auroc`),
      `round`, `last` (the same metric after the last round, which needs no look at
      the test set), `downstream_kb` and `upstream_kb` (bytes exchanged up to that round
      over the number of clients, in 1000 bytes), `epsilon_paper` (after `round`),
      `epsilon_released` and `epsilon_server` (both sound, the tighter of RDP and PLD,
      of the whole run, whose rounds all were seen, also by whoever picked the best:
      for replacing a client, against who gets the models, and against the server,
      which knows the cohorts; infinite where nothing is guaranteed), `delta`. Epsilons
      are NaN without noise.
    """
    return pd.DataFrame([_row(path) for path in paths])


def table_text(rows: pd.DataFrame) -> str:
    """The table as text, numbers as the paper prints them."""
    shares = ("accuracy", "balanced_accuracy", "auroc", "last")
    costs = ("downstream_kb", "upstream_kb", "epsilon_paper")
    costs += ("epsilon_released", "epsilon_server")
    formats = {
        "r": "{:.3%}".format,
        **dict.fromkeys(shares, "{:.3f}".format),
        **dict.fromkeys(costs, "{:.2f}".format),
        "delta": "{:g}".format,
    }
    text = rows.to_string(index=False, formatters=formats, na_rep="N/A")
    return text if rows["epsilon_paper"].isna().all() else f"{text}\n{EPSILONS}"


def _row(path: pathlib.Path) -> dict[str, object]:
    run = read_run(path)
    judged = "balanced_accuracy" if "balanced_accuracy" in run.metrics else "accuracy"
    best = run.metrics.loc[run.metrics[judged].idxmax()]
    until = run.metrics[run.metrics["round"] <= best["round"]]
    row: dict[str, object] = {"r": run.flags["ratio"]}
    row["scheme"] = name_of(run.flags["scheme"])
    row[judged] = best[judged]
    if "auroc" in run.metrics:
        row["auroc"] = best["auroc"]
    row |= {"round": int(best["round"]), "last": run.metrics[judged].iloc[-1]}
    for direction in ("downstream", "upstream"):
        exchanged = until[f"{direction}_bytes"].sum()
        row[f"{direction}_kb"] = exchanged / run.resolved["clients"] / 1000
    return row | _epsilons(path, int(best["round"]))


def _epsilons(path: pathlib.Path, best: int) -> dict[str, float]:
    """The paper's epsilon after round `best`, the sound ones of the whole run."""
    privacy = json.loads((path / "privacy.json").read_text())
    whole = FlTopLedger()
    whole.load_state_dict(privacy["ledger"])
    nothing = dict.fromkeys(
        ("epsilon_paper", "epsilon_released", "epsilon_server", "delta"), np.nan
    )
    if not whole.rounds:
        return nothing
    # Rounds that were lost and run again come on top, at any round.
    extra = whole.rounds - privacy["last_round"]
    until = FlTopLedger()
    until.record(whole.history[-1][0].plan, best + extra)
    rows = whole.account(privacy["delta"], methods=("rdp", "pld"))
    printed = until.account(privacy["delta"], methods=("paper",))
    return {
        "epsilon_paper": worst(printed, "released_model").epsilon_paper,
        "epsilon_released": epsilon_against(rows, "released_model"),
        "epsilon_server": epsilon_against(rows, "aggregator"),
        "delta": privacy["delta"],
    }
