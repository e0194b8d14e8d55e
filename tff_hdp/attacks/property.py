"""What kind of client it is: an attribute that no label shows (Melis et al. 2019).

MNIST's digits were written by census staff and by students. An attacker that has
writers of both kinds of its own learns a linear rule from their updates, and applies it
to what it sees of a victim.
"""

import math
import os
import pathlib

import numpy as np
from scipy import stats

from tasks import mnist, packs
from tasks.loading import DATA_DIR_VARIABLE
from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.membership import Records, clipped
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.tradeoff import roc

# Examples of each writer's one batch; the ridge, as a share of the mean square norm.
_BATCH, _RIDGE = 64, 0.03
# NIST's form set 4 was written by students, the others by census staff.
_STUDENTS = 4
_ARRAYS = ("x_train", "y_train", "writer_train", "hsf_train")


def property_inference(attacker: Attacker, vantage: Vantage) -> Outcome:
    """The rule's curve on writers that it was not learnt from.

    The two kinds differ by replacing the victim's record, which moves the sum by up to
    2 S: the bound is that of twice mu.

    Args:
      attacker: Of the task mnist.
      vantage: Where it stands.

    Raises:
      ArgumentError: If the task is not mnist, or its writers are not known.
    """
    config = attacker.config
    batches, student = writers(attacker)
    updates = attacker.target.updates(*batches)
    norm = float(np.median(np.linalg.norm(updates, axis=1)))
    gram = Records.of(clipped(updates, norm)).gram
    rng = np.random.default_rng(config.seed)
    order = rng.permutation(len(student))
    learnt, held_out = np.array_split(order, 2)
    weights = ridge_weights(
        gram[np.ix_(learnt, learnt)], np.where(student[learnt], 1.0, -1.0)
    )
    root_variance = math.sqrt(weights @ gram[np.ix_(learnt, learnt)] @ weights)
    scores = gram[np.ix_(held_out, learnt)] @ weights
    victims = rng.integers(len(held_out), size=config.trials)
    seen = config.rounds * scores[victims]
    if not config.others_known:
        for _ in range(config.rounds * (vantage.unknown_clients - 1)):
            seen += rng.permutation(scores[victims]) - scores.mean()
    deviation = vantage.noise_multiplier * norm * math.sqrt(config.rounds)
    seen += deviation * root_variance * rng.normal(size=len(seen))
    of_students = student[held_out][victims]
    curve = roc(seen[of_students], seen[~of_students])
    mu = vantage.bound(config.rounds).mu
    return Outcome(
        [
            attacker.row(vantage)
            | {
                "bound": None,
                "writers": len(student),
                "students": int(student.sum()),
                "auc": curve.auc,
                "auc_bound": float(stats.norm.cdf(2 * mu / math.sqrt(2))),
            }
        ]
    )


def writers(
    attacker: Attacker,
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """One batch of every writer of enough digits, and whether each is a student.

    Args:
      attacker: Of the task mnist.

    Returns:
      Features [n, B, 28, 28, 1] with labels [n, B], and bool [n].

    Raises:
      ArgumentError: If the task is not mnist, or its writers are not known.
    """
    config = attacker.config
    if config.task != "mnist":
        allowed = "mnist, whose writers are of two kinds"
        raise ArgumentError("task", config.task, allowed)
    path = pathlib.Path(config.data_dir or os.environ[DATA_DIR_VARIABLE]) / mnist.PACK
    if not path.exists():
        raise ArgumentError(
            "data_dir", path.parent, f"a folder that holds {mnist.PACK}"
        )
    pack = packs.read_plain(path, *_ARRAYS)
    images, labels, student = [], [], []
    for writer in np.unique(pack["writer_train"]):
        rows = np.flatnonzero(pack["writer_train"] == writer)[:_BATCH]
        if len(rows) == _BATCH:
            images.append(pack["x_train"][rows][..., np.newaxis])
            labels.append(pack["y_train"][rows].astype(np.int32))
            student.append(pack["hsf_train"][rows[0]] == _STUDENTS)
    return (np.array(images), np.array(labels)), np.array(student)


def ridge_weights(gram: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Weights of the learnt writers in the rule; it is linear in what is seen."""
    ridge = _RIDGE * np.trace(gram) / len(gram)
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), kinds - kinds.mean())
