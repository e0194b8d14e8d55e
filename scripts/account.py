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
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import require
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.table import account_text


def define_flags() -> None:
    """Defines the flags, those of `AccountConfig`."""
    cli.define_flags(AccountConfig)


def show(rows: Sequence[dict[str, Any]], style: str, notes: Sequence[str] = ()) -> None:
    """Prints rows in --format; a table has codes for words, and says what they mean.

    Notes are part of the table, and with other formats go to stderr.
    """
    if style == "table":
        print(account_text(rows, notes))
        return
    if style == "json":
        print(json.dumps(rows, indent=2))
    else:
        writer = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for note in notes:
        print(note, file=sys.stderr)


def main() -> int:
    """Prints the account that the flags ask for."""
    config = cli.config_from_flags(AccountConfig)
    names = [field.name for field in dataclasses.fields(config)]
    config.check_given([name for name in names if flags.FLAGS[name].present])
    _run(config)
    return 0


def _run(config: AccountConfig) -> None:
    figure = config.figure
    cli.check_picture("figure", figure)
    if config.compare:
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
        notes.append(_accounted(config))
        rows = config.rows()
        is_drawn = any(row.epsilon_rdp is not None for row in rows)
        allowed = "nothing where no client has a guarantee to draw"
        require(is_drawn or not figure, "figure", figure, allowed)
        worst_zones = _worst_zones(rows)
        show([row.to_dict() for row in rows], config.format, [*notes, *worst_zones])
        if figure:
            from scripts.papers.hdp import figures

            figures.draw_rounds(config, figure)


def _accounted(config: AccountConfig) -> str:
    """Of what the epsilons are, defaults included: a line."""
    rounds, sizes = config.asked.rounds, config.asked.plan.zone_sizes
    if config.plan is not None:
        return f"{rounds} rounds, of the plan in {config.plan}"
    return f"{rounds} rounds, {sum(sizes)} clients, zones: {len(sizes)}"


def _worst_zones(rows: Sequence[Any]) -> list[str]:
    """A line per observer against whom zones differ: the zone worst off by RDP."""
    from tff_hdp.privacy import worst

    lines = []
    for observer in AccountConfig.choices["observer"]:
        for kind in AccountConfig.choices["client_kind"]:
            own = [r for r in rows if (r.observer, r.client_kind) == (observer, kind)]
            if len(own) > 1 and any(r.zone is not None for r in own):
                row = worst(own, observer, method="rdp")
                sound = row.epsilon_rdp
                epsilon = "none" if sound is None else f"{sound:.4g}"
                # Of several levels some may treat all zones alike.
                where = "all zones" if row.zone is None else f"zone {row.zone}"
                lines.append(
                    f"worst {kind} clients against {observer}: {where}, "
                    f"epsilon {epsilon} (RDP)"
                )
    return lines


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
