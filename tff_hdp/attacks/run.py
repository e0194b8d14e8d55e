"""Runs the attack that a config asks for; a row is what it reached and the bound."""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.config import RECONSTRUCTIONS, AttackConfig
from tff_hdp.attacks.lira import lira
from tff_hdp.attacks.membership import all_observers, one_observer
from tff_hdp.attacks.property import property_inference, update_difference
from tff_hdp.attacks.rotation import rotation
from tff_hdp.attacks.system_attack import identify_in_system
from tff_hdp.attacks.table4 import table4
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import require
from tff_hdp.files import write_text
from tff_hdp.reading import read_json
from tff_hdp.simulation.record import git_commit

# What the rows are the same with.
_MAY_CHANGE = ("out", "figure", "format", "data_dir")


def run(config: AttackConfig) -> Outcome:
    """Attacks as `config` says.

    Raises:
      ArgumentError: If the attack does not take the model, or the task the model.
      FileError: If a file of weights is not what it should be.
      DataNotFoundError: If the task's data is missing.
    """
    if config.attack == "table4":
        return table4(config)
    if config.attack == "observers":
        return all_observers(config)
    attacker = Attacker(config)
    if config.system != "hdp":
        return identify_in_system(attacker)
    vantage = config.vantage(attacker.clip_norm)
    if config.attack in RECONSTRUCTIONS:
        return _reconstruction(attacker, vantage)
    return _FROM_A_VANTAGE[config.attack](attacker, vantage)


def _reconstruction(attacker: Attacker, vantage: Vantage) -> Outcome:
    originals, seen = attacker.observe(vantage)
    images = attacker.reconstruct(attacker.config.attack, vantage, seen)
    columns, found = attacker.distances(originals, images)
    return Outcome([attacker.row(vantage) | columns], originals, [found])


def _identification(attacker: Attacker, vantage: Vantage) -> Outcome:
    return Outcome([attacker.row(vantage) | attacker.identified(vantage)])


_FROM_A_VANTAGE: dict[str, Callable[[Attacker, Vantage], Outcome]] = {
    "identification": _identification,
    "lira": lira,
    "membership": one_observer,
    "property": property_inference,
    "rotation": rotation,
    "update_difference": update_difference,
}


def open_folder(config: AttackConfig) -> pathlib.Path:
    """The folder for an attack's results, made if it is not there.

    Args:
      config: Its settings; `out` says where.

    Raises:
      ArgumentError: If something else lies there, such as a run, or an attack with
        other settings.
      FileError: If nobody can tell what lies there.
      OSError: If it cannot be made.
    """
    folder = pathlib.Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    # Kept for `write`: what is checked out may be another when the attack ends.
    git_commit()
    record = folder / "config.json"
    if not record.exists():
        return folder
    made = read_json(record)
    is_attack = isinstance(made, dict) and "attack" in made
    require(is_attack, "out", config.out, "a folder of its own, not that of a run")
    for field in dataclasses.fields(config):
        # A setting that is newer than the attack changes nothing at its default.
        name, before = field.name, made.get(field.name, field.default)
        allowed = f"{before}, with which the attack in out={config.out} was made"
        same = name in _MAY_CHANGE or getattr(config, name) == before
        require(same, name, getattr(config, name), allowed)
    return folder


def write(config: AttackConfig, rows: Sequence[dict[str, Any]]) -> None:
    """Leaves config.json, with the commit, rows.json and rows.csv in `config.out`.

    Raises:
      ArgumentError: If something else lies there.
      FileError: If nobody can tell what lies there.
    """
    folder = open_folder(config)
    settings = {**dataclasses.asdict(config), "git_commit": git_commit()}
    # The settings first: rows without them would be anybody's to write over.
    write_text(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    write_text(folder / "rows.json", json.dumps(rows, indent=2) + "\n")
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "rows.csv", table.getvalue())
