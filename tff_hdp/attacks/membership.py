"""Membership as observers tell it: a ROC curve of each, and its bound."""

import functools
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.roc import Roc, roc
from tff_hdp.attacks.trials import Records
from tff_hdp.attacks.vantage import Vantage

MODES = ("ldp", "hdp", "cdp", "none")
LEVELS = ("0", "1", "2", "outside")


def one_observer(attacker: Attacker, vantage: Vantage) -> Outcome:
    """Was the victim's record in the sum? By the likelihood ratio."""
    row, curve = _told(attacker, vantage, attacker.records(vantage), None)
    return Outcome([row], curves=[(curve, vantage)])


def all_observers(config: AttackConfig) -> Outcome:
    """The same of every observer, whoever adds noise."""
    attacker = Attacker(config)
    at = functools.partial(config.vantage, attacker.clip_norm)
    # What is sent depends on the mode alone.
    records = {
        mode: attacker.records(at(privacy=mode, level=LEVELS[0])) for mode in MODES
    }
    rows, curves = [], []
    for level in LEVELS:
        for mode in MODES:
            vantage = at(privacy=mode, level=level)
            row, curve = _told(attacker, vantage, records[mode], mode)
            rows.append(row)
            curves.append((curve, vantage))
    return Outcome(rows, curves=curves)


def _told(
    attacker: Attacker, vantage: Vantage, records: Records, privacy: str | None
) -> tuple[dict[str, Any], Roc]:
    config = attacker.config
    trials = attacker.trials(vantage, records)
    sampled = config.sampling_probability < 1
    scores = trials.sampled_membership() if sampled else trials.membership()
    curve, bound = roc(*scores), vantage.bound(config.rounds)
    return attacker.row(vantage, privacy=privacy) | {
        "sampling_probability": config.sampling_probability,
        "auc": curve.auc,
        "auc_bound": bound.auc,
        "advantage_bound": bound.advantage,
        "refuted": curve.refutes(bound),
    }, curve
