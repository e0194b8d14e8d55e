"""What the programs that reproduce a paper share: their flags, and how they run."""

import dataclasses
import io
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

import tasks
from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.config import RunConfig

SCALES = ("full", "reduced", "tiny")
# Flags that say nothing of what is not trained.
_OF_TRAINING = ("scale", "seeds", "jobs")
# Settings that change nothing of what comes out.
_ELSEWHERE = ("data_dir", "runtime", "workers", "log_every", "quiet")


def define_flags(
    parts: Sequence[str],
    config_class: type[RunConfig],
    *,
    scale: str = "reduced",
    default: Sequence[str] = (),
) -> None:
    """Defines the flags of a program, and one for every setting of its runs.

    Args:
      parts: What `--what` takes.
      config_class: A setting on the command line counts for all runs.
      scale: The default one.
      default: The parts that are run without `--what`; empty is all.
    """
    cli.define_choices("what", default or parts, parts)
    define_common_flags(scale)
    cli.define_flags(config_class)


def define_common_flags(scale: str) -> None:
    """Defines how large runs are, by default of a scale, their seeds, and how many."""
    flags.DEFINE_enum("scale", scale, list(SCALES), "How large the runs are.")
    flags.DEFINE_list("seeds", ["0", "1", "2"], "A run of every line for each.")
    flags.DEFINE_integer("jobs", 1, "Runs at a time.", lower_bound=1)


def run(
    parts: Sequence[str],
    config_class: type[RunConfig],
    *,
    paper: str,
    page: str,
    studies: Callable[[str], Mapping[str, Any]],
    draw: Any,
    wanted: Callable[[Mapping[str, Any]], bool] | None = None,
    own: bool = False,
) -> int:
    """Runs or resumes what the flags ask for; writes CSVs, tables and pictures.

    They go to docs/ unless the scale is `tiny` or a setting was given; then to --out.
    A part whose data is not at hand is left out, and said to be.

    Args:
      parts: Which of the studies.
      config_class: As given to `define_flags`.
      paper: The folder of the run folders is runs/<paper> unless --out says else.
      page: Of docs/, with the tables.
      studies: The studies of a scale, by part.
      draw: See `studies.run`.
      wanted: Likewise.
      own: Whether `studies` are not the docs', so that results go to --out.

    Returns:
      1 if a run failed, else 0.

    Raises:
      ArgumentError: If a setting is given by which a part's lines are told apart, or
        none of them is wanted.
      DataNotFoundError: If no part has its data.
    """
    from scripts.papers import presets
    from scripts.papers import studies as study_runs

    given = presets.given(config_class)
    asked = flags.FLAGS
    if "seed" in given:
        raise ArgumentError("seed", given["seed"], "--seeds, a run of all for each")
    numbers = cli.check_seeds(flags.FLAGS.seeds)
    results = results_folder(given, paper, own=own)
    folder = pathlib.Path(given.pop("out", f"runs/{paper}"))
    found = studies(asked.scale)
    chosen, missing = [], []
    for part in parts:
        for name in found[part].varied:
            if name in given:
                allowed = f"nothing with --what={part}, whose lines have their own"
                raise ArgumentError(name, given[name], allowed)
        labels = [line.label for line in found[part].lines]
        if wanted is not None and not any(map(wanted, labels)):
            raise ArgumentError("what", part, "parts with rows of what is asked for")
        try:
            _find_data(found[part].config(found[part].lines[0], given))
            chosen.append(found[part])
        except tasks.DataNotFoundError as error:
            missing.append(f"{part} left out: {error}")
    if not chosen:
        raise tasks.DataNotFoundError("; ".join(missing))
    failed = study_runs.run(
        chosen,
        seeds=numbers,
        folder=folder / asked.scale,
        changes=given,
        at_once=asked.jobs,
        results=results,
        pages=[study_runs.ROOT / "docs" / page],
        draw=draw,
        wanted=wanted,
    )
    for line in missing:
        print(line)
    return 1 if failed else 0


def results_folder(
    given: Mapping[str, Any], paper: str, *, own: bool = False
) -> pathlib.Path:
    """Where CSVs go, in a folder for each paper: see `run`.

    Args:
      given: Settings on the command line.
      paper: As given to `run`.
      own: Likewise.
    """
    from scripts.papers.result_files import RESULTS

    elsewhere = given.keys() <= {"out", *_ELSEWHERE}
    own = own or flags.FLAGS.scale == "tiny" or not elsewhere
    return pathlib.Path(given.get("out", f"runs/{paper}")) if own else RESULTS


def refuse_of_training(names: Iterable[str] = ()) -> None:
    """Refuses flags that only a training would heed, where none is asked for.

    Args:
      names: Flags besides those that all programs have.

    Raises:
      ArgumentError: If one is given.
    """
    allowed = "nothing with parts of --what that are not trained"
    for name in (*_OF_TRAINING, *names):
        if flags.FLAGS[name].present:
            raise ArgumentError(name, flags.FLAGS[name].value, allowed)


def write_accounts(
    tables: Mapping[str, Callable[..., Any]],
    config_class: type[RunConfig],
    *,
    paper: str,
    heeded: Sequence[str],
    alone: bool,
    notes: Mapping[str, str],
) -> None:
    """Prints what trains nothing, and writes a CSV of each table.

    They go to --out if it is given, and else to docs/, but to neither if a setting is
    given without --out. Numbers have four digits: those after them follow the
    accountant's margins (how far noise of finite precision may be from exact noise, the
    grid of a PLD), which a version may change, and a platform's arithmetic.

    Args:
      tables: By the CSV's name, what makes the table of the settings that are given.
      config_class: As given to `define_flags`.
      paper: The folder of the CSVs.
      heeded: Settings that the tables depend on.
      alone: Whether nothing is trained besides, so that all others are refused.
      notes: By the CSV's name, what must be known of the table's numbers.

    Raises:
      ArgumentError: If a flag is given that would do nothing.
    """
    from scripts.papers import presets, result_files, result_tables
    from tff_hdp.files import write_text

    if alone:
        names = {field.name for field in dataclasses.fields(config_class)}
        refuse_of_training(sorted(names - {"out", *heeded}))
    else:
        # Before anything is written.
        cli.check_seeds(flags.FLAGS.seeds)
    given = presets.given(config_class)
    folder = given.pop("out", None)
    changes = {k: v for k, v in given.items() if k not in _ELSEWHERE}
    if folder is None and not changes:
        folder = result_files.RESULTS
    for name, make in tables.items():
        content = make(**changes).to_csv(index=False, float_format="%.4g")
        print(f"{name}\n{result_tables.table(io.StringIO(content))}\n{notes[name]}")
        if folder is not None:
            path = pathlib.Path(folder) / paper / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, content)
            print(path)
        print()


def _find_data(config: RunConfig) -> None:
    """Raises DataNotFoundError where a run would, before any is started."""
    if config.task in tasks.TASKS and tasks.TASKS[config.task].files is not None:
        config.load_task(0)
