"""The paper's comparison: none, CDP, HDP and LDP on one task (HDP, Figure 2)."""

import dataclasses
import pathlib
from collections.abc import Sequence

import pandas as pd

from tff_hdp.simulation import experiment, report
from tff_hdp.simulation.config import TrainConfig

MODES = ("none", "cdp", "hdp", "ldp")
OBSERVERS = ("super_node", "aggregator", "released_model")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Attributes:
      results: One finished run a mode.
      table: Mode, accuracy, and epsilon per observer, one row a mode.
      assumptions: What each epsilon rests on, in words.
      folder: Where the table and the figure lie.
    """

    results: list[experiment.RunResult]
    table: pd.DataFrame
    assumptions: str
    folder: pathlib.Path


def compare(config: TrainConfig, modes: Sequence[str] = MODES) -> Comparison:
    """Runs every mode with the same settings and writes table and figure.

    Args:
      config: The settings of the noisy modes; `out` is the folder that gets one
        run folder a mode. Calling again resumes.
      modes: Values of `privacy`.
    """
    folder = pathlib.Path(config.out)
    results = []
    for mode in modes:
        changes: dict[str, object] = {"privacy": mode, "out": str(folder / mode)}
        if mode == "none":
            changes |= {"noise_multiplier": None, "target_epsilon": None}
        results.append(experiment.run(dataclasses.replace(config, **changes)))
    table = comparison_table(results)
    table.to_csv(folder / "table.csv", index=False)
    assumptions = "\n".join(
        f"{r.config.privacy}: {report.assumptions_text(r.accounts)}"
        for r in results
        if r.accounts
    )
    (folder / "table.txt").write_text(
        f"{table.to_string(index=False)}\n\n{assumptions}\n"
    )
    metrics = {r.config.privacy.upper(): report.read_metrics(r.path) for r in results}
    report.accuracy_figure(metrics, folder, title=_title(results[-1]))
    return Comparison(results, table, assumptions, folder)


def comparison_table(results: Sequence[experiment.RunResult]) -> pd.DataFrame:
    """One row a run: mode, accuracy, worst epsilon against every observer."""
    rows = []
    for result in results:
        row: dict[str, object] = {
            "mode": result.config.privacy,
            "accuracy": f"{result.accuracy:.3f}",
        }
        for observer in OBSERVERS:
            row[f"eps {observer}"] = _worst(result, observer)
        row["delta"] = "" if not result.accounts else f"{result.config.delta:g}"
        rows.append(row)
    return pd.DataFrame(rows)


def _worst(result: experiment.RunResult, observer: str) -> str:
    """The tightest sound epsilon of the worst-off client, or none."""
    seen = [r for r in result.accounts if r.observer == observer]
    if not seen:
        return "none"
    best = []
    for row in seen:
        bounds = [e for e in (row.epsilon_rdp, row.epsilon_pld) if e is not None]
        if not bounds:
            return "none"
        best.append(min(bounds))
    return f"{max(best):.3g}"


def _title(result: experiment.RunResult) -> str:
    c = result.config
    return (
        f"{c.task}: noise multiplier {c.noise_multiplier:g}, {c.zones} zones, "
        f"{c.clients_per_round:g} clients a round"
    )
