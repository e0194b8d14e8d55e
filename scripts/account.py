"""Says what every client's privacy is worth against every observer.

python scripts/account.py --privacy=hdp --zones=10 --noise_multiplier=1
python scripts/account.py --privacy=c7 --alpha=0.3 --beta=0.3 --format=json
python scripts/account.py --privacy=ldp --calibrate=2 --observer=aggregator
python scripts/account.py --privacy=hdp --figure=epsilon.png

The HDP paper's own tables: scripts/papers/hdp/reproduce.py.
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

WORDS = ("neighbours", "sampling", "assumptions")


def define_flags() -> None:
    """Defines the flags, those of `AccountConfig`."""
    cli.define_flags(AccountConfig)


def show(rows: Sequence[dict[str, Any]], style: str, notes: Sequence[str] = ()) -> None:
    """Prints rows in --format; a table leaves words to the notes below it."""
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
    print("", *notes, sep="\n")


def main(argv: list[str]) -> int:
    """Prints the account that the flags ask for."""
    cli.refuse_arguments(argv)
    _run(cli.config_from_flags(AccountConfig))
    return 0


def _run(config: AccountConfig) -> None:
    figure = config.figure
    if figure and not pathlib.Path(figure).resolve().parent.is_dir():
        raise ArgumentError("figure", figure, "a file in a folder there is")
    if config.compare:
        from scripts.papers.hdp import figures, tables

        rows = tables.comparison(config, config.compare)
        show(rows, config.format, _reasons(rows))
        if figure:
            figures.draw_comparison(rows, config.compare, figure)
    else:
        notes = []
        if config.calibrate is not None:
            config = config.calibrated()
            notes = [f"--noise_multiplier={config.noise_multiplier!r} meets the target"]
        rows = config.rows()
        notes += _worst_zones(rows)
        rows = [row.to_dict() for row in rows]
        show(rows, config.format, [*notes, *_reasons(rows)])
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
