"""Reconstruction by search: examples whose records are those that were seen.

`deep_leakage` is DLG (Zhu et al. 2019), `inverting_gradients` IG (Geiping et al. 2020),
`feature_guided` finds an input with the features that the dense layer's gradient
shows. Local steps and the clip are in the model that is inverted.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import optimize

from tff_hdp.attacks import analytic
from tff_hdp.attacks.forward import (
    Forward,
    cosine_distance,
    squared_error,
    total_variation,
    with_gradient,
)
from tff_hdp.attacks.victims import Target
from tff_hdp.errors import require

# Said after every victim or step: how much is done, of how much.
Progress = Callable[[int, int], None]

_PRECISE = {"maxcor": 100, "ftol": 1e-22, "gtol": 1e-14}
_IG_MILESTONES = (3 / 8, 5 / 8, 7 / 8)
_IG_RATE = 0.1
_CHUNK = 16


@dataclasses.dataclass(frozen=True)
class Found:
    """Reconstructions, with the labels they were searched for.

    Attributes:
      images: [V, m, H, W, c] in [0, 1].
      loss: [V], what was left of the objective.
      labels: [V, m] int32.
    """

    images: np.ndarray
    loss: np.ndarray
    labels: np.ndarray

    def better_of(self, other: "Found") -> "Found":
        """By victim, the one with the lesser loss."""
        better = other.loss < self.loss
        selector = better[:, np.newaxis, np.newaxis, np.newaxis, np.newaxis]
        return Found(
            np.where(selector, other.images, self.images),
            np.where(better, other.loss, self.loss),
            self.labels,
        )


def deep_leakage(
    forward: Forward,
    seen: np.ndarray,
    labels: np.ndarray,
    *,
    evaluations: int = 300,
    restarts: int = 1,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Found:
    """DLG: the squared error by L-BFGS-B in float64, pixels kept in [0, 1].

    A search for the labels too, as Zhu et al. have it, ends with wrong ones on ReLU
    networks; they are read off the last layer instead. It starts close to grey, from
    where it gets further than from noise.

    Args:
      forward: What clients do.
      seen: [V, d], what observers hold.
      labels: [V, m] of the m clients in each.
      evaluations: Of the objective, at most, a start.
      restarts: Starts; the best one counts.
      seed: Of the starts.
      progress: Told after every victim.
    """

    def objective(images: tf.Tensor, targets: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
        return squared_error(forward.sums(images, targets), seen)

    evaluate = with_gradient(objective, compiles=forward.compiles)
    targets, found = np.eye(forward.num_classes)[labels], None
    for start in _grey((*labels.shape, *forward.image_shape), restarts, seed):
        one_start = Found(
            *_minimised(evaluate, start, (targets, seen), evaluations, progress), labels
        )
        found = one_start if found is None else found.better_of(one_start)
    return found


def inverting_gradients(
    forward: Forward,
    seen: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int = 500,
    variation: float = 1e-2,
    restarts: int = 1,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Found:
    """IG: one less the cosine, and total variation, by signed Adam in a box.

    Args:
      forward: What clients do.
      seen: [V, d], what observers hold.
      labels: [V, m].
      steps: Of Adam; its rate falls tenfold at 3/8, 5/8 and 7/8 of them.
      variation: alpha, of total variation.
      restarts: Starts from noise; the best one counts.
      seed: Of the starts.
      progress: Told after every step.
    """

    def objective(images: tf.Tensor, targets: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
        distance = cosine_distance(forward.sums(images, targets), seen)
        return distance + variation * total_variation(images)

    evaluate = with_gradient(objective, compiles=forward.compiles)
    rng, found = np.random.default_rng(seed), None
    shape = (*labels.shape, *forward.image_shape)
    for _ in range(restarts):
        start = rng.uniform(size=shape)
        images, loss = _in_chunks(
            evaluate, start, np.eye(forward.num_classes)[labels], seen, steps, progress
        )
        one_start = Found(images, loss, labels)
        found = one_start if found is None else found.better_of(one_start)
    return found


def feature_guided(
    target: Target,
    seen: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int = 600,
    variation: float = 1e-3,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Found:
    """An input with the features that the dense layer's gradient shows.

    What the layer read is known without a search (`analytic.dense_inputs`), and to
    match it takes one derivative, not two: on convolutions this is cheaper than IG and
    ends far closer.

    Args:
      target: The model.
      seen: [V, d], what observers hold, of one client each.
      labels: [V, 1]; not used but returned.
      steps: Of signed Adam.
      variation: alpha, of total variation.
      seed: Of the start.
      progress: Told after every step.

    Raises:
      ArgumentError: If the model has no dense layer with a bias, or sums are of more
        than one client.
    """
    m = labels.shape[1]
    require(m == 1, "unknown_clients", m, "1 for an attack by features")
    wanted = analytic.dense_inputs(target, seen)
    features = target.features_before_dense(analytic.first_dense(target))

    def mismatch(images: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        error = tf.reduce_sum((features(images[:, 0]) - wanted) ** 2, 1)
        error /= tf.reduce_sum(wanted**2, 1) + 1e-60
        return error + variation * total_variation(images)

    evaluate = with_gradient(mismatch, compiles=False)
    shape = (*labels.shape, *target.features.shape[1:])
    start = np.random.default_rng(seed).uniform(size=shape)
    return Found(*_in_chunks(evaluate, start, None, wanted, steps, progress), labels)


def _grey(shape: tuple[int, ...], restarts: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    for _ in range(restarts):
        yield 0.5 + 0.01 * rng.normal(size=shape)


def _minimised(
    evaluate: Callable[..., tuple[np.ndarray, list[np.ndarray]]],
    start: np.ndarray,
    held: Sequence[np.ndarray],
    evaluations: int,
    progress: Progress = lambda done, of: None,
) -> tuple[np.ndarray, np.ndarray]:
    """L-BFGS-B after one victim after the other; images [V, m, ...] and losses [V]."""
    images, losses, shape = [], [], (1, *start.shape[1:])
    for v in range(len(start)):
        own = [tf.constant(part[v : v + 1]) for part in held]

        def value(pixels: np.ndarray, own: Any = own) -> tuple[float, np.ndarray]:
            values, gradients = evaluate(tf.constant(pixels.reshape(shape)), *own)
            return float(values[0]), np.ravel(gradients[0])

        result = optimize.minimize(
            value,
            np.ravel(start[v]),
            jac=True,
            method="L-BFGS-B",
            bounds=optimize.Bounds(0.0, 1.0),
            options={"maxfun": evaluations, "maxiter": evaluations, **_PRECISE},
        )
        images.append(result.x.reshape(start.shape[1:]))
        losses.append(result.fun)
        progress(v + 1, len(start))
    return np.array(images), np.array(losses)


def _in_chunks(
    evaluate: Callable[..., tuple[np.ndarray, list[np.ndarray]]],
    start: np.ndarray,
    targets: np.ndarray | None,
    seen: np.ndarray,
    steps: int,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Victims in batches of one size, so that a function is compiled once."""
    images, losses, count = [], [], len(seen)
    for begin in range(0, count, _CHUNK):
        rows = np.arange(begin, begin + min(_CHUNK, count)) % count
        given = () if targets is None else (targets[rows],)
        found, loss = _signed_adam(
            evaluate,
            start[rows],
            (*given, seen[rows]),
            steps,
            lambda t, b=begin: progress(b * steps + t * _CHUNK, count * steps),
        )
        fresh = min(_CHUNK, count - begin)
        images.append(found[:fresh])
        losses.append(loss[:fresh])
    return np.concatenate(images), np.concatenate(losses)


def _signed_adam(
    evaluate: Callable[..., tuple[np.ndarray, list[np.ndarray]]],
    images: np.ndarray,
    fixed: Sequence[np.ndarray],
    steps: int,
    said: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Adam on the gradient's sign, rate as Geiping et al.; the last images and loss."""
    held = [tf.constant(part) for part in fixed]
    first, second = np.zeros_like(images), np.zeros_like(images)
    milestones = [int(share * steps) for share in _IG_MILESTONES]
    for t in range(steps):
        rate = _IG_RATE * 0.1 ** sum(t >= milestone for milestone in milestones)
        _, gradients = evaluate(tf.constant(images), *held)
        sign = np.sign(gradients[0].numpy())
        first = 0.9 * first + 0.1 * sign
        second = 0.999 * second + 0.001 * sign**2
        moved = (first / (1 - 0.9 ** (t + 1))) / (
            np.sqrt(second / (1 - 0.999 ** (t + 1))) + 1e-8
        )
        images = np.clip(images - rate * moved, 0.0, 1.0)
        said(t + 1)
    loss, _ = evaluate(tf.constant(images), *held)
    return images, loss.numpy()


def bar(text: str) -> Progress:
    """A progress bar on standard error, where that is a terminal."""
    import tqdm

    form = "{desc} {bar} {n:.0%}"
    line = tqdm.tqdm(desc=text, total=1, leave=False, bar_format=form, disable=None)

    def said(done: int, of: int) -> None:
        line.n = min(done / of, 1.0)
        line.refresh()
        if done >= of:
            line.close()

    return said
