"""Says what every client's privacy is worth against every observer.

python scripts/account.py --privacy=hdp --zones=10 --noise_multiplier=1
python scripts/account.py --privacy=c7 --alpha=0.3 --beta=0.3 --format=json
python scripts/account.py --privacy=ldp --calibrate=2 --observer=aggregator
python scripts/account.py --paper_table=III
python scripts/account.py --privacy=hdp --figure=epsilon.png
"""

import csv
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.config import AccountConfig

RESTS_ON = {"released_rests_on": "released model", "aggregator_rests_on": "aggregator"}
WORDS = ("neighbours", "sampling", "assumptions", *RESTS_ON)


def define_flags() -> None:
    """Defines the flags, those of `AccountConfig`."""
    cli.define_flags(AccountConfig)


def paper_table(config: AccountConfig) -> list[dict[str, Any]]:
    """The rows of --paper_table."""
    from scripts.papers.hdp import tables

    if config.paper_table == "III":
        return tables.table_iii(delta=config.delta)
    if config.paper_table == "others":
        return tables.other_papers(delta=config.delta)
    given = {"alpha": config.alpha, "beta": config.beta}
    shares = {
        name: {k: v if given[k] is None else given[k] for k, v in values.items()}
        for name, values in tables.SHARES.items()
    }
    return tables.table_i(
        clients=sum(config.sizes),
        clients_per_round=config.clients_per_round,
        zones=len(config.sizes),
        noise_multiplier=config.noise_multiplier,
        rounds=config.rounds,
        delta=config.delta,
        shares=shares,
    )


def show(rows: Sequence[dict[str, Any]], style: str, notes: Sequence[str] = ()) -> None:
    """Prints rows in --format; a table leaves words to the lines below it."""
    if style == "json":
        print(json.dumps(rows, indent=2))
        return
    if style == "csv":
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
    _run(cli.config_from_flags(AccountConfig))
    return 0


def _run(config: AccountConfig) -> None:
    figure = config.figure
    if figure and not pathlib.Path(figure).resolve().parent.is_dir():
        raise ArgumentError("figure", figure, "a file in a folder there is")
    if config.paper_table:
        if figure:
            raise ArgumentError("figure", figure, "not with --paper_table")
        from scripts.papers.hdp.tables import VERDICTS

        notes = [f"{formula}: {verdict}." for formula, verdict in VERDICTS.items()]
        if config.paper_table == "others":
            notes = [
                f"At delta {config.delta:g}, but for GFL, whose epsilon is pure. "
                "HFL-DP: one example or client replaced, every exposure seen. GFL: one "
                "client's samples replaced. UDP-Alg: add_or_remove, Poisson."
            ]
        show(paper_table(config), config.format, notes)
    elif config.compare:
        from scripts.papers.hdp import figures, tables

        rows = tables.comparison(config, config.compare)
        show(rows, config.format)
        if figure:
            figures.draw_comparison(rows, config.compare, figure)
    else:
        notes = []
        if config.calibrate is not None:
            config = config.calibrated()
            notes = [f"--noise_multiplier={config.noise_multiplier!r} meets the target"]
        rows = config.rows()
        worst_zones = _worst_zones(rows)
        show([row.to_dict() for row in rows], config.format, [*notes, *worst_zones])
        if figure:
            from scripts.papers.hdp import figures

            figures.draw_rounds(config, figure)


def _worst_zones(rows: Sequence[Any]) -> list[str]:
    """A line per observer against whom zones differ: the zone worst off."""
    from tff_hdp.privacy import worst

    lines = []
    for observer in AccountConfig.choices["observer"]:
        for kind in AccountConfig.choices["client_kind"]:
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
