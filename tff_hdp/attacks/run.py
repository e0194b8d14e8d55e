"""Runs the attack that a config asks for; a row is what it reached and the bound."""

import csv
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome, identified
from tff_hdp.attacks.config import RECONSTRUCTIONS, AttackConfig
from tff_hdp.attacks.lira import lira
from tff_hdp.attacks.observers import all_observers, one_observer
from tff_hdp.attacks.property import property_inference, update_difference
from tff_hdp.attacks.rotation import rotation
from tff_hdp.attacks.system_attack import identify_in_system
from tff_hdp.attacks.table4 import table4
from tff_hdp.errors import require
from tff_hdp.simulation.files import write_text


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
    row = attacker.row(vantage)
    if config.attack in RECONSTRUCTIONS:
        originals, seen = attacker.observe(vantage)
        images = attacker.reconstruct(config.attack, vantage, seen)
        columns, found = attacker.distances(originals, images)
        return Outcome([row | columns], originals, [found])
    if config.attack == "property":
        return property_inference(attacker, vantage)
    if config.attack == "lira":
        return lira(attacker, vantage)
    if config.attack == "update_difference":
        return update_difference(attacker, vantage)
    if config.attack == "rotation":
        return rotation(attacker, vantage)
    if config.attack == "membership":
        return one_observer(attacker, vantage)
    found = identified(config, vantage, attacker.records(), attacker.clip_norm)
    return Outcome([row | found])


def open_folder(out: str) -> pathlib.Path:
    """The folder for an attack's results, made if it is not there.

    Args:
      out: Where.

    Raises:
      ArgumentError: If the settings there are those of something else, such as a run.
      OSError: If it cannot be made.
    """
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    free = not (folder / "config.json").exists() or (folder / "rows.json").exists()
    require(free, "out", out, "a folder of its own, not that of a run")
    return folder


def write(config: AttackConfig, rows: Sequence[dict[str, Any]]) -> None:
    """Leaves rows.json, config.json and rows.csv in `config.out`.

    Raises:
      ArgumentError: If something else lies there.
    """
    folder, settings = open_folder(config.out), dataclasses.asdict(config)
    write_text(folder / "rows.json", json.dumps(rows, indent=2) + "\n")
    write_text(folder / "config.json", json.dumps(settings, indent=2) + "\n")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
