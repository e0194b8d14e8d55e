"""What kind of client takes part, from differences of successive models.

Source: Melis et al. (2019), "Exploiting unintended feature leakage in collaborative
learning", section 4: a client that takes part holds every model that is released.
From one it computes what clients of its own of both kinds would send, learns a rule
from these updates, and applies it to the difference to the next.
"""

import numpy as np
from scipy import stats

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.distances import interval
from tff_hdp.attacks.inversion import bar
from tff_hdp.attacks.membership import clipped
from tff_hdp.attacks.property import ridge_weights, writers
from tff_hdp.attacks.training import Training
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import require

# Writers of each kind that the attacker has.
_OWN = 60


def update_difference(attacker: Attacker, vantage: Vantage) -> Outcome:
    """The rule's area under the curve over runs of HDP's own process.

    In every run one client is the victim, of either kind; the others are of both. The
    observing client stays away: that is what subtracting its own part leaves.

    Args:
      attacker: Of the task mnist; its config says how many runs (`victims`), and of
        how many rounds each.
      vantage: Of another client.

    Raises:
      ArgumentError: If it is not, the task is not mnist, or its writers are not known.
    """
    config, target = attacker.config, attacker.target
    require(vantage.level == 0, "level", vantage.level, "0 with update_difference")
    (images, labels), student = writers(attacker)
    rng = np.random.default_rng(config.seed)
    kinds = [rng.permutation(np.flatnonzero(student == kind)) for kind in (0, 1)]
    own = np.concatenate([kind[:_OWN] for kind in kinds])
    rest = [kind[_OWN:] for kind in kinds]
    clip_norm = float(np.median(np.linalg.norm(target.updates(images, labels), axis=1)))
    standing = config.vantage(clip_norm)
    training, told = Training(target, standing.plan), bar("update differences")
    scores: tuple[list[float], list[float]] = [], []
    for run in range(config.victims):
        kind = run % 2
        victim = rng.choice(rest[kind])
        others = rng.choice(np.concatenate(rest), standing.plan.num_clients - 2, False)
        batches = [(images[i], labels[i]) for i in (victim, *others)] + [None]
        scores[kind].append(
            _score(attacker, training, standing, batches, (images, labels), own)
        )
        told(run + 1, config.victims)
    area = np.asarray(scores[1])[:, np.newaxis] > np.asarray(scores[0])
    _, low, high = interval(area.mean(1))
    mu = standing.bound(config.rounds).mu
    row = attacker.row(standing) | {
        "bound": None,
        "runs": config.victims,
        "auc": float(area.mean()),
        "auc_low": low,
        "auc_high": high,
        # Another kind of client is another record: the sum moves by up to 2 S.
        "auc_bound": float(stats.norm.cdf(2 * mu / np.sqrt(2))),
    }
    return Outcome([row])


def _score(
    attacker: Attacker,
    training: Training,
    vantage: Vantage,
    batches: list[tuple[np.ndarray, np.ndarray] | None],
    pool: tuple[np.ndarray, np.ndarray],
    own: np.ndarray,
) -> float:
    """The rule's value, added up over the rounds of a run; more is a student."""
    kinds = np.repeat([-1.0, 1.0], _OWN)
    state, before, score = training.start, list(attacker.target.weights), 0.0
    for _ in range(attacker.config.rounds):
        known = attacker.target.updates(pool[0][own], pool[1][own], before)
        known = clipped(known, vantage.clip_norm).astype(np.float64)
        rule = known.T @ ridge_weights(known @ known.T, kinds)
        state, after = training.round(
            state, batches, [*[True] * (len(batches) - 1), False]
        )
        moved = [np.ravel(a - b) for a, b in zip(before, after, strict=True)]
        score += float(np.concatenate(moved) @ rule)
        before = after
    return score
