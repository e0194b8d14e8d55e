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
from tff_hdp.errors import ArgumentError

PRIVACY = ("ldp", "hdp", "cdp", *(f"c{i}" for i in range(1, 8)), "levels")
SAMPLING = ("poisson", "revealed", "fixed", "full")
NEIGHBOURS = ("add_or_remove", "zero_out", "replace_one")
OBSERVERS = ("super_node", "aggregator", "released_model")
KINDS = ("ldp", "hdp", "trusting")
FORMATS = ("table", "csv", "json")
RESTS_ON = {"released_rests_on": "released model", "aggregator_rests_on": "aggregator"}
WORDS = ("neighbours", "sampling", "assumptions", *RESTS_ON)


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
        "paper_table",
        None,
        ("I", "III", "others"),
        "Print the paper's table instead: III at the paper's settings, others for the "
        "four other systems, I at the settings of "
        "--clients, --clients_per_round, --zones, --noise_multiplier, --rounds, "
        "--alpha and --beta; all at --delta.",
    )
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
    if flags.FLAGS.paper_table is not None or flags.FLAGS.compare is not None:
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


def paper_table(request: Any) -> list[dict[str, Any]]:
    """The rows of --paper_table."""
    from scripts.papers.hdp import tables

    if flags.FLAGS.paper_table == "III":
        return tables.table_iii(delta=request.delta)
    if flags.FLAGS.paper_table == "others":
        return tables.other_papers(delta=request.delta)
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
    cli.refuse_arguments(argv)
    try:
        _main()
    except ValueError as error:
        # The library's arguments are named like the flags.
        name, _, rest = str(error).removeprefix("--").partition(" is ")
        value, _, allowed = rest.partition("; ")
        allowed = allowed.removeprefix("allowed: ")
        raise ArgumentError(name, value, allowed) from error
    return 0


def _main() -> None:
    figure = flags.FLAGS.figure
    if figure and not pathlib.Path(figure).resolve().parent.is_dir():
        raise ValueError(f"--figure is {figure}; allowed: a file in a folder there is")
    if figure and flags.FLAGS.paper_table:
        raise ValueError(f"--figure is {figure}; allowed: not with --paper_table")
    request = request_from_flags()
    if flags.FLAGS.paper_table:
        from scripts.papers.hdp.tables import VERDICTS

        notes = [f"{formula}: {verdict}." for formula, verdict in VERDICTS.items()]
        if flags.FLAGS.paper_table == "others":
            notes = [
                f"At delta {request.delta:g}, but for GFL, whose epsilon is pure. "
                "HFL-DP: one example or client replaced, every exposure seen. GFL: one "
                "client's samples replaced. UDP-Alg: add_or_remove, Poisson."
            ]
        show(paper_table(request), notes)
    elif flags.FLAGS.compare:
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
        for key, observer in RESTS_ON.items():
            if key in row:
                names = ("data_set", "configuration", "mode", "client_kind")
                who = " ".join(str(row[name]) for name in names if name in row)
                lines.append(
                    f"{who} against {observer}: delta {row['delta']:g}; {row[key]}."
                )
        if "assumptions" not in row:
            continue
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
