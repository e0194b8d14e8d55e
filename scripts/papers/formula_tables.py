"""Tables of pages whose CSVs no training fills: epsilons by formula, protocols' costs.

`scripts.papers.result_tables` puts them into the pages, as it does those of attacks.
"""

import pathlib
from collections.abc import Callable

import pandas as pd

# Who sees the output of a level of the tree, the clients' first.
_ABOVE = ("own super-node", "node of level 2", "aggregator", "everybody")
_NOISES = ("clients", "super-nodes", "nodes of level 2", "server")
_OUTPUTS = ("clients", "super-nodes", "level 2", "server")
_COSTS = pathlib.Path("figures") / "protocols_costs.csv"


def table3(results: pathlib.Path) -> pd.DataFrame:
    """HDP's Table III: printed, by its formula, and sound, by PLD."""
    frame = pd.read_csv(results / "hdp" / "table3.csv")
    return pd.DataFrame(
        {
            "data": frame["data_set"],
            "mode": frame["mode"].str.upper(),
            "rounds": frame["rounds"],
            "printed": frame["printed"].map("{:.2f}".format),
            "formula": frame["epsilon_paper"],
            "released model": frame["released_epsilon_pld"].map(_epsilon),
            "aggregator": frame["aggregator_epsilon_pld"].map(_epsilon),
        }
    )


def others(results: pathlib.Path) -> pd.DataFrame:
    """The four other papers' epsilons, and the sound ones."""
    frame = pd.read_csv(results / "hdp" / "others.csv")
    frame["epsilon_sound"] = frame["epsilon_sound"].map(_epsilon)
    return frame.rename(columns={"epsilon_paper": "paper", "epsilon_sound": "sound"})


def levels(results: pathlib.Path) -> pd.DataFrame:
    """Epsilon over the levels of a tree; the words beside it become codes."""
    frame = pd.read_csv(results / "hdp" / "levels.csv")
    return pd.DataFrame(
        {
            "noise by": frame["noise_at"].map(_NOISES.__getitem__),
            "output of": frame["level"].map(_OUTPUTS.__getitem__),
            "paper": frame["epsilon_paper"],
            "by RDP": frame["epsilon_rdp"],
            "seen by": frame["level"].map(_ABOVE.__getitem__),
            **frame[["neighbours", "sampling", "assumptions"]],
        }
    )


def sums(results: pathlib.Path) -> pd.DataFrame:
    """What secure sums of 100,000 coordinates cost, nobody dropping out."""
    frame = _costs(results).query("model_size == 100000 and protocol != 'election'")
    frame = frame[frame["clients"].isin([100, 300]) & frame["zones"].isin([1, 10])]
    return pd.DataFrame(
        {
            "k": frame["clients"],
            "s": frame["zones"],
            "protocol": frame["protocol"],
            "masks per client": frame["degree"],
            **_paid(frame),
        }
    )


def elections(results: pathlib.Path) -> pd.DataFrame:
    """What elections in zones of two and more cost, nobody dropping out."""
    frame = _costs(results).query("protocol == 'election' and zone_size > 1")
    return pd.DataFrame(
        {
            "k": frame["clients"],
            "s": frame["zones"],
            "voters in a zone": frame["zone_size"],
            **_paid(frame),
            "relay sends": frame["hub_sent_bytes"],
        }
    )


TABLES: dict[str, Callable[[pathlib.Path], pd.DataFrame]] = {
    "hdp/table3": table3,
    "hdp/others": others,
    "hdp/levels": levels,
    "protocols/sums": sums,
    "protocols/elections": elections,
}


def _epsilon(epsilon: float) -> str:
    """Four digits, or all before the point; without noise there is none."""
    if pd.isna(epsilon):
        return "none"
    return f"{epsilon:.4g}" if epsilon < 1e4 else f"{epsilon:,.0f}"


def _paid(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """What a protocol's round takes, and what a client sends and receives."""
    return {
        "critical path, s": frame["critical_path_seconds"].map("{:.2g}".format),
        "all parties, s": frame["total_seconds"].map("{:.2g}".format),
        "client sends, bytes": frame["client_sent_bytes"],
        "client receives": frame["client_received_bytes"],
    }


def _costs(results: pathlib.Path) -> pd.DataFrame:
    return pd.read_csv(results.parent / _COSTS).query("dropout == 0")
