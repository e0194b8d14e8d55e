"""Which labels are in a sum of updates, read off the last layer."""

import numpy as np

from tff_hdp.attacks.victims import Target


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
