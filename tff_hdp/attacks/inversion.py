"""Reconstruction by search: examples whose records are those that were seen.

`deep_leakage` is DLG (Zhu et al. 2019), `inverting_gradients` IG (Geiping et al. 2020),
`feature_guided` finds an input with the features that the dense layer's gradient
shows. Local steps and the clip are in the model that is inverted.
"""

from collections.abc import Callable, Iterable, Sequence
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

# Said after every victim or step: how much is done, of how much.
Progress = Callable[[int, int], None]
# What a search from one start ends with: images [V, m, H, W, c] in [0, 1], and what is
# left of the objective, [V].
Found = tuple[np.ndarray, np.ndarray]

_PRECISE = {"maxcor": 100, "ftol": 1e-22, "gtol": 1e-14}
_IG_MILESTONES = (3 / 8, 5 / 8, 7 / 8)
_IG_RATE = 0.1
# alpha, what total variation counts in IG and beside features.
_IG_VARIATION, _FEATURE_VARIATION = 1e-2, 1e-3
_CHUNK = 16


def deep_leakage(
    forward: Forward,
    seen: np.ndarray,
    labels: np.ndarray,
    *,
    evaluations: int = 300,
    restarts: int = 1,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> np.ndarray:
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

    Returns:
      Images [V, m, H, W, c] in [0, 1].
    """

    def objective(images: tf.Tensor, targets: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
        return squared_error(forward.sums(images, targets), seen)

    evaluate = with_gradient(objective, compiles=forward.compiles)
    held = np.eye(forward.num_classes)[labels], seen
    rng, shape = np.random.default_rng(seed), (*labels.shape, *forward.image_shape)
    starts = (0.5 + 0.01 * rng.normal(size=shape) for _ in range(restarts))
    return _best(
        _minimised(evaluate, start, held, evaluations, progress) for start in starts
    )


def inverting_gradients(
    forward: Forward,
    seen: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int = 500,
    restarts: int = 1,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> np.ndarray:
    """IG: one less the cosine, and total variation, by signed Adam in a box.

    Args:
      forward: What clients do.
      seen: [V, d], what observers hold.
      labels: [V, m].
      steps: Of Adam; its rate falls tenfold at 3/8, 5/8 and 7/8 of them.
      restarts: Starts from noise; the best one counts.
      seed: Of the starts.
      progress: Told after every step.

    Returns:
      Images [V, m, H, W, c] in [0, 1].
    """

    def objective(images: tf.Tensor, targets: tf.Tensor, seen: tf.Tensor) -> tf.Tensor:
        distance = cosine_distance(forward.sums(images, targets), seen)
        return distance + _IG_VARIATION * total_variation(images)

    evaluate = with_gradient(objective, compiles=forward.compiles)
    held = np.eye(forward.num_classes)[labels], seen
    rng, shape = np.random.default_rng(seed), (*labels.shape, *forward.image_shape)
    starts = (rng.uniform(size=shape) for _ in range(restarts))
    return _best(_in_chunks(evaluate, start, held, steps, progress) for start in starts)


def feature_guided(
    target: Target,
    seen: np.ndarray,
    *,
    steps: int = 600,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> np.ndarray:
    """An input with the features that the dense layer's gradient shows.

    What the layer read is known without a search (`analytic.dense_inputs`), and to
    match it takes one derivative, not two: on convolutions this is cheaper than IG and
    ends far closer.

    Args:
      target: The model.
      seen: [V, d], what observers hold, of one client each.
      steps: Of signed Adam.
      seed: Of the start.
      progress: Told after every step.

    Returns:
      Images [V, 1, H, W, c] in [0, 1].

    Raises:
      ArgumentError: If the model has no dense layer with a bias.
    """
    wanted = analytic.dense_inputs(target, seen)
    features = target.features_before_dense(analytic.first_dense(target))

    def mismatch(images: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        error = tf.reduce_sum((features(images[:, 0]) - wanted) ** 2, 1)
        error /= tf.reduce_sum(wanted**2, 1) + 1e-60
        return error + _FEATURE_VARIATION * total_variation(images)

    evaluate = with_gradient(mismatch, compiles=False)
    shape = (len(seen), 1, *target.features.shape[1:])
    start = np.random.default_rng(seed).uniform(size=shape)
    return _in_chunks(evaluate, start, (wanted,), steps, progress)[0]


def _best(found: Iterable[Found]) -> np.ndarray:
    """By victim, the images of the start that ended with the least loss."""
    starts = iter(found)
    best, least = next(starts)
    for images, losses in starts:
        better = losses < least
        best = np.where(better[:, None, None, None, None], images, best)
        least = np.where(better, losses, least)
    return best


def _minimised(
    evaluate: Callable[..., tuple[np.ndarray, list[np.ndarray]]],
    start: np.ndarray,
    held: Sequence[np.ndarray],
    evaluations: int,
    progress: Progress,
) -> Found:
    """L-BFGS-B, one victim after the other."""
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
    held: Sequence[np.ndarray],
    steps: int,
    progress: Progress,
) -> Found:
    """Victims in batches of one size, so that a function is compiled once."""
    images, losses, count = [], [], len(start)
    for begin in range(0, count, _CHUNK):
        rows = np.arange(begin, begin + min(_CHUNK, count)) % count
        found, loss = _signed_adam(
            evaluate,
            start[rows],
            [part[rows] for part in held],
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
    held: Sequence[np.ndarray],
    steps: int,
    progress: Callable[[int], None],
) -> Found:
    """Adam on the gradient's sign, rate as Geiping et al.; the last images and loss."""
    constants = [tf.constant(part) for part in held]
    first, second = np.zeros_like(images), np.zeros_like(images)
    milestones = [int(share * steps) for share in _IG_MILESTONES]
    for t in range(steps):
        rate = _IG_RATE * 0.1 ** sum(t >= milestone for milestone in milestones)
        _, gradients = evaluate(tf.constant(images), *constants)
        sign = np.sign(gradients[0].numpy())
        first = 0.9 * first + 0.1 * sign
        second = 0.999 * second + 0.001 * sign**2
        moved = (first / (1 - 0.9 ** (t + 1))) / (
            np.sqrt(second / (1 - 0.999 ** (t + 1))) + 1e-8
        )
        images = np.clip(images - rate * moved, 0.0, 1.0)
        progress(t + 1)
    loss, _ = evaluate(tf.constant(images), *constants)
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
