"""What dense layers' gradients show without any search: inputs, and labels."""

import itertools

import numpy as np

from tff_hdp.attacks.victims import Target
from tff_hdp.errors import ArgumentError

_ITERATIONS = 5


def first_dense(target: Target) -> int:
    """The place of the first dense layer's kernel among the weights.

    Raises:
      ArgumentError: If the model has no dense layer with a bias.
    """
    for i, (kernel, bias) in enumerate(itertools.pairwise(target.shapes)):
        if len(kernel) == 2 and len(bias) == 1:
            return i
    allowed = "one with a dense layer that has a bias"
    raise ArgumentError("model", target.shapes, allowed)


def dense_inputs(
    target: Target,
    seen: np.ndarray,
    *,
    stddev: float = 0.0,
    mean: np.ndarray | None = None,
    variance: np.ndarray | None = None,
) -> np.ndarray:
    """What the first dense layer read, for one example in each sum.

    [dW; db] is [x; 1] delta^T (Phong et al. 2017), of rank one for one example and any
    number of local steps on it, so its leading singular vector is proportional to
    [x; 1]. Under noise of known size, x is then shrunk to its prior by the linear
    estimate of least mean squared error.

    Args:
      target: The model.
      seen: [V, d], what observers hold.
      stddev: Of every number in it.
      mean: [n], prior mean of each input; with `variance`.
      variance: [n], prior variance.

    Returns:
      [V, n] float64.

    Raises:
      ArgumentError: If the model has no dense layer with a bias.
    """
    place = first_dense(target)
    sizes = [int(np.prod(shape)) for shape in target.shapes]
    begin = sum(sizes[:place])
    inputs, units = target.shapes[place]
    found = np.empty([len(seen), inputs])
    for row, one in enumerate(seen):
        matrix = one[begin : begin + (inputs + 1) * units].reshape(inputs + 1, units)
        # The small Gram matrix has the right singular vectors.
        _, vectors = np.linalg.eigh(matrix.T @ matrix)
        left = matrix @ vectors[:, -1]
        if stddev == 0.0 or mean is None:
            found[row] = left[:-1] / (left[-1] or 1e-300)
        else:
            found[row] = _shrunk(left, stddev, mean, variance)
    return found


def _shrunk(
    left: np.ndarray, stddev: float, mean: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """The MMSE estimate of x from a [x; 1] + noise, with a by weighted least squares.

    A number's weight is its precision given a, which the iteration improves.
    """
    prior = np.append(mean, 1.0)
    spread = np.append(variance, 0.0)
    a = left @ prior / (prior @ prior)
    for _ in range(_ITERATIONS):
        precision = 1 / (a * a * spread + stddev**2)
        a = (precision * prior) @ left / ((precision * prior) @ prior)
    gain = a * variance / (a * a * variance + stddev**2)
    return mean + gain * (left[:-1] - a * mean)


def infer_labels(target: Target, seen: np.ndarray, m: int = 1) -> np.ndarray:
    """The labels of m single examples (Zhao et al. 2020, iDLG, for sums).

    A column of the last kernel's gradient is (p_i - y_i) times the activations before
    it, which are nowhere negative; so for one example the least column sum is the
    label's. For several, sums are (m p_i - count_i) A: p_i is taken as 1 / classes, A
    from the sums themselves. The kernel, of many numbers, bears more noise than the
    bias.

    Args:
      target: The model.
      seen: [V, d], what observers hold.
      m: Clients in each.

    Returns:
      [V, m] int32, in rising order.
    """
    sizes = [int(np.prod(shape)) for shape in target.shapes]
    kernel = max(i for i, shape in enumerate(target.shapes) if len(shape) == 2)
    begin = sum(sizes[:kernel])
    columns = seen[:, begin : begin + sizes[kernel]]
    sums = columns.reshape(-1, *target.shapes[kernel]).sum(1)
    if m == 1:
        return sums.argmin(1)[:, np.newaxis].astype(np.int32)
    classes = target.num_classes
    negative = sums < 0
    share = 1 - negative.sum(1) / classes
    scale = -np.where(negative, sums, 0).sum(1) / (m * np.maximum(share, 0.1))
    counts = m / classes - sums / np.maximum(scale, 1e-300)[:, np.newaxis]
    labels = np.empty([len(seen), m], np.int32)
    rows = np.arange(len(seen))
    for j in range(m):
        labels[:, j] = counts.argmax(1)
        counts[rows, labels[:, j]] -= 1
    return np.sort(labels, 1)
