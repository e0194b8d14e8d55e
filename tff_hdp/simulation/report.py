"""Tables and figures of finished runs. Imports no TensorFlow."""

import dataclasses
import math
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tff_hdp.errors import FileError
from tff_hdp.files import write_figure, write_text
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.privacy.table import account_text
from tff_hdp.privacy.threat import OBSERVERS
from tff_hdp.reading import read_json
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.plain_words import epsilon_against
from tff_hdp.simulation.record import SEEDED, check_settings


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, read from its folder.

    Attributes:
      path: The run folder.
      label: The run's `RunConfig.label`.
      flags: Every flag, by name.
      metrics: metrics.csv, one row a round.
      accounts: Rows of privacy.json; empty without noise.
      notes: What else must be known of the epsilons.
      resolved: What was drawn, measured and calibrated, by name.
    """

    path: pathlib.Path
    label: str
    flags: dict[str, Any]
    metrics: pd.DataFrame
    accounts: list[AccountRow]
    notes: list[str]
    resolved: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round."""
        return float(self.metrics["accuracy"].iloc[-1])


def read_run(path: pathlib.Path) -> Run:
    """Reads a run folder.

    Raises:
      FileNotFoundError: If the folder holds no finished run.
      FileError: If its files are not as a run wrote them.
    """
    for name in ("config.json", "metrics.csv", "privacy.json", "journal.jsonl"):
        if not (path / name).exists():
            raise FileNotFoundError(f"{path} holds no finished run: no {name}")
    try:
        privacy = read_json(path / "privacy.json")
        config = read_json(path / "config.json")
        metrics = pd.read_csv(path / "metrics.csv")
        rounds = metrics["round"].tolist()
        last = int(rounds[-1]) if rounds else 0
        if rounds != sorted(set(map(int, rounds))):
            raise ValueError("rounds of metrics.csv are not whole and in order")
        run = Run(
            path=path,
            label=privacy["privacy"],
            flags=config["flags"],
            metrics=metrics,
            accounts=[AccountRow(**row) for row in privacy["accounts"]],
            notes=list(privacy["notes"]),
            resolved={**config.get("resolved", {})},
        )
        covered, asked = privacy["last_round"], run.flags.get("rounds", last)
        ended = covered == last >= asked
        stated = list(privacy["journal"])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise FileError(path, f"holds no run that can be read: {error}") from error
    if not ended:
        raise FileNotFoundError(
            f"{path} holds no finished run: metrics.csv ends at round {last} of "
            f"{asked}, privacy.json at {covered}; run it again to its end"
        )
    journal = Journal(path / "journal.jsonl")
    if stated != [journal.releases, journal.head(journal.releases)]:
        raise FileError(
            path / "privacy.json",
            f"is not of the {journal.releases} rounds that the journal says were "
            "released: resume the run, which then states them all",
        )
    return run


def accounted(run: Run, config: RunConfig) -> tuple[Run, RoundLedger[Any]]:
    """The run with its settings checked and its account made anew.

    Of the rounds that the journal says were released: privacy.json states the account
    too, but in a file that an editor can change, and so are settings in config.json.

    Returns:
      The run, and the ledger of the rounds.

    Raises:
      FileError: If privacy.json states another account, or not that a seed decides the
        cohorts, or if the run began with other settings than config.json has.
    """
    ledger, journal = config.new_ledger(), Journal(run.path / "journal.jsonl")
    check_settings(config, journal.began)
    journal.recall(ledger)
    accounts = ledger.account(config.delta) if ledger.rounds else []
    stated = read_json(run.path / "privacy.json").get("rounds")
    if not (
        stated == ledger.rounds
        and len(accounts) == len(run.accounts)
        and all(map(_are_alike, accounts, run.accounts))
    ):
        raise FileError(
            run.path / "privacy.json",
            "states another account than the rounds released have; where another "
            "version made it, run the same command again, which states it anew",
        )
    if config.seed is not None and SEEDED.format(seed=config.seed) not in run.notes:
        raise FileError(
            run.path / "privacy.json",
            f"does not say what seed={config.seed} fixes; run the same command again, "
            "which states it anew",
        )
    flags = {name: getattr(config, name) for name in config.to_dict()}
    return dataclasses.replace(
        run, label=config.label, flags=flags, accounts=accounts
    ), ledger


def _are_alike(one: AccountRow, other: AccountRow) -> bool:
    """Whether two rows say the same, numbers to six digits."""

    def alike(a: Any, b: Any) -> bool:
        numbers = isinstance(a, float) and isinstance(b, float | int)
        return math.isclose(a, b, rel_tol=1e-6) if numbers else a == b

    pairs = zip(one.to_dict().values(), other.to_dict().values(), strict=True)
    return all(alike(a, b) for a, b in pairs)


def comparison_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a run: mode, accuracy, the worst-off client's epsilon per observer.

    Also task, rounds, zones and clients a round, each where the runs differ in it.
    An observer that a run with noise does not have is `–`; what fellows see, who know
    more than others, is in `comparison_text` alone.
    """
    settings = [_settings(run) for run in runs]
    of_runs = dict.fromkeys(
        row.observer
        for run in runs
        for row in run.accounts
        if not row.observer.startswith("fellow_")
    )
    rows = []
    for mode, run, own in zip(_modes(runs), runs, settings, strict=True):
        row: dict[str, object] = {
            "mode": mode,
            **{k: v for k, v in own.items() if any(v != s[k] for s in settings)},
            "accuracy": f"{run.accuracy:.3f}",
        }
        for observer in of_runs or OBSERVERS:
            row[f"eps {observer}"] = _epsilon(run, observer)
        row["delta"] = f"{run.accounts[0].delta:g}" if run.accounts else ""
        rows.append(row)
    return pd.DataFrame(rows)


def _epsilon(run: Run, observer: str) -> str:
    if run.accounts and all(row.observer != observer for row in run.accounts):
        return "–"
    epsilon = epsilon_against(run.accounts, observer)
    return "none" if epsilon == math.inf else f"{epsilon:.4g}"


def comparison_text(runs: Sequence[Run]) -> str:
    """The table of a comparison and everything its epsilons rest on."""
    rows = [
        {"mode": mode, **row.to_dict()}
        for mode, run in zip(_modes(runs), runs, strict=True)
        for row in run.accounts
    ]
    notes = list(dict.fromkeys(n for run in runs if run.accounts for n in run.notes))
    return "\n".join(
        [
            "Epsilon against each observer, the tighter of RDP and PLD, for the client",
            "worst off:",
            "",
            comparison_table(runs).to_string(index=False),
            "",
            account_text(rows) or "no noise: no observer is promised anything",
            "",
            *notes,
        ]
    )


def _settings(run: Run) -> dict[str, object]:
    """What must be alike for accuracies to be compared; `-` if a system has no such."""
    flags = run.flags
    cohort = flags.get("clients_per_round")
    return {
        "task": flags["task"],
        "rounds": int(run.metrics["round"].iloc[-1]),
        "zones": _zones(flags),
        "clients a round": "-" if cohort is None else f"{cohort:g}",
    }


def _zones(flags: Mapping[str, Any]) -> str:
    """How many zones, or whatever else was said of them."""
    names = ("zone_sizes", "zones", "zoning_file")
    # It may be there for min_capability alone.
    if flags.get("zoning") == "capability":
        names += ("capability_file",)
    for name in names:
        if given := flags.get(name):
            return "+".join(map(str, given)) if isinstance(given, list) else f"{given}"
    return "default" if "zones" in flags else "-"


def _modes(runs: Sequence[Run]) -> list[str]:
    """The runs' labels, with the folder where several have the same."""
    modes = [run.label for run in runs]
    for folder in (lambda path: path.resolve().name, str):
        counts = Counter(modes)
        modes = [
            mode if counts[mode] == 1 else f"{run.label} ({folder(run.path)})"
            for mode, run in zip(modes, runs, strict=True)
        ]
    return modes


def metric_figure(
    metrics: Mapping[str, pd.DataFrame],
    path: pathlib.Path,
    *,
    metric: str = "accuracy",
    title: str,
) -> None:
    """Draws a test metric over rounds, one line a run (HDP, Figure 2).

    Args:
      metrics: Label to a run's metrics.
      path: The PNG to write; its folder is made if missing.
      metric: A column of metrics.csv.
      title: Above the axes.
    """
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4.2))
    axes = figure.subplots()
    for label, frame in metrics.items():
        tested = frame.dropna(subset=metric)
        axes.plot(tested["round"], tested[metric], label=_plain(label), linewidth=1.8)
    axes.set(xlabel="round", ylabel=f"test {metric}", title=_plain(title))
    if metric == "accuracy":
        axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    write_figure(path, figure)


def _plain(text: str) -> str:
    """Text of which Matplotlib takes nothing for a formula."""
    return text.replace("$", r"\$")


def comparison_figure(
    runs: Sequence[Run], path: pathlib.Path, metric: str = "accuracy"
) -> None:
    """`metric_figure` of several runs, whose title is what they have in common."""
    settings = [_settings(run) for run in runs]
    shared = {k: v for k, v in settings[0].items() if all(v == s[k] for s in settings)}
    names = ("zones", "clients a round")
    said = [f"{shared[k]} {k}" for k in names if shared.get(k, "-") != "-"]
    noise_multipliers = {r.flags.get("noise_multiplier") for r in runs if r.accounts}
    # None stands for noise that a plan or a target decides, each run's its own.
    if len(noise_multipliers) == 1 and None not in noise_multipliers:
        said.append(f"noise multiplier {noise_multipliers.pop():g}")
    title = ": ".join(filter(None, [shared.get("task"), ", ".join(said)]))
    metrics = {}
    for mode, run in zip(_modes(runs), runs, strict=True):
        name = "no DP" if run.label == "none" else run.label.upper()
        of_task = "" if "task" in shared else f", {run.flags['task']}"
        metrics[name + mode.removeprefix(run.label) + of_task] = run.metrics
    metric_figure(metrics, path, metric=metric, title=title)


def write_comparison(runs: Sequence[Run], folder: pathlib.Path) -> None:
    """Writes table.csv, table.txt and accuracy.png of finished runs."""
    folder.mkdir(parents=True, exist_ok=True)
    table = comparison_table(runs)
    table["rests on"] = [" | ".join(_terms(run)) for run in runs]
    write_text(folder / "table.csv", table.to_csv(index=False))
    write_text(folder / "table.txt", comparison_text(runs) + "\n")
    comparison_figure(runs, folder / "accuracy.png")


def _terms(run: Run) -> Iterator[str]:
    """What a run's epsilons rest on, in words, where they stand without its notes."""
    for row in run.accounts:
        yield (
            f"{row.observer} ({row.client_kind} clients): {row.neighbours} neighbours; "
            f"{row.sampling}; {row.assumptions}"
        )
    if run.accounts and run.flags.get("seed") is not None:
        yield SEEDED.format(seed=run.flags["seed"])
