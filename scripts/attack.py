"""Attacks what an observer sees, and says what theory allows it to reach.

python scripts/attack.py --attack=identification --privacy=ldp --level=1
python scripts/attack.py --attack=dlg --task=mnist --privacy=none --level=1
python scripts/attack.py --attack=table4 --task=mnist --victims=50 --out=runs/table4
python scripts/attack.py --attack=membership --privacy=cdp --level=0 --figure=roc.png

What is attacked, from where, and what came of it: docs/attacks.md.
"""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from tff_hdp import cli
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.privacy.table import WIDTH, legend, numbered, rests_on

WORDS = ("neighbours", "sampling", "assumptions")
ARROWS = (
    "Epsilon is one client's, against the row's observer at its delta over its "
    "rounds, by PLD, or by RDP where there is no PLD; none: no guarantee. Zone and "
    "client_kind are the victim's, whom of all clients least noise hides from the "
    "observer. The attacker has more with larger PSNR, SSIM, AUC and identified, and "
    "with a smaller LPIPS, which is a distance. psnr_floor is what guessing the mean "
    "image reaches; by the account no attack exceeds bound in identified and auc_bound "
    "in AUC; refuted says whether the attack did exceed one."
)


def main() -> int:
    """Attacks as the flags say and prints what was reached."""
    config = cli.config_from_flags(AttackConfig)
    figure = config.figure
    cli.check_picture("figure", figure)
    from tff_hdp.attacks import run as runs

    if config.out:
        runs.open_folder(config)
    outcome = runs.run(config)
    if config.out:
        runs.write(config, outcome.rows)
    if figure:
        from tff_hdp.attacks import figures

        figures.draw(outcome, figure)
    show(outcome.rows, config.format)
    return 0


def show(rows: Sequence[dict[str, Any]], style: str) -> None:
    """Prints rows in --format; a table has codes for words, and says what they mean."""
    import pandas as pd

    if style == "json":
        print(json.dumps(rows, indent=2))
        return
    frame = pd.DataFrame(rows)
    if style == "csv":
        frame.to_csv(sys.stdout, index=False)
        return
    bases = [{"assumptions": "", **row} for row in rows]
    codes = numbered(bases)
    empty = {name for name in frame if frame[name].isna().all()} - {"epsilon"}
    shown = [name for name in frame if name not in {*WORDS, *empty}]
    cells = frame[shown].astype(object)
    cells = cells.where(cells.notna(), "none")
    cells["rests on"] = [rests_on(basis, codes) for basis in bases]
    print(cells.to_string(index=False, float_format="{:.6g}".format))
    print("", *textwrap.wrap(ARROWS, WIDTH), "", *legend(codes), sep="\n")


if __name__ == "__main__":
    cli.define_flags(AttackConfig)
    sys.exit(cli.run(main))
