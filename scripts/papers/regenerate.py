"""Makes everything again that a paper's page shows: one command a page.

    python scripts/papers/regenerate.py docs/gfl.md --jobs=2
    python scripts/papers/regenerate.py docs/hdp.md --list

A page's tables lie between marks that name their CSVs (`result_tables`), and what its
text rests on besides is in the CSVs to which it links. A part of its paper's
reproduce.py makes each, at the scale and with the seeds that the CSV has. These
commands run, or resume, one after the other, and the page gets the tables of what they
left; `--list` only prints them. What was never run is left out and named, as is what a
benchmark makes. Some pages take days, by their rounds' seconds.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import require

# What a CSV's name ends in, and what was asked of its part.
_ASKED = {"_reduced": "--scale=reduced", "_bfloat16": "--compute_dtype=bfloat16"}
# CSVs that a part leaves beside its own, or instead of it.
_PARTS = {
    "hdp/claim_losses": "claim",
    "hdp/claim_sizes_losses": "claim_sizes",
    "gfl/figure2_slopes": "figure2",
    "hfl_dp/noise": "account",
    "hfl_dp/epsilons": "account",
}
# How a page links to a CSV.
_LINK = re.compile(r"\(results/(\w+/\w+)\.csv\)")
# On a paper's page, but of no part.
_HIERARCHY = "benchmarks/hierarchy"


def define_flags() -> None:
    """Defines what the commands share."""
    flags.DEFINE_integer("jobs", 1, "Runs at a time.", lower_bound=1)
    flags.DEFINE_string("data_dir", None, "Folder with the data sets' files.")
    flags.DEFINE_boolean("list", False, "Print the commands, and run nothing.")


def main(words: list[str]) -> int:
    """Runs what the pages need, or prints it."""
    from scripts.papers import result_files, result_tables

    asked = flags.FLAGS
    pages = list(map(pathlib.Path, words))
    allowed = "pages of docs/ with tables of papers' programs, such as docs/gfl.md"
    for page in pages:
        require(page.is_file(), "PAGE", page, allowed)
    names = [name for page in pages for name in shown_in(page)]
    found = {name: command_of(name) for name in names}
    # A part may leave two of them.
    commands = {shlex.join(c): c for c in found.values() if c}
    require(bool(commands), "PAGE", " ".join(words) or "missing", allowed)
    own = {}
    if asked.data_dir is not None:
        # From where the commands run, a relative path would lead elsewhere.
        own["TFF_HDP_DATA"] = os.path.abspath(asked.data_dir)
    failed = []
    for shown, command in commands.items():
        # What trains nothing refuses to be told how.
        if trains := "--seeds" in shown:
            command = [*command, f"--jobs={asked.jobs}"]
        print(f"python {shown}" + f" --jobs={asked.jobs}" * trains, flush=True)
        if not asked.list:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=result_files.ROOT,
                env=os.environ | own,
                check=False,
            )
            failed += [shown] if done.returncode else []
    if not asked.list:
        # Not every command puts its table into every page that has it.
        for page in pages:
            result_tables.embed(page)
    for name, command in found.items():
        if command is None:
            print(f"left out, since never run or a benchmark's: {name}")
    for shown in failed:
        print(f"failed: python {shown}")
    return 1 if failed else 0


def shown_in(page: pathlib.Path) -> list[str]:
    """What a page shows the tables of, and then what else it links to the CSVs of."""
    from scripts.papers import result_tables

    tables = result_tables.embedded(page)
    return list(dict.fromkeys([*tables, *_LINK.findall(page.read_text())]))


def command_of(name: str) -> list[str] | None:
    """The program, and its flags, that make a CSV of docs/results again.

    Args:
      name: <paper>/<study>, as a page's marks have it.

    Returns:
      None if there is no such CSV yet, or none of the programs makes it.

    Raises:
      FileError: If the CSV is damaged.
    """
    from scripts.papers import result_files

    if name == _HIERARCHY:
        return [f"{name}.py", f"--csv=docs/results/{name}.csv"]
    if name.startswith("attacks/"):
        return _of_attacks(name.removeprefix("attacks/"))
    # Beside what is printed stand the same runs, and a sweep's best are of it.
    name = name.removesuffix("_printed").removesuffix("_best")
    paper, _, study = name.partition("/")
    program = f"scripts/papers/{paper}/reproduce.py"
    path = result_files.RESULTS / f"{name}.csv"
    if not (result_files.ROOT / program).exists() or not path.exists():
        return None
    frame = result_files.read(path)
    part, scale = _PARTS.get(name, study), "--scale=full"
    if "seed" not in frame:
        return [program, f"--what={part}"]
    for suffix, asked in _ASKED.items():
        if part.endswith(suffix):
            part, scale = part.removesuffix(suffix), asked
    return [program, f"--what={part}", scale, _seeds(frame["seed"])]


def _of_attacks(table: str) -> list[str] | None:
    """What makes the CSVs that a table of attacks is of, if all are there."""
    from scripts.papers import result_files
    from scripts.papers.attacks.commands import SEVERAL

    parts = SEVERAL.get(table, [table])
    paths = [result_files.RESULTS / "attacks" / f"{part}.csv" for part in parts]
    if not all(path.exists() for path in paths):
        return None
    seeds = [seed for path in paths for seed in result_files.read(path)["seed"]]
    what = f"--what={','.join(parts)}"
    return ["scripts/papers/attacks/reproduce.py", what, _seeds(seeds)]


def _seeds(seeds: Iterable[float]) -> str:
    return "--seeds=" + ",".join(map(str, sorted({int(seed) for seed in seeds})))


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags, takes_words=True))
