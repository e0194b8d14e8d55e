"""What a run was started with: config.json, and that it is still the same."""

import dataclasses
import functools
import importlib.metadata
import json
import logging
import pathlib
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from tff_hdp.errors import ArgumentError, FileError, require
from tff_hdp.reading import read_json
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.journal import Journal

_LOG = logging.getLogger(__name__)

_PACKAGES = (
    *("tff_hdp", "tensorflow", "tensorflow-federated", "tensorflow-privacy"),
    *("dp-accounting", "numpy"),
)
# Of the journal, of checkpoints and of what is resolved: a run of another one is not
# resumed.
LAYOUT = 5
# A note of runs with a seed.
SEEDED = (
    "seed={seed} fixes the cohorts. This is a test option: the amplification by "
    "sampling holds only against those who do not know the seed. The noise is not "
    "seeded."
)
# Extending a run, moving it or watching it otherwise is no new run.
_MAY_CHANGE = {
    *("rounds", "out", "runtime", "workers", "data_dir"),
    *("evaluate_every", "log_every", "quiet"),
}


def record_of(config: RunConfig, resolved: dict[str, Any]) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "resolved": resolved,
        "system": config.system,
        "layout": LAYOUT,
        "flags": as_json(config.to_dict()),
        "versions": {p: _version(p) for p in _PACKAGES},
        "git_commit": git_commit(),
    }


def check_same(config: RunConfig, began: Mapping[str, Any]) -> None:
    """Checks that a config may go on with a run.

    Args:
      config: What is asked now.
      began: `record_of` what the run began with.

    Raises:
      ArgumentError: If it may not.
      FileError: If the journal does not say what the run began with.
    """
    if began.get("layout") != LAYOUT:
        raise _of_another_version(config.out)
    if "system" not in began or not isinstance(began.get("flags"), dict):
        raise _without_a_beginning(config.out)
    if began["system"] != config.system:
        raise ArgumentError(
            "out", config.out, f"a folder without a run of {began['system']}"
        )
    fixed = {"rounds"} if config.fixes_rounds else set()
    # A setting that is newer than the run changes nothing at its default.
    newer = defaults_of(config)
    for name, value in as_json(config.to_dict()).items():
        before = began["flags"].get(name, newer.get(name))
        if name in config.files and None not in (value, before):
            continue
        if name not in _MAY_CHANGE - fixed and value != before:
            raise ArgumentError(
                name,
                value,
                f"{before}, with which the run in out={config.out} was started",
            )
        if name == "rounds" and config.bounds_rounds and value > before:
            raise ArgumentError(
                name,
                value,
                f"at most {before}, for which the noise of the run in "
                f"out={config.out} was chosen",
            )


def check_repeats(path: pathlib.Path, began: Mapping[str, Any]) -> None:
    """Raises FileError unless a run began as config.json says.

    One that is missing or damaged says nothing: it is written again.
    """
    resolved = began.get("resolved")
    if not isinstance(resolved, dict):
        raise _without_a_beginning(path.parent)
    try:
        shown = dict(read_json(path)["resolved"])
    except (FileNotFoundError, FileError, KeyError, TypeError, ValueError) as error:
        _LOG.warning("config.json is written again from the journal: %s", error)
        return
    if name := difference(shown, resolved, {**resolved, **shown}):
        raise FileError(
            path,
            f"resolved says {name} is {shown.get(name)}, but the run began with "
            f"{resolved.get(name)}",
        )


def check_settings(config: RunConfig, began: Mapping[str, Any]) -> None:
    """Raises FileError unless a run began with the settings that config.json has.

    Args:
      config: They, `out` its folder.
      began: What the journal says; empty where an earlier version wrote none.
    """
    path = pathlib.Path(config.out) / "config.json"
    if not began:
        return
    try:
        check_same(config, began)
    except ArgumentError as error:
        raise FileError(path, f"is not what the run began with: {error}") from error
    check_repeats(path, began)


def _without_a_beginning(out: str | pathlib.Path) -> FileError:
    return FileError(
        pathlib.Path(out) / "journal.jsonl",
        "does not say what the run began with: start in a new folder",
    )


def refuse_foreign(path: pathlib.Path) -> None:
    """Raises ArgumentError if a folder without a journal holds what no run left there.

    A run would write over it, or remove it at its end.
    """
    if (path / "journal.jsonl").exists():
        return
    states = path / "checkpoints"
    try:
        is_ours = read_json(path / "config.json").keys() >= {"layout", "system"}
    except FileNotFoundError:
        # A start that was killed may have left a folder for its states.
        holds_states = states.is_dir() and any(states.iterdir())
        is_ours = not (holds_states or (path / "model").exists())
    except (FileError, AttributeError):
        is_ours = False
    allowed = "a new folder, or one without config.json, model and checkpoints; those "
    allowed += "in this one are no run's, or of a run by another version"
    require(is_ours, "out", path, allowed)


def refuse_uncounted(path: pathlib.Path) -> None:
    """Raises ArgumentError if a folder without a journal holds what a run left."""
    states, rows = path / "checkpoints", path / "metrics.csv"
    if not (
        (states.is_dir() and any(states.iterdir()))
        or (path / "privacy.json").exists()
        or (path / "model").exists()
        or (rows.exists() and rows.read_bytes().count(b"\n") > 1)
    ):
        return
    try:
        layout = read_json(path / "config.json")["layout"]
    except (FileNotFoundError, FileError, KeyError, TypeError):
        layout = None
    if layout != LAYOUT:
        raise _of_another_version(path)
    raise ArgumentError(
        "out",
        path,
        "a new folder, or one whose run can be resumed; this one's journal is gone, "
        "and starting over would forget what was released",
    )


def defaults_of(config: RunConfig) -> dict[str, Any]:
    """Every setting's default, as it would be written."""
    fields = dataclasses.fields(config)
    return as_json(
        {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
    )


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as they are once they were written and read."""
    return json.loads(json.dumps(values, allow_nan=False))


def refuse_older_journal(path: pathlib.Path, journal: Journal, last_row: int) -> None:
    """Raises FileError if a folder tells of releases that its journal does not.

    As where journal and checkpoints were put back from a copy. A privacy.json that is
    missing or damaged tells nothing, which the log then says. `last_row` is the last
    round of metrics.csv.
    """
    uncounted = "so what was released cannot be counted: start in a new folder"
    if last_row > journal.last_round:
        raise FileError(
            journal.path,
            f"ends at round {journal.last_round}, but metrics.csv has round "
            f"{last_row}, {uncounted}",
        )
    try:
        releases, head = read_json(path / "privacy.json")["journal"]
        releases = int(releases)
    except (
        *(FileNotFoundError, FileError),
        *(KeyError, TypeError, ValueError, OverflowError),
    ) as error:
        if journal.releases:
            _LOG.warning(
                "%d rounds were released, but privacy.json cannot be read, so nothing "
                "but metrics.csv and the checkpoints tells whether the journal is the "
                "newest: %s",
                journal.releases,
                error,
            )
        return
    is_same = releases <= journal.releases and journal.head(releases) == head
    if not is_same:
        raise FileError(
            journal.path,
            f"is not the journal that privacy.json was written with, {uncounted}",
        )


def difference(
    found: Mapping[str, Any], wanted: Mapping[str, Any], names: Iterable[str]
) -> str | None:
    """The first of some names that two mappings do not share."""
    missing = object()
    return next(
        (n for n in names if found.get(n, missing) != wanted.get(n, missing)), None
    )


def _of_another_version(path: object) -> ArgumentError:
    return ArgumentError(
        "out",
        path,
        "a new folder; the run in this one was started by another version, whose "
        "checkpoints cannot be resumed",
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def git_commit() -> str:
    """The commit that the library is of; `unknown` where it is of no clone."""

    def said(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        # An installed library may lie within somebody's repository, and not be of it.
        said("ls-files", "--error-unmatch", pathlib.Path(__file__).name)
        return said("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
