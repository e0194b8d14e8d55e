"""Tests the model of a finished run: by class, zone and client.

    python scripts/evaluate.py --run=runs/mine --round=best
    python scripts/evaluate.py --run=runs/mine --format=csv > clients.csv

Prints the confusion matrix, accuracy by zone, and how the worst-off tenth of the
clients fares; CSV is one row a client, JSON is everything.
"""

import dataclasses
import json
import pathlib
import sys
from typing import TYPE_CHECKING

from absl import flags

from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation import record
from tff_hdp.simulation.journal import Journal

if TYPE_CHECKING:
    import pandas as pd

    from tff_hdp.simulation.evaluation import Evaluation

# Of a terminal that is set wide; wider tables of names are harder to read than numbers.
WIDTH = 160

FOR_THE_OPERATOR = (
    "Zones and clients are counted without noise, and where tests are clients' own so "
    "is all else: for the operator alone."
)


def define_flags() -> None:
    """Defines whose model is tested, and how that is printed."""
    flags.DEFINE_string("run", None, "The run folder.")
    flags.DEFINE_enum(
        "round", "last", ["last", "best"], "Whose model; best is a choice on test data."
    )
    flags.DEFINE_enum("format", "table", ["table", "csv", "json"], "How to print.")
    flags.DEFINE_string(
        "data_dir", None, "Where local data packs lie; None takes the run's own."
    )


def main() -> int:
    """Tests the model and prints what came of it."""
    given = flags.FLAGS
    if not given.run:
        raise ArgumentError("run", given.run, "a run folder")
    path = pathlib.Path(given.run)
    config = systems.config_of(path)
    record.check_settings(config, Journal(path / "journal.jsonl").began)
    if given.data_dir:
        config = dataclasses.replace(config, data_dir=given.data_dir)
    from tff_hdp.simulation.evaluation import evaluate_run

    found = evaluate_run(config, given.round)
    if given.format == "csv":
        print(found.clients.to_csv(index=False), end="")
        print(FOR_THE_OPERATOR, file=sys.stderr)
    elif given.format == "json":
        print(json.dumps(as_json(found), indent=2))
    else:
        print(as_text(found))
    return 0


def as_json(found: "Evaluation") -> dict[str, object]:
    """Everything, as JSON types."""
    return {
        "card": found.card,
        "accuracy": found.accuracy,
        "worst_decile": found.worst_decile,
        "clients_on": found.clients_on,
        "confusion": found.confusion.tolist(),
        "zones": found.zones.to_dict("records"),
        "clients": found.clients.to_dict("records"),
        "note": FOR_THE_OPERATOR,
    }


def as_text(found: "Evaluation") -> str:
    """Tables for people; single clients are for CSV."""
    clients = found.clients["accuracy"]
    quantiles = clients.quantile([0.0, 0.1, 0.5, 0.9, 1.0])
    spread = ", ".join(f"{q:.0%} {v:.4f}" for q, v in quantiles.items())
    return "\n".join(
        [
            f"accuracy {found.accuracy:.4f}, round {found.card['round']} "
            f"({found.card['chosen']})",
            "",
            "how often each class (row) was taken for each (column):",
            _confusion(found).to_string(),
            "",
            f"zones, on {found.clients_on}:",
            found.zones.to_string(index=False, float_format="{:.4f}".format),
            "",
            f"clients, on {found.clients_on}: mean {clients.mean():.4f}; worst decile "
            f"{found.worst_decile:.4f}; quantiles {spread}",
            FOR_THE_OPERATOR,
        ]
    )


def _confusion(found: "Evaluation") -> "pd.DataFrame":
    """By the classes' names, where a line has room for them all; else by number."""
    import pandas as pd

    # Models of runs of before have no names in their cards.
    names = found.card.get("class_names") or []
    fits = 0 < len(names) * (2 + max(map(len, names), default=0)) <= WIDTH
    labels = names if fits else range(len(found.confusion))
    return pd.DataFrame(found.confusion, labels, labels)


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
