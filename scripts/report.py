"""Finished runs side by side, or one as a page to hand on.

    python scripts/report.py --runs=runs/mnist/none,runs/mnist/hdp --out=runs/mnist
    python scripts/report.py --run=runs/mine --html=mine.html

The first writes table and figure; the second one self-contained HTML file: what was
trained on what, who is promised what in plain sentences, epsilon over rounds, accuracy,
faults, attacks if there are, versions and the command.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.files import write_text
from tff_hdp.reading import read_json

if TYPE_CHECKING:
    from tff_hdp.simulation.report import Run


_WHAT = {
    "run": "the folder of a run",
    "html": "a file to write, as --html=page.html",
    "runs": "folders of runs, joined by commas",
    "out": "a folder for the table and the figure",
}


def define_flags() -> None:
    """Defines the runs, and what is made of them."""
    flags.DEFINE_list("runs", None, "Run folders, in the order of the table.")
    flags.DEFINE_string("out", None, "Folder for table.csv, table.txt, accuracy.png.")
    flags.DEFINE_string("run", None, "One run folder, for --html.")
    flags.DEFINE_string("html", None, "The page to write.")


def main() -> int:
    """Writes the page, or prints the table and writes it with the figure."""
    given = flags.FLAGS
    page_asked, table_asked = ("run", "html"), ("runs", "out")
    if not any(given[name].value for name in (*page_asked, *table_asked)):
        allowed = "a run folder, with --html=FILE; or --runs=FOLDER,... --out=FOLDER"
        raise ArgumentError("run", given.run, allowed)
    one = bool(given.run or given.html)
    for name in page_asked if one else table_asked:
        if not given[name].value:
            raise ArgumentError(name, given[name].value, _WHAT[name])
    for name in table_asked if one else ():
        if given[name].value:
            allowed = "nothing with --run and --html"
            raise ArgumentError(name, given[name].value, allowed)
    if one:
        path = pathlib.Path(given.html)
        if not path.resolve().parent.is_dir():
            raise ArgumentError("html", given.html, "a file in a folder there is")
        write_text(path, page(pathlib.Path(given.run)))
        print(f"page: {path}")
        return 0
    from tff_hdp.simulation import report

    runs, folder = list(map(read, map(pathlib.Path, given.runs))), given.out
    with _readable(",".join(given.runs)):
        report.write_comparison(runs, pathlib.Path(folder))
        print(report.comparison_text(runs))
    print(f"\ntable:  {folder}/table.txt\nfigure: {folder}/accuracy.png")
    return 0


def read(path: pathlib.Path) -> "Run":
    """A finished run, its rounds accounted anew."""
    from tff_hdp.simulation import report

    return report.accounted(report.read_run(path), systems.config_of(path))[0]


def page(path: pathlib.Path) -> str:
    """The page of a finished run."""
    from tff_hdp.simulation import html_report, report

    config = systems.config_of(path)
    run, ledger = report.accounted(report.read_run(path), config)
    curves = {}
    if run.accounts:
        state = ledger.state_dict()
        curves = html_report.epsilon_curves(state, config.new_ledger, config.delta)
    with _readable(path):
        return html_report.html_report(
            run,
            command=systems.command_of(config),
            curves=curves,
            headline=read_json(path / "model/last/card.json")["metric"],
            observers=config.observers,
        )


@contextlib.contextmanager
def _readable(path: str | pathlib.Path) -> Iterator[None]:
    """Files of a run that somebody else wrote to end in one line."""
    try:
        yield
    except (FileError, ArgumentError):
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(path, f"holds no run that can be read: {error!r}") from error


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
