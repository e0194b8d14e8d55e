"""Tables I and III of the HDP paper and its claims on levels, as epsilons.

    python scripts/papers/hdp/reproduce.py --what=table1,table3 --out=runs/hdp_paper

Trains nothing: every number is an account, the paper's formula beside the sound one.
Leaves <part>.csv and <part>.txt in --out for every part of --what, levels.png for
`levels` and privacy_equal_multiplier.png and privacy_equal_release.png for `compare`.
The paper's trainings are the presets scripts/papers/hdp/*.flags of scripts/train.py;
scripts/account.py has the same account for any other federation.
"""

import pathlib
import sys
from typing import Any

from absl import flags

from tff_hdp import cli

PARTS = ("table1", "table3", "others", "levels", "compare")
Rows = list[dict[str, Any]]
# Who a row is about, in the lines that say what its epsilons rest on.
NAMES = ("data_set", "configuration", "mode", "client_kind", "noise_at", "level")
RESTS_ON = {"released_rests_on": "released model", "aggregator_rests_on": "aggregator"}
WORDS = ("neighbours", "sampling", "assumptions", *RESTS_ON)

WHAT = flags.DEFINE_list("what", list(PARTS), f"Some of {', '.join(PARTS)}.")
OUT = flags.DEFINE_string("out", "runs/hdp_paper", "Folder for tables and figures.")


def main(argv: list[str]) -> int:
    """Writes and prints the parts asked for."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", WHAT.value, PARTS)
    import pandas as pd

    from scripts.papers.hdp import closed_form

    folder = pathlib.Path(OUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    for part in WHAT.value:
        rows, notes = getattr(closed_form, part)(folder)
        table = pd.DataFrame(rows)
        table.to_csv(folder / f"{part}.csv", index=False)
        text = "\n".join([shown(table), "", *notes, *reasons(rows)])
        (folder / f"{part}.txt").write_text(text + "\n")
        print(f"{part}\n{text}\n")
    print(f"tables and figures: {folder}")
    return 0


def shown(table: Any) -> str:
    """A table as text, without the words that the lines below it say."""
    numbers = table.drop(columns=[name for name in WORDS if name in table])
    numbers = numbers.dropna(axis="columns", how="all")
    # As objects, a missing epsilon stays apart from what is no epsilon at all.
    cells = numbers.astype(object).where(numbers.notna(), "none")
    return cells.to_string(index=False, float_format="{:.6g}".format)


def reasons(rows: Rows) -> list[str]:
    """What each row's epsilons rest on, a line each."""
    lines = []
    for row in rows:
        who = ", ".join(
            f"{name.replace('_', ' ')} {row[name]}" for name in NAMES if name in row
        )
        seen = {RESTS_ON[key]: row[key] for key in RESTS_ON if key in row}
        if "assumptions" in row:
            observer = row["observer"].replace("_", " ")
            seen[observer] = (
                f"{row['neighbours']} neighbours; {row['sampling']}; "
                f"{row['assumptions']}"
            )
        for observer, basis in seen.items():
            lines.append(f"{who} against {observer}: delta {row['delta']:g}; {basis}.")
    return list(dict.fromkeys(lines))


if __name__ == "__main__":
    sys.exit(cli.run(main))
