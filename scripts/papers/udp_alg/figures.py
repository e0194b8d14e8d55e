"""UDP-Alg's Figures 2 and 3: accuracy against epsilon over a sweep of S and sigma."""

import json
import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.udp_alg.curves import FIGURES, Curve, configure
from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.table import account_text
from tff_hdp.simulation import experiment, report
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig


def draw(
    config: UdpHypernetConfig, figure: str, *, private_rate: float | None = None
) -> pd.DataFrame:
    """Runs the curves of a figure, then writes its table and the figure.

    All curves share one partition. Calling again resumes.

    Args:
      config: The settings of all curves, save for S and sigma. `out` is the folder
        that gets one run folder a curve, table.csv, table.txt and figure.png.
      figure: A key of `FIGURES`.
      private_rate: lambda of the curves with noise; None takes the config's.

    Returns:
      The table, one row a curve.
    """
    folder = pathlib.Path(config.out)
    runs: list[tuple[Curve, report.Run]] = []
    partition_seed = None
    for curve in FIGURES[figure]:
        result = experiment.run(
            configure(config, curve, folder / curve.name, private_rate),
            partition_seed,
        )
        record = json.loads((result.path / "config.json").read_text())
        partition_seed = record["resolved"]["partition_seed"]
        runs.append((curve, report.read_run(result.path)))
    found = table(runs)
    found.to_csv(folder / "table.csv", index=False)
    _, noisy = runs[-1]
    text = "\n\n".join(
        [
            found.to_string(index=False),
            account_text([row.to_dict() for row in noisy.accounts]),
            *noisy.notes,
        ]
    )
    (folder / "table.txt").write_text(text + "\n")
    _plot(runs, folder / "figure.png")
    return found


def table(runs: Sequence[tuple[Curve, report.Run]]) -> pd.DataFrame:
    """One row a curve: what was reached, at which epsilons, and what was printed."""
    rows = []
    for curve, run in runs:
        phi = _released(run.accounts)
        users = pd.read_csv(run.path / "users.csv")
        own = (users["own_accuracy"] * users["own_tests"]).sum()
        rows.append(
            {
                "sigma": curve.sigma,
                "S": curve.S,
                "z": phi and phi.noise_multiplier,
                "rounds": int(run.metrics["round"].iloc[-1]),
                "accuracy %": round(100 * own / users["own_tests"].sum(), 2),
                "eps PLD": phi and phi.epsilon_pld,
                "eps RDP": phi and phi.epsilon_rdp,
                "eps paper": phi and phi.epsilon_paper,
                "delta": phi and phi.delta,
                "printed %": curve.printed,
            }
        )
    return pd.DataFrame(rows)


def _released(accounts: Sequence[AccountRow]) -> AccountRow | None:
    rows = [row for row in accounts if row.observer == "released_model"]
    return rows[0] if rows else None


def _plot(runs: Sequence[tuple[Curve, report.Run]], path: pathlib.Path) -> None:
    """Accuracy against epsilon (RDP), and against rounds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for i, (curve, run) in enumerate(runs):
        metrics, line = run.metrics, {"color": f"C{i}", "label": curve.title}
        right.plot(metrics["round"], metrics["accuracy"], **line)
        if curve.sigma is None:
            left.axhline(metrics["accuracy"].iloc[-1], linestyle="--", **line)
        else:
            left.plot(metrics["epsilon_rdp"], metrics["accuracy"], **line)
    delta = runs[-1][1].flags["delta"]
    left.set(
        xlabel=f"epsilon of the released hypernetwork (RDP, delta {delta:g})",
        ylabel="accuracy on users' own tests",
        ylim=(0, 1),
    )
    right.set(xlabel="round")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
