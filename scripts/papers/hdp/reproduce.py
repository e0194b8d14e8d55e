"""The HDP paper's tables and figures: what its epsilons are worth, and its training.

    python scripts/papers/hdp/reproduce.py --what=table1,table3
    python scripts/papers/hdp/reproduce.py --what=figure2_mnist --seeds=0,1,2 --jobs=2

`table1`, `table3`, `others`, `levels` and `compare` train nothing: every number is an
account, the paper's formula beside the sound one; `table2` counts the data sets that
are at hand. They leave <part>.csv and <part>.txt in --out, and the figures of `levels`
and `compare`; without --out the CSV goes to docs/results/hdp too, in four digits. The
other parts train, or resume: a run folder a line and seed under --out,
docs/results/hdp/<part>.csv with a row a run, their tables in docs/hdp.md and their
pictures in docs/figures. `figure2` stands for its parts on all sets. Table IV is of
scripts/attack.py. scripts/account.py has the same account for any other federation.
"""

import pathlib
import sys
from typing import Any

from absl import flags

from tff_hdp import cli

PARTS = ("table1", "table3", "others", "levels", "compare")
# Needs data sets, but trains nothing.
COUNTED = ("table2",)
TRAINED = (
    *("digits", "mnist", "pages", "figure2_mnist", "figure2_emnist"),
    *("figure2_cifar10", "figure2_cifar100"),
    *("figure2_cifar10_chosen", "figure2_cifar100_chosen", "figure2_mnist_chosen"),
    *("figure3", "figure3_cifar10", "figure3_cifar100", "figure3_emnist"),
    *("table1_accuracy", "claim", "claim_sizes", "equal_release", "unequal_zones"),
    *("case4", "churn"),
)
# Of the paper's Figure 2, a part a set.
GROUPS = {
    "figure2": tuple(
        f"figure2_{name}" for name in ("mnist", "emnist", "cifar10", "cifar100")
    )
}
ROOT = pathlib.Path(__file__).parents[3]
PAGES = (ROOT / "docs" / "hdp.md", ROOT / "docs" / "data.md", ROOT / "README.md")
Rows = list[dict[str, Any]]
# Columns of what epsilons rest on, and the titles that their codes have.
RESTS_ON = {
    "released_rests_on": "released rests on",
    "aggregator_rests_on": "aggregator rests on",
}
WORDS = ("neighbours", "sampling", "assumptions", *RESTS_ON)


def define_flags() -> None:
    """Defines the parts, how large they are, and where they go."""
    from scripts.papers import program

    cli.define_choices("what", PARTS, (*PARTS, *COUNTED, *TRAINED, *GROUPS))
    flags.DEFINE_string("out", "runs/hdp_paper", "Folder for tables and figures.")
    program.define_common_flags(scale="full")
    flags.DEFINE_string("data_dir", None, "Folder with the data sets' files.")
    flags.DEFINE_enum(
        "compute_dtype",
        "float32",
        ["float32", "bfloat16"],
        "What clients' convolutions multiply; other than float32 is part of the names.",
    )


def main() -> int:
    """Writes and prints the parts asked for."""
    asked = flags.FLAGS
    # Before anything is written: it may be that the clone is not on the path.
    from scripts.papers import program, result_files

    parts = list(dict.fromkeys(p for w in asked.what for p in GROUPS.get(w, (w,))))
    trained = [part for part in parts if part in TRAINED]
    if not trained:
        needs_data = not set(COUNTED).isdisjoint(parts)
        program.refuse_of_training(["compute_dtype", *["data_dir"] * (not needs_data)])
    seeds = cli.check_seeds(asked.seeds)

    folder = pathlib.Path(asked.out)
    folder.mkdir(parents=True, exist_ok=True)
    results = None if asked["out"].present else result_files.RESULTS / "hdp"
    for part in parts:
        if part not in TRAINED:
            write(part, folder, results)
    failed = train(trained, seeds, folder) if trained else 0
    print(f"tables and figures: {folder}")
    return 1 if failed else 0


def write(part: str, folder: pathlib.Path, results: pathlib.Path | None) -> None:
    """Writes and prints a part that trains nothing."""
    import pandas as pd

    from scripts.papers.hdp import closed_form, data_sets
    from tff_hdp.files import write_text

    if part in COUNTED:
        rows, notes = data_sets.table_ii(flags.FLAGS.data_dir), []
    else:
        rows, notes = getattr(closed_form, part)(folder)
    frame = pd.DataFrame(rows)
    write_text(folder / f"{part}.csv", frame.to_csv(index=False))
    if results is not None:
        # As `program.write_accounts` has it, and why.
        text = frame.to_csv(index=False, float_format="%.4g")
        write_text(results / f"{part}.csv", text)
    text = "\n".join([*shown(rows), "", *notes])
    write_text(folder / f"{part}.txt", text + "\n")
    print(f"{part}\n{text}\n")


def train(parts: list[str], seeds: list[int], folder: pathlib.Path) -> int:
    """Runs what parts are made of, side by side; how many runs failed.

    The tiny scale leaves its results in --out, the others in the docs.
    """
    from scripts.papers import studies
    from scripts.papers.hdp import pictures, trained

    asked = flags.FLAGS
    changes = {} if asked.data_dir is None else {"data_dir": asked.data_dir}
    found = trained.studies(asked.scale, asked.compute_dtype)
    results = folder if asked.scale == "tiny" else studies.RESULTS
    return studies.run(
        [found[part] for part in parts],
        seeds=seeds,
        folder=folder / asked.scale,
        changes=changes,
        at_once=asked.jobs,
        results=results,
        pages=PAGES,
        draw=pictures.draw,
    )


def shown(rows: Rows) -> list[str]:
    """Rows as a table with codes for words, and what those mean."""
    import pandas as pd

    from tff_hdp.privacy.table import legend, numbered, rests_on

    bases = [_bases(row) for row in rows]
    codes = numbered([basis for each in bases for basis in each.values()])
    words = [{k: rests_on(v, codes) for k, v in each.items()} for each in bases]
    table = pd.DataFrame(rows).drop(columns=list(WORDS), errors="ignore")
    numbers = table.dropna(axis="columns", how="all")
    # As objects, a missing epsilon stays apart from what is no epsilon at all.
    cells = numbers.astype(object).where(numbers.notna(), "none")
    cells = cells.assign(**pd.DataFrame(words, index=cells.index))
    text = cells.to_string(index=False, float_format="{:.6g}".format)
    return [text, *([""] if codes else []), *legend(codes)]


def _bases(row: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What a row's epsilons rest on, by the title of the column of their codes."""
    found = {}
    if "assumptions" in row:
        found["rests on"] = {name: row[name] for name in WORDS[:3]}
    for name, title in RESTS_ON.items():
        if name in row:
            # A sentence each, the assumptions any number.
            neighbours, sampling, assumptions = row[name].split("; ", 2)
            found[title] = {
                "neighbours": neighbours.removesuffix(" neighbours"),
                "sampling": sampling,
                "assumptions": assumptions,
            }
    return found


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
