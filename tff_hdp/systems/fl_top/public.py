"""What the FL-TOP server decides before round 1, on public data alone.

Source: FL-TOP paper, section 3.1 (Top-K) and section 4 (the clip norm S).
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators.vectors import join
from tff_hdp.clients.batches import make_chunk, make_order
from tff_hdp.clients.sgd import full_gradients
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.fl_top.client_work import train_compressed
from tff_hdp.systems.fl_top.compressors import Compressor

# How many random subsets the clip norm of FL-BASIC-DP is the median over.
CLIP_DRAWS = 100


def subset_size(ratio: float, num_weights: int) -> int:
    """K = floor(r n), r taken as the decimal number it is written as.

    Args:
      ratio: r in (0, 1].
      num_weights: n.

    Raises:
      ArgumentError: If r is out of range or leaves no weight.
    """
    size = math.floor(Fraction(str(ratio)) * num_weights) if 0 < ratio <= 1 else 0
    if size < 1:
        least = f"at least {1 / num_weights:.3g}"
        raise ArgumentError(
            "ratio", ratio, f"(0, 1] and, for {num_weights:,} weights, {least}"
        )
    return size


def accumulated_gradients(
    model: tf.keras.Sequential,
    initial: Sequence[np.ndarray],
    features: np.ndarray,
    labels: np.ndarray,
    *,
    steps: int,
    learning_rate: float,
) -> np.ndarray:
    """How much every weight moves on public data: sum of |gradient| over SGD steps.

    Args:
      model: The model; its weights are left as they were.
      initial: w_0, the weights to start from, in Keras' order.
      features: [m, ...], the public batch.
      labels: [m].
      steps: T_init, steps on that one batch.
      learning_rate: Of SGD.

    Returns:
      [n] float32.

    Raises:
      FloatingPointError: If a gradient is not finite.
    """
    stacked = StackedModel(model)
    weights = [tf.constant(w)[tf.newaxis] for w in initial]
    scores = [tf.zeros_like(w) for w in weights]
    batch = tf.constant(features)[tf.newaxis], tf.constant(labels)[tf.newaxis]
    gradients = tf.function(
        lambda weights: full_gradients(stacked, weights, *batch)[0], autograph=False
    )
    for _ in range(steps):
        step = gradients(weights)
        scores = [s + tf.abs(g) for s, g in zip(scores, step, strict=True)]
        weights = [w - learning_rate * g for w, g in zip(weights, step, strict=True)]
    result = join(scores, leading=1)[0].numpy()
    if not np.isfinite(result).all():
        raise FloatingPointError(
            f"the gradients on public data are not finite after {steps} steps at "
            f"learning rate {learning_rate}"
        )
    return result


def top_k(scores: np.ndarray, size: int) -> np.ndarray:
    """Coordinates of the `size` largest scores, int32 in rising order.

    Of equal scores the earlier coordinate wins.
    """
    order = np.argsort(-scores, kind="stable")[:size]
    return np.sort(order).astype(np.int32)


class PublicRound:
    """One round of a client whose data are the public ones.

    Args:
      model: The model.
      initial: w_0, in Keras' order.
      features: [m, ...], the public batch.
      labels: [m].
      epochs: Passes of a client over its data.
      batch_size: Examples of a client's batch.
      learning_rate: Of the clients' SGD.
      rng: Decides the order of the public batch.
    """

    def __init__(
        self,
        *,
        model: tf.keras.Sequential,
        initial: Sequence[np.ndarray],
        features: np.ndarray,
        labels: np.ndarray,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._weights = StackedModel(model), join(initial)
        order = make_order(len(labels), epochs=epochs, batch_size=batch_size, rng=rng)
        chunk = make_chunk(
            [(features, labels)], [order], weights=[1.0], carries_noise=[False], zone=0
        )
        self._chunk = tf.nest.map_structure(tf.constant, chunk)
        self._learning_rate = learning_rate

    def sent(self, compressor: Compressor, draws: int = 1) -> Iterator[np.ndarray]:
        """What such a client sends, [upload_size], at each of so many draws."""

        @tf.function(autograph=False)
        def one(draw: tf.Tensor) -> tf.Tensor:
            sent, _ = train_compressed(
                self._model,
                self._weights,
                self._chunk,
                compressor=compressor,
                round_number=draw,
                learning_rate=self._learning_rate,
            )
            return sent[0]

        for i in range(draws):
            yield one(tf.constant(i)).numpy()

    def clip_norm(self, compressor: Compressor) -> float:
        """S: the norm of the compressed update.

        Where the compressor is drawn anew every round, the median over `CLIP_DRAWS`.

        Raises:
          ArgumentError: If the norm is not a finite number greater than 0.
        """
        draws = CLIP_DRAWS if compressor.is_random else 1
        norms = [float(np.linalg.norm(x)) for x in self.sent(compressor, draws)]
        result = statistics.median(norms)
        if not (np.isfinite(result) and result > 0.0):
            raise ArgumentError(
                "clip_norm",
                "auto",
                f"a number, since the update on public data has norm {result}",
            )
        return result
