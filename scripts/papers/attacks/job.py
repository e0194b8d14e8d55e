"""One attack of a CSV: its settings and folder, and whether it has been made."""

import dataclasses
import hashlib
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from scripts.papers.attacks.commands import CSVS, Settings
from scripts.papers.result_files import ROOT
from scripts.parts.sweep_job import Job
from scripts.parts.sweep_runs import folder_name
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import FileError
from tff_hdp.reading import read_json

# What the rows are the same with, or differ by the seed alone.
_NOWHERE = ("out", "figure", "format", "data_dir", "seed")
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(AttackConfig)}


class AttackJob(Job):
    """A run of scripts/attack.py; `config` is an `AttackConfig`."""

    @property
    def digest(self) -> str:
        """Tells settings apart, whatever the seed and where rows are left.

        A setting at its default does not count, so that new ones change no digest.
        """
        asked = {k: v for k, v in self._asked().items() if v != _DEFAULTS[k]}
        text = json.dumps(asked, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds the rows of these very settings and seed."""
        try:
            self.rows()
        except (OSError, FileError):
            return False
        return True

    @property
    def rounds(self) -> int:
        """One: rounds do not say how long an attack takes."""
        return 1

    @property
    def rounds_done(self) -> int:
        """Whether it has been made, as a number."""
        return int(self.is_finished)

    def rows(self) -> list[dict[str, Any]]:
        """What it reached, with `digest`, `git_commit` and `seed`.

        Raises:
          OSError: If the folder is not there.
          FileError: If it does not hold all of that.
        """
        made = read_json(self.path / "config.json")
        rows = read_json(self.path / "rows.json")
        known = isinstance(made, dict) and made.get("git_commit")
        whole = isinstance(rows, list) and bool(rows)
        asked = {**self._asked(), "seed": self.config.seed}
        same = known and all(
            made.get(name, _DEFAULTS[name]) == value for name, value in asked.items()
        )
        if not (same and whole):
            raise FileError(self.path, "does not hold this attack's rows")
        of_run = {
            **{"digest": self.digest, "git_commit": made["git_commit"]},
            **{"seed": self.config.seed},
        }
        return [{**row, **of_run} for row in rows]

    def _asked(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self.config)
        return {k: v for k, v in settings.items() if k not in _NOWHERE}


def jobs_of(
    name: str, seeds: Sequence[int], folder: pathlib.Path, **changes: Any
) -> list[AttackJob]:
    """A CSV's attacks, all of the first seed first.

    Args:
      name: The CSV's.
      seeds: Each decides weights, victims, starts and trials.
      folder: Of the attacks' folders.
      **changes: Settings of all of them, such as `data_dir`.
    """
    return [
        _job(settings, seed, folder / name, changes)
        for seed in seeds
        for settings in CSVS[name]
    ]


def told_apart(name: str) -> list[str]:
    """The settings by which a CSV's attacks differ."""
    given = {key for settings in CSVS[name] for key in settings}
    values = {key: {_of(settings, key) for settings in CSVS[name]} for key in given}
    return [
        f.name
        for f in dataclasses.fields(AttackConfig)
        if len(values.get(f.name, ())) > 1
    ]


def _of(settings: Settings, key: str) -> Any:
    return getattr(AttackConfig(**settings), key)


def _job(
    settings: Settings, seed: int, folder: pathlib.Path, changes: Settings
) -> AttackJob:
    out = str(folder / f"{folder_name(settings)},seed={seed}")
    given = {**settings, **changes, "seed": seed, "out": out}
    return AttackJob(
        settings={**settings, "seed": seed},
        config=AttackConfig(**given),
        command=[sys.executable, str(ROOT / "scripts" / "attack.py"), *_flags(given)],
    )


def _flags(given: Settings) -> list[str]:
    return [f"--{name}={value}" for name, value in given.items()]
