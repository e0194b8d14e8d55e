"""Tables and figures of finished runs. Imports no TensorFlow."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from tff_hdp.privacy import AccountRow, Ledger, NoisePlan
from tff_hdp.simulation.config import TrainConfig

OPERATOR_METRICS = (
    "clients, empty_zones, rejected, update_norm, train_loss and train_accuracy in "
    "metrics.csv carry no noise: they are for the operator of the simulation, and "
    "releasing them would void the epsilons above."
)


def read_metrics(run: pathlib.Path) -> pd.DataFrame:
    """metrics.csv of a run folder, one row a round."""
    return pd.read_csv(run / "metrics.csv")


def privacy_report(
    *,
    config: TrainConfig,
    plan: NoisePlan,
    ledger: Ledger,
    accounts: Sequence[AccountRow],
) -> dict[str, Any]:
    """The content of privacy.json."""
    notes = [OPERATOR_METRICS]
    if not plan.is_noisy:
        notes = ["No noise was added: no observer is promised anything."]
    else:
        notes.append(f"Clip norm {plan.clipping.norm:.6g}: {plan.clipping.source}.")
    if config.seed is not None:
        notes.append(
            f"--seed={config.seed} fixes the cohorts. This is a test option: the "
            "amplification by sampling holds only against those who do not know the "
            "seed. The noise is not seeded."
        )
    return {
        "privacy": config.privacy,
        "rounds": ledger.rounds,
        "delta": config.delta,
        "seed": config.seed,
        "notes": notes,
        "accounts": [row.to_dict() for row in accounts],
        "ledger": ledger.state_dict(),
    }


def account_table(accounts: Sequence[AccountRow]) -> pd.DataFrame:
    """One line per observer and kind of client, numbers to four digits."""
    return pd.DataFrame(
        [
            {
                "observer": row.observer,
                "client": row.client_kind,
                "zone": "all" if row.zone is None else row.zone,
                "multiplier": _number(row.noise_multiplier),
                "eps (RDP)": _number(row.epsilon_rdp),
                "eps (PLD)": _number(row.epsilon_pld),
                "eps (paper)": _number(row.epsilon_paper),
            }
            for row in accounts
        ]
    )


def assumptions_text(accounts: Sequence[AccountRow]) -> str:
    """Delta, neighbours, sampling and assumptions behind a table of accounts.

    Rows that differ in nothing but their zone are said once.
    """
    zones: dict[str, list[str]] = {}
    for row in accounts:
        text = (
            f"{row.client_kind} client against {row.observer}{{zones}}: delta "
            f"{row.delta:g}, {row.neighbours} neighbours, {row.sampling}. "
            f"{row.assumptions}"
        )
        zones.setdefault(text, [])
        if row.zone is not None:
            zones[text].append(str(row.zone))
    return "\n".join(
        text.format(zones=f" (zones {', '.join(names)})" if names else "")
        for text, names in zones.items()
    )


def accuracy_figure(
    metrics: Mapping[str, pd.DataFrame], folder: pathlib.Path, title: str = ""
) -> pathlib.Path:
    """Draws test accuracy over rounds, one line a run (HDP, Figure 2).

    Args:
      metrics: Label to the run's `read_metrics`.
      folder: Where `accuracy.png` goes; made if missing.
      title: Above the axes.

    Returns:
      The figure's path.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for label, frame in metrics.items():
        axes.plot(frame["round"], frame["accuracy"], label=label, linewidth=1.8)
    axes.set(xlabel="round", ylabel="test accuracy", title=title)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    path = folder / "accuracy.png"
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    return path


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
