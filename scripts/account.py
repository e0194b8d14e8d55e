"""Says what every client's privacy is worth against every observer.

python scripts/account.py --privacy=hdp --zones=10 --noise_multiplier=1
python scripts/account.py --privacy=c7 --alpha=0.3 --beta=0.3 --format=json
python scripts/account.py --privacy=ldp --calibrate=2 --observer=aggregator
python scripts/account.py --paper_table=III
python scripts/account.py --privacy=hdp --figure=epsilon.png
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

PRIVACY = ("ldp", "hdp", "cdp", *(f"c{i}" for i in range(1, 8)))
SAMPLING = ("poisson", "revealed", "fixed_size", "full")
NEIGHBOURS = ("add_or_remove", "zero_out", "replace_one")
OBSERVERS = ("super_node", "aggregator", "released_model")
KINDS = ("ldp", "hdp", "trusting")
FORMATS = ("table", "csv", "json")


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
    enum("mixing", "weighted", ("weighted", "equal"), "Weights p_i of the zones.")
    enum("sampling", "poisson", SAMPLING, "How cohorts are drawn.")
    boolean("cohort_hidden", True, "The aggregator does not learn who takes part.")
    enum("neighbours", None, NEIGHBOURS, "Relation; default: what fits the noise.")
    boolean("secure_aggregation", False, "Super-nodes see their zone's sum only.")
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
        "paper_table",
        None,
        ("I", "III"),
        "Print the paper's table instead: III at the paper's settings, I at those of "
        "--clients, --clients_per_round, --zones, --noise_multiplier, --rounds, "
        "--alpha and --beta; both at --delta.",
    )
    enum("format", "table", FORMATS, "How to print.")
    string("figure", None, "Also draw epsilon over rounds to this file.")


def request_from_flags() -> Any:
    """The flags as an `AccountRequest`."""
    from tff_hdp.privacy.request import AccountRequest

    names = [field.name for field in dataclasses.fields(AccountRequest)]
    values = {name: flags.FLAGS[name].value for name in names}
    if flags.FLAGS.paper_table is not None:
        # Its shares belong to several configurations at once.
        values |= {"privacy": "hdp", "alpha": None, "beta": None}
    if values["zone_sizes"] is not None:
        try:
            sizes = tuple(int(x) for x in values["zone_sizes"].split(","))
        except ValueError as error:
            raise ValueError(
                f"--zone_sizes is {values['zone_sizes']}; allowed: whole numbers "
                "separated by commas"
            ) from error
        values["zone_sizes"] = sizes
    return AccountRequest(**values)


def paper_table(request: Any) -> list[dict[str, Any]]:
    """The rows of --paper_table."""
    from tff_hdp.privacy import tables

    if flags.FLAGS.paper_table == "III":
        return tables.table_iii(delta=request.delta)
    given = {"alpha": flags.FLAGS.alpha, "beta": flags.FLAGS.beta}
    shares = {
        name: {k: v if given[k] is None else given[k] for k, v in values.items()}
        for name, values in tables.SHARES.items()
    }
    return tables.table_i(
        clients=sum(request.sizes),
        clients_per_round=request.clients_per_round,
        zones=len(request.sizes),
        noise_multiplier=request.noise_multiplier,
        rounds=request.rounds,
        delta=request.delta,
        shares=shares,
    )


def show(rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> None:
    """Prints rows in --format, and `notes` below a table."""
    if flags.FLAGS.format == "json":
        print(json.dumps(rows, indent=2))
        return
    if flags.FLAGS.format == "csv":
        writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    cells = [list(rows[0]), *([_cell(v) for v in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        pairs = zip(line, widths, strict=True)
        print("  ".join(cell.ljust(width) for cell, width in pairs).rstrip())
    for note in notes:
        print(note)


def draw(request: Any, path: str) -> None:
    """Draws epsilon by RDP over the rounds, one line per row of the account."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    steps = sorted({max(1, round(request.rounds * i / 40)) for i in range(1, 41)})
    curves: dict[str, list[float]] = {}
    for rounds in steps:
        at = dataclasses.replace(request, rounds=rounds)
        for row in at.rows(("rdp",)):
            zone = "" if row.zone is None else f", zone {row.zone}"
            label = f"{row.observer.replace('_', ' ')}: {row.client_kind} client{zone}"
            if row.epsilon_rdp is not None:
                curves.setdefault(label, []).append(row.epsilon_rdp)
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for label, epsilons in curves.items():
        axes.plot(steps[-len(epsilons) :], epsilons, label=label, linewidth=1.8)
    axes.set(
        xlabel="round",
        ylabel=f"epsilon (RDP, delta {request.delta:g})",
        title=f"{request.privacy}, z = {request.noise_multiplier:.4g}",
        yscale="log",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


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
    notes: list[str] = []
    if flags.FLAGS.paper_table is not None:
        from tff_hdp.privacy.tables import VERDICTS

        if figure:
            raise ValueError(f"--figure is {figure}; allowed: not with --paper_table")
        notes = [f"{formula}: {verdict}." for formula, verdict in VERDICTS.items()]
        show(paper_table(request), ["", *notes])
        return
    if flags.FLAGS.calibrate is not None:
        request = request.calibrated(
            flags.FLAGS.calibrate,
            observer=flags.FLAGS.observer,
            client_kind=flags.FLAGS.client_kind,
            method=flags.FLAGS.method,
        )
        notes = [f"--noise_multiplier={request.noise_multiplier!r} meets the target"]
    rows = [row.to_dict() for row in request.rows()]
    if flags.FLAGS.format == "table":
        rows, reasons = _without_words(rows)
        notes += reasons
    show(rows, ["", *notes])
    if figure:
        draw(request, figure)


def _without_words(
    rows: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Splits rows into columns of numbers and a line of words each."""
    words = ("neighbours", "sampling", "assumptions")
    numbers = [{k: v for k, v in row.items() if k not in words} for row in rows]
    for row in numbers:
        row["zone"] = "all" if row["zone"] is None else row["zone"]
    lines = []
    for row in rows:
        zone = "" if row["zone"] is None else f" of zone {row['zone']}"
        lines.append(
            f"{row['client_kind']} client{zone} against {row['observer']}: "
            f"{row['neighbours']} neighbours; {row['sampling']}; {row['assumptions']}."
        )
    return numbers, lines


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
