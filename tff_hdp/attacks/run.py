"""Runs the attack that a config asks for; a row is what it reached and the bound."""

import csv
import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome, identified, trials
from tff_hdp.attacks.config import RECONSTRUCTIONS, AttackConfig
from tff_hdp.attacks.lira import lira
from tff_hdp.attacks.membership import membership, sampled_membership
from tff_hdp.attacks.property import property_inference
from tff_hdp.attacks.rotation import rotation
from tff_hdp.attacks.system_attack import identify_in_system
from tff_hdp.attacks.table4 import table4
from tff_hdp.attacks.update_difference import update_difference
from tff_hdp.privacy.tradeoff import roc


def run(config: AttackConfig) -> Outcome:
    """Attacks as `config` says.

    Raises:
      ArgumentError: If the attack does not take the model, or the task the model.
      FileError: If a file of weights is not what it should be.
      DataNotFoundError: If the task's data is missing.
    """
    if config.attack == "table4":
        return table4(config)
    attacker = Attacker(config)
    if config.system != "hdp":
        return identify_in_system(attacker)
    vantage = config.vantage(attacker.clip_norm)
    row = attacker.row(vantage)
    if config.attack in RECONSTRUCTIONS:
        originals, seen = attacker.observe(vantage)
        images = attacker.reconstruct(config.attack, vantage, seen)
        columns, found = attacker.distances(originals, images)
        return Outcome([row | columns], originals, found)
    if config.attack == "property":
        return property_inference(attacker, vantage)
    if config.attack == "lira":
        return lira(attacker, vantage)
    if config.attack == "update_difference":
        return update_difference(attacker, vantage)
    if config.attack == "rotation":
        return rotation(attacker, vantage)
    records = attacker.records()
    if config.attack == "identification":
        return Outcome([row | identified(config, vantage, records, attacker.clip_norm)])
    given = trials(config, vantage, records, attacker.clip_norm)
    if config.sampling_probability < 1:
        inside, outside = sampled_membership(
            vantage,
            records,
            clip_norm=attacker.clip_norm,
            trials=config.trials,
            rounds=config.rounds,
            rng=given["rng"],
        )
    else:
        inside, outside = membership(**given)
    curve, bound = roc(inside, outside), vantage.bound(config.rounds)
    row |= {
        "sampling_probability": config.sampling_probability,
        "auc": curve.auc,
        "auc_bound": bound.auc,
        "advantage_bound": bound.advantage,
        "refuted": curve.refutes(bound),
    }
    return Outcome([row], curves={vantage.name: (curve, vantage)})


def write(config: AttackConfig, rows: Sequence[dict[str, Any]]) -> None:
    """Leaves config.json, rows.json and rows.csv in `config.out`."""
    folder = pathlib.Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    settings = dataclasses.asdict(config)
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "rows.json").write_text(json.dumps(rows, indent=2) + "\n")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
