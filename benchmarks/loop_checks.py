"""Whether a loop did the work: its rounds, its tests and its checkpoints.

The reference is a few lines of NumPy, which share no code with what is measured.
"""

import numpy as np
import works
from measure import NOISE_SHARE, TOLERANCE, CheckError
from populations import Population
from recording import Findings, Weights

# Of the noise's norm: so many times the standard deviation that chance gives it.
_DEVIATIONS = 5
# Test examples whose two best classes may be nearly tied.
_TIES = 2


def noise_multiplier(work: works.Work, population: Population) -> float:
    """The server's z that makes its noise `NOISE_SHARE` of the first round's update."""
    start = works.initial_weights(work)
    update = _norm(_round(work, population, start), start)
    return NOISE_SHARE * update / _noise_norm(work, 1.0)


def check_files(name: str, found: Findings, population: Population) -> None:
    """Checks that every round left a checkpoint, and what those that were read hold.

    Args:
      name: Of the subject.
      found: What it left.
      population: On whose test set it tested.

    Raises:
      CheckError: If a round left none, one has other weights than the model, or the
        model's accuracy is another one.
    """
    rounds = len(found.ends)
    if len(set(found.checkpoints)) != rounds:
        count = len(set(found.checkpoints))
        raise CheckError(f"{name}: {count} checkpoints of {rounds} rounds")
    if rounds not in found.held:
        raise CheckError(f"{name}: its last checkpoint was not read back")
    for number, (current, saved) in found.held.items():
        if not all(map(np.array_equal, current, saved)):
            raise CheckError(
                f"{name}: the checkpoint of round {number} has other weights than the "
                "model"
            )
        told = found.accuracies[number - 1]
        if told is None and number < rounds:
            continue
        guesses = _logits(saved, population.test_features)[-1].argmax(1)
        right = np.sum(guesses == population.test_labels)
        if told is None or not abs(told * len(guesses) - right) <= _TIES + 0.5:
            raise CheckError(
                f"{name}: its test after round {number} gave {told}; the weights of "
                f"its checkpoint have {right / len(guesses):.4f}"
            )


def check_rounds(
    name: str, found: Findings, work: works.Work, population: Population, z: float
) -> None:
    """Checks every round against a reference that goes on from the one before.

    Args:
      name: Of the subject.
      found: What it left; all its checkpoints were read.
      work: With all clients in every round, all of a client's examples in a batch.
      population: Whose.
      z: The server's noise multiplier.

    Raises:
      CheckError: If a round's update or its noise is another one.
    """
    before = works.initial_weights(work)
    noise = _noise_norm(work, z)
    for number in sorted(found.held):
        after, _ = found.held[number]
        expected = _round(work, population, before)
        chance = _DEVIATIONS / np.sqrt(2 * work.num_parameters)
        allowed = noise * chance + TOLERANCE * _norm(expected, before)
        distance = _norm(after, expected)
        if not abs(distance - noise) <= allowed:
            raise CheckError(
                f"{name}: after round {number} its weights are {distance:.4g} from the "
                f"reference; allowed: {noise - allowed:.4g}..{noise + allowed:.4g}, "
                "the norm of the noise"
            )
        before = after


def _noise_norm(work: works.Work, z: float) -> float:
    return work.noise_stddev(z) * work.num_parameters**0.5


def _round(work: works.Work, population: Population, start: Weights) -> list:
    """The weights after a round of all clients on whole batches, without noise."""
    total = [np.zeros(w.shape) for w in start]
    for client in range(work.clients):
        weights = [np.float64(w) for w in start]
        for _ in range(work.epochs):
            gradients = _gradients(weights, *population.examples(client))
            weights = [
                w - work.learning_rate * g
                for w, g in zip(weights, gradients, strict=True)
            ]
        scale = min(1.0, work.clip_norm / _norm(weights, start))
        for t, w, s in zip(total, weights, start, strict=True):
            t += scale * (w - s)
    return [s + t / work.clients for s, t in zip(start, total, strict=True)]


def _logits(weights: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer's outputs [B, units] and the model's [B, classes]."""
    kernel, bias, last_kernel, last_bias = weights
    hidden = np.maximum(x @ kernel + bias, 0.0)
    return hidden, hidden @ last_kernel + last_bias


def _gradients(weights: Weights, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Of the mean cross-entropy of a batch."""
    hidden, logits = _logits(weights, x)
    back = np.exp(logits - logits.max(1, keepdims=True))
    back /= back.sum(1, keepdims=True)
    back[np.arange(len(y)), y] -= 1.0
    back /= len(y)
    inner = back @ weights[2].T * (hidden > 0)
    return [x.T @ inner, inner.sum(0), hidden.T @ back, back.sum(0)]


def _norm(a: Weights, b: Weights) -> float:
    differences = [np.float64(x) - y for x, y in zip(a, b, strict=True)]
    return float(np.sqrt(sum(np.sum(np.square(d)) for d in differences)))
