"""Which of M known examples a client of a neighbour system trained on.

Every trial runs a round of the system's own process. Observers who know all else guess
the candidate whose round without noise comes nearest to what they hold, which is the
Bayes rule for noise that is the same everywhere.
"""

from typing import Any

import numpy as np

from tff_hdp import runtime
from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.distances import proportion
from tff_hdp.attacks.setting import Setting, SystemUnderAttack
from tff_hdp.attacks.systems import SYSTEMS
from tff_hdp.errors import require
from tff_hdp.privacy.accountant import AccountRow
from tff_hdp.privacy.tradeoff import Tradeoff

# Where an account is read for the bound of its curve.
_DELTAS = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-5)
# What larger epsilons are taken for, so that e to it is a number.
_MOST = 500.0


def identify_in_system(attacker: Attacker) -> Outcome:
    """A row an observer, with the bound that the system's own account puts on it.

    Args:
      attacker: Its config names the system; `victims` is how many rounds are run.

    Raises:
      ArgumentError: If the system does not take the setting, there are too few
        examples, or no candidate's update is finite.
    """
    config, target = attacker.config, attacker.target
    runtime.set_context("in_process")
    setting = Setting(config, target)
    m = config.candidates
    examples = list(zip(target.features, target.labels, strict=True))
    most = len(examples) - config.clients + 1
    allowed = f"2..{most}, the examples that other clients do not have"
    require(m <= most, "candidates", m, allowed)
    candidates, others = examples[:m], examples[m : m + config.clients - 1]
    # To the systems, clients of other updates are such as send nothing.
    some = bool(np.isfinite(target.norms(slice(m))).any())
    allowed = "one at which some candidates' updates have finite norms"
    require(some, "learning_rate", config.learning_rate, allowed)
    system = SYSTEMS[config.system](setting, candidates)
    expected = [system.quiet([one, *others]) for one in candidates]
    rng = np.random.default_rng(config.seed)
    hits: dict[str, list[bool]] = {name: [] for name in expected[0]}
    for _ in range(config.victims):
        truth = int(rng.integers(m))
        for name, held in system.round([candidates[truth], *others]).items():
            apart = np.array([each[name] for each in expected], np.float64) - held
            order = 1 if name in system.laplace else 2
            guess = np.linalg.norm(apart, order, axis=1).argmin()
            hits[name].append(bool(guess == truth))
    rows = [
        _row(attacker, system, account, hits[account.observer])
        for account in system.account(config.delta)
        if account.observer in hits
    ]
    return Outcome(rows)


def _row(
    attacker: Attacker, system: SystemUnderAttack, account: AccountRow, hits: list[bool]
) -> dict[str, Any]:
    config = attacker.config
    mean, low, high = proportion(hits)
    bound = _bound(system, account.observer)
    return {
        "attack": config.attack,
        "system": config.system,
        "task": config.task,
        "model": attacker.model_name,
        "privacy": account.client_kind,
        "level": str(account.level),
        "observer": account.observer,
        "noise_multiplier": account.noise_multiplier,
        "clip_norm": system.clip_norm,
        **({"ratio": config.ratio} if config.system == "fl_top" else {}),
        "unknown_clients": 1,
        **dict.fromkeys(("psnr_mean", "psnr_low", "psnr_high", "ssim_mean")),
        "trials": len(hits),
        "identified": mean,
        "identified_low": low,
        "identified_high": high,
        "bound": bound.identification(config.candidates),
        "rounds": 1,
        "epsilon": _epsilon(account),
        "delta": config.delta,
        "neighbours": account.neighbours,
        "sampling": account.sampling,
        "assumptions": account.assumptions,
    }


def _bound(system: SystemUnderAttack, observer: str) -> Tradeoff:
    """From the account's own pairs of epsilon and delta."""
    rows = [
        next(row for row in system.account(delta) if row.observer == observer)
        for delta in _DELTAS
    ]
    epsilons = [_epsilon(row) for row in rows]
    if None in epsilons:
        return Tradeoff(float("inf"))
    return Tradeoff(None, np.minimum(epsilons, _MOST), np.array(_DELTAS))


def _epsilon(row: AccountRow) -> float | None:
    """The sound one, by PLD where there is one."""
    return row.epsilon_rdp if row.epsilon_pld is None else row.epsilon_pld
