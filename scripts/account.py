"""Says what every client's privacy is worth against every observer.

python scripts/account.py --privacy=hdp --zones=10 --noise_multiplier=1
python scripts/account.py --privacy=c7 --alpha=0.3 --beta=0.3 --format=json
python scripts/account.py --privacy=ldp --calibrate=2 --observer=aggregator
python scripts/account.py --privacy=hdp --figure=epsilon.png

The HDP paper's own tables: scripts/papers/hdp/reproduce.py.
"""

import csv
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from tff_hdp import cli

PRIVACY = ("ldp", "hdp", "cdp", *(f"c{i}" for i in range(1, 8)), "levels")
SAMPLING = ("poisson", "revealed", "fixed", "full")
NEIGHBOURS = ("add_or_remove", "zero_out", "replace_one")
OBSERVERS = ("super_node", "aggregator", "released_model")
KINDS = ("ldp", "hdp", "trusting")
FORMATS = ("table", "csv", "json")
WORDS = ("neighbours", "sampling", "assumptions")


def define_flags() -> None:
    """Defines the flags; those of `AccountRequest` carry its fields' names."""
    enum, number, boolean = flags.DEFINE_enum, flags.DEFINE_float, flags.DEFINE_boolean
    integer, string = flags.DEFINE_integer, flags.DEFINE_string
    enum("privacy", "hdp", PRIVACY, "Who adds noise (Table I).")
    number("alpha", None, "Share alpha of Table I, for c5 and c7.")
    number("beta", None, "Share beta of Table I, for c3, c6 and c7.")
    integer("clients", None, "Clients n; default 500.")
    number("clients_per_round", 100, "Expected cohort k; q = k/n.")
    integer("zones", 10, "Zones s, of equal size.")
    string("zone_sizes", None, "Sizes n_i instead, as 10,20,30.")
    string("levels", "", "Nodes of every level between zones and server, as 5,2.")
    string("noising_levels", "", "Which of those add noise too, as 2 or 2,3.")
    enum("mixing", "weighted", ("weighted", "equal"), "Weights p_i of the zones.")
    enum("sampling", "poisson", SAMPLING, "How cohorts are drawn.")
    boolean("cohort_hidden", True, "The aggregator does not learn who takes part.")
    enum("neighbours", None, NEIGHBOURS, "Relation; default: what fits the noise.")
    boolean("secure_aggregation", False, "Super-nodes see their zone's sum only.")
    boolean("secure_server", False, "The server sees the sum over zones only.")
    integer("min_zone_clients", 1, "A zone with fewer participants is left out.")
    integer("colluding", 0, "Super-nodes that collude with the observer.")
    integer("colluding_clients", 0, "Noising clients that collude with it.")
    boolean("elected_super_nodes", False, "Super-nodes are clients themselves.")
    number("dropout_rate", 0, "Probability that a drawn client never delivers.")
    number("noise_multiplier", 1, "z of every party that adds noise.")
    integer("rounds", 200, "Rounds T.")
    number("delta", 1e-5, "delta of (epsilon, delta).")
    number("calibrate", None, "Find z for this epsilon instead.")
    enum("observer", "released_model", OBSERVERS, "Against whom, for --calibrate.")
    enum("client_kind", None, KINDS, "For whom, for --calibrate; default: the worst.")
    enum("method", "rdp", ("rdp", "pld"), "Account that --calibrate must meet.")
    enum(
        "compare",
        None,
        ("multiplier", "release"),
        "Compare ldp, hdp and cdp instead: every party with --noise_multiplier, or "
        "every released model with it.",
    )
    enum("format", "table", FORMATS, "How to print.")
    string("figure", None, "Also draw it to this file (epsilon over rounds).")


def request_from_flags() -> Any:
    """The flags as an `AccountRequest`."""
    from tff_hdp.privacy.request import AccountRequest

    names = [field.name for field in dataclasses.fields(AccountRequest)]
    values = {name: flags.FLAGS[name].value for name in names}
    if flags.FLAGS.compare is not None:
        # Its shares belong to several configurations at once.
        values |= {"privacy": "hdp", "alpha": None, "beta": None}
    for name in ("zone_sizes", "levels", "noising_levels"):
        if values[name] is not None:
            values[name] = _whole_numbers(name, values[name])
    return AccountRequest(**values)


def _whole_numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if text)
    except ValueError as error:
        raise ValueError(
            f"--{name} is {text}; allowed: whole numbers separated by commas"
        ) from error


def show(rows: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> None:
    """Prints rows in --format; a table leaves words to the lines below it."""
    if flags.FLAGS.format == "json":
        print(json.dumps(rows, indent=2))
        return
    if flags.FLAGS.format == "csv":
        writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    shown = [{k: v for k, v in row.items() if k not in WORDS} for row in rows]
    cells = [list(shown[0]), *([_cell(*item) for item in r.items()] for r in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        pairs = zip(line, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in pairs).rstrip())
    print("", *notes, *_reasons(rows), sep="\n")


def main(argv: list[str]) -> int:
    """Prints the account that the flags ask for."""
    from tff_hdp.simulation.config import ConfigError

    cli.refuse_arguments(argv)
    try:
        _main()
    except ValueError as error:
        message = str(error)
        # The library's arguments are named like the flags.
        raise ConfigError(
            message if message.startswith("--") else "--" + message
        ) from error
    return 0


def _main() -> None:
    figure = flags.FLAGS.figure
    if figure and not pathlib.Path(figure).resolve().parent.is_dir():
        raise ValueError(f"--figure is {figure}; allowed: a file in a folder there is")
    request = request_from_flags()
    if flags.FLAGS.compare:
        from scripts.papers.hdp import figures, tables

        rows = tables.comparison(request, flags.FLAGS.compare)
        show(rows)
        if figure:
            figures.draw_comparison(rows, flags.FLAGS.compare, figure)
    else:
        notes = []
        if flags.FLAGS.calibrate is not None:
            request = calibrated(request)
            z = request.noise_multiplier
            notes = [f"--noise_multiplier={z!r} meets the target"]
        rows = request.rows()
        show([row.to_dict() for row in rows], [*notes, *_worst_zones(rows)])
        if figure:
            from scripts.papers.hdp import figures

            figures.draw_rounds(request, figure)


def calibrated(request: Any) -> Any:
    """The request with the multiplier that meets --calibrate."""
    return request.calibrated(
        flags.FLAGS.calibrate,
        observer=flags.FLAGS.observer,
        client_kind=flags.FLAGS.client_kind,
        method=flags.FLAGS.method,
    )


def _worst_zones(rows: Sequence[Any]) -> list[str]:
    """A line per observer against whom zones differ: the zone worst off."""
    from tff_hdp.privacy import worst

    lines = []
    for observer in OBSERVERS:
        for kind in KINDS:
            own = [r for r in rows if (r.observer, r.client_kind) == (observer, kind)]
            if len(own) > 1 and any(r.zone is not None for r in own):
                row = worst(own, observer)
                epsilon = _cell("epsilon", row.epsilon_rdp)
                lines.append(
                    f"worst {kind} clients against {observer}: zone {row.zone}, "
                    f"epsilon {epsilon} (RDP)"
                )
    return lines


def _reasons(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What each row of an account rests on, a line each."""
    lines = []
    for row in rows:
        mode = f"{row['mode']}: " if "mode" in row else ""
        zone = "" if row["zone"] is None else f" of zone {row['zone']}"
        lines.append(
            f"{mode}{row['client_kind']} client{zone} against {row['observer']}: "
            f"{row['neighbours']} neighbours; {row['sampling']}; {row['assumptions']}."
        )
    return list(dict.fromkeys(lines))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "all" if name == "zone" else "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
