"""What kind of client it is: an attribute that no label shows (Melis et al. 2019).

Source: "Exploiting unintended feature leakage in collaborative learning". MNIST's
digits were written by census staff and by students. An attacker that has writers of
both kinds of its own learns a linear rule from their updates, and applies it to what it
sees of a victim.
"""

import dataclasses
import math

import numpy as np

from tasks import mnist, packs
from tasks.loading import data_folder
from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.inversion import bar
from tff_hdp.attacks.roc import area_interval, roc
from tff_hdp.attacks.training import Training
from tff_hdp.attacks.trials import Records, clipped
from tff_hdp.attacks.vantage import Vantage
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.parts import Clipping
from tff_hdp.privacy.tradeoff import Tradeoff

# Examples of each writer's one batch; the ridge, as a share of the mean square norm.
_BATCH, _RIDGE = 64, 0.03
# NIST's form set 4 was written by students, the others by census staff.
_STUDENTS = 4
# Writers of each kind that the attacker of `update_difference` has.
_OWN = 60
_ARRAYS = ("x_train", "y_train", "writer_train", "hsf_train")


def property_inference(attacker: Attacker, vantage: Vantage) -> Outcome:
    """The rule's curve on writers that it was not learnt from.

    Raises:
      ArgumentError: If the task is not mnist, its writers are not known, or their
        updates are not finite.
    """
    config = attacker.config
    batches, student = _writers(attacker)
    updates = attacker.target.updates(*batches)
    vantage = _of_writers(attacker, vantage, updates)
    gram = Records.of(clipped(updates, vantage.clip_norm)).gram
    variance = vantage.stddev**2
    rng = np.random.default_rng(config.seed)
    order = rng.permutation(len(student))
    learnt, held_out = np.array_split(order, 2)
    weights = _ridge_weights(
        gram[np.ix_(learnt, learnt)],
        np.where(student[learnt], 1.0, -1.0),
        variance / config.rounds,
    )
    root_variance = math.sqrt(weights @ gram[np.ix_(learnt, learnt)] @ weights)
    scores = gram[np.ix_(held_out, learnt)] @ weights
    victims = rng.integers(len(held_out), size=config.trials)
    seen = config.rounds * scores[victims]
    if not config.others_known:
        # They send the same in every round, as the victim does.
        for _ in range(vantage.unknown_clients - 1):
            others = rng.permutation(scores[victims]) - scores.mean()
            seen += config.rounds * others
    deviation = math.sqrt(variance * config.rounds)
    seen += deviation * root_variance * rng.normal(size=len(seen))
    of_students = student[held_out][victims]
    curve = roc(seen[of_students], seen[~of_students])
    return Outcome(
        [
            attacker.row(vantage)
            | {
                "writers": len(student),
                "students": int(student.sum()),
                "auc": curve.auc,
                "auc_bound": _bound_on_kinds(vantage, config.rounds),
            }
        ]
    )


def update_difference(attacker: Attacker, vantage: Vantage) -> Outcome:
    """The rule's area under the curve over runs of HDP's own process.

    A client that takes part holds every model that is released. From one it computes
    what writers of its own would send, learns the rule from that, and applies it to the
    difference to the next (Melis et al., section 4). In every run one client is the
    victim, of either kind; the others are of both. The observing client stays away:
    that is what subtracting its own part leaves.

    Args:
      attacker: Of the task mnist; its config says how many runs (`victims`), and of
        how many rounds each.
      vantage: Of another client.

    Raises:
      ArgumentError: If it is not, there is one run only, the task is not mnist, its
        writers are not known, or their updates are not finite.
    """
    config, target = attacker.config, attacker.target
    require(vantage.level == 0, "level", vantage.level, "0 with update_difference")
    allowed = "2 runs or more with update_difference, of either kind"
    require(config.victims > 1, "victims", config.victims, allowed)
    (images, labels), student = _writers(attacker)
    rng = np.random.default_rng(config.seed)
    kinds = [rng.permutation(np.flatnonzero(student == kind)) for kind in (0, 1)]
    own = np.concatenate([kind[:_OWN] for kind in kinds])
    rest = [kind[_OWN:] for kind in kinds]
    most = sum(map(len, rest)) + 1
    allowed = f"2..{most}, the observer and writers that are not its own"
    clients = vantage.plan.num_clients
    require(clients <= most, "clients", clients, allowed)
    vantage = _of_writers(attacker, vantage, target.updates(images, labels))
    training, progress = Training(target, vantage.plan), bar("update differences")
    scores: tuple[list[float], list[float]] = [], []
    for run in range(config.victims):
        kind = run % 2
        victim = rng.choice(rest[kind])
        fellows = np.setdiff1d(np.concatenate(rest), victim)
        others = rng.choice(fellows, clients - 2, replace=False)
        batches = [(images[i], labels[i]) for i in others]
        sent = {vantage.victim: (images[victim], labels[victim]), vantage.own: None}
        for client in sorted(sent):
            batches.insert(vantage.place(client), sent[client])
        scores[kind].append(
            _score(attacker, training, vantage, batches, (images[own], labels[own]))
        )
        progress(run + 1, config.victims)
    area, low, high = area_interval(scores[1], scores[0])
    row = attacker.row(vantage) | {
        "runs": config.victims,
        "auc": area,
        "auc_low": low,
        "auc_high": high,
        "auc_bound": _bound_on_kinds(vantage, config.rounds),
    }
    return Outcome([row])


def _writers(attacker: Attacker) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """One batch of every writer of enough digits, and whether each is a student.

    Returns:
      Features [n, B, 28, 28, 1] with labels [n, B], and bool [n].

    Raises:
      ArgumentError: If the task is not mnist, or its writers are not known.
    """
    config = attacker.config
    if config.task != "mnist":
        allowed = "mnist, whose writers are of two kinds"
        raise ArgumentError("task", config.task, allowed)
    path = data_folder(mnist.MNIST, config.data_dir) / mnist.PACK
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


def _of_writers(attacker: Attacker, vantage: Vantage, updates: np.ndarray) -> Vantage:
    """The same vantage with S of writers' updates where it is to be found.

    Args:
      attacker: Its config gives S, or auto: the median norm.
      vantage: Where it stands.
      updates: [n, d], of all writers.

    Raises:
      ArgumentError: If an update is not finite.
    """
    config, norms = attacker.config, np.linalg.norm(updates, axis=1)
    allowed = "one at which writers' updates are finite"
    require(np.isfinite(norms).all(), "learning_rate", config.learning_rate, allowed)
    clip_norm = config.given_clip_norm or float(np.median(norms))
    clipping = Clipping(clip_norm=clip_norm)
    plan = dataclasses.replace(vantage.plan, clipping=clipping)
    return dataclasses.replace(vantage, plan=plan)


def _bound_on_kinds(vantage: Vantage, rounds: int) -> float:
    """What no rule's area exceeds: another kind of client is another record.

    That moves the sum by up to 2 S, so the bound is that of twice mu.
    """
    return Tradeoff(2 * vantage.bound(rounds).mu).auc


def _ridge_weights(gram: np.ndarray, kinds: np.ndarray, variance: float) -> np.ndarray:
    """Weights of the learnt writers in the rule; it is linear in what is seen.

    Args:
      gram: [n, n], inner products of their updates.
      kinds: [n], -1 or 1.
      variance: Of the noise in each number of what the rule is applied to, which the
        observer knows: the least squared error is then that of a ridge of n times it.
    """
    ridge = _RIDGE * np.trace(gram) / len(gram) + len(gram) * variance
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), kinds - kinds.mean())


def _score(
    attacker: Attacker,
    training: Training,
    vantage: Vantage,
    batches: list[tuple[np.ndarray, np.ndarray] | None],
    own: tuple[np.ndarray, np.ndarray],
) -> float:
    """The rule's value, added up over the rounds of a run; more is a student.

    Args:
      attacker: How many rounds, and from which weights.
      training: The federation.
      vantage: Of the observing client.
      batches: Of all clients, None of the observing one.
      own: Batches of the writers that the rule is learnt from, a kind after the other.
    """
    kinds = np.repeat([-1.0, 1.0], _OWN)
    state, before, score = training.start, list(attacker.target.weights), 0.0
    for _ in range(attacker.config.rounds):
        known = attacker.target.updates(*own, before)
        known = clipped(known, vantage.clip_norm).astype(np.float64)
        noise = vantage.stddev**2 / attacker.config.rounds
        rule = known.T @ _ridge_weights(known @ known.T, kinds, noise)
        present = [batch is not None for batch in batches]
        state, after = training.round(state, batches, present)
        moved = [np.ravel(a - b) for a, b in zip(before, after, strict=True)]
        score += float(np.concatenate(moved) @ rule)
        before = after
    return score
