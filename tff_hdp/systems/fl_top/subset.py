"""Training few of a model's weights, at the cost of what moves.

The weights of a large dense kernel W that may not move are the same for all clients
of a stack, so that their inputs are multiplied by one kernel at once, and only what
a client has moved is its own:

    X W_c = X W + X (W_c - W),

of which the second product has as many terms an example as entries of W may move.
No gradient of the others is formed, and nothing of their size is kept per client.
"""

from collections.abc import Sequence

import tensorflow as tf

from tff_hdp.aggregators.vectors import join
from tff_hdp.clients.sgd import Batch
from tff_hdp.clients.stacked_model import StackedModel

# Where more than this share of the weights move, whole ones are cheaper.
LARGEST_SHARE = 0.02
# Kernels with fewer numbers are formed for every client.
_SMALL = 2**17


class SubsetProblem:
    """The loss as a function of the K weights that may move. See `sgd.Problem`.

    Args:
      model: The model, stacked.
      initial: The weights sent, each without the client axis.
      coordinates: Which may move, of all n in their order, int32 [K].
      features: [C, N, ...] as stored.
    """

    def __init__(
        self,
        model: StackedModel,
        initial: Sequence[tf.Tensor],
        coordinates: tf.Tensor,
        features: tf.Tensor,
    ) -> None:
        self.start = [tf.gather(join(initial), coordinates)[tf.newaxis]]
        self._model = model
        self._features = features
        self._dense = set(model.dense_kernels)
        self._parts = []
        begin = 0
        for weight, shape, size in zip(initial, model.shapes, model.sizes, strict=True):
            end = begin + size
            inside = tf.logical_and(coordinates >= begin, coordinates < end)
            own = tf.boolean_mask(coordinates, inside) - begin
            self._parts.append((tf.ensure_shape(weight, shape), inside, own))
            begin = end

    def gradients(
        self, weights: Sequence[tf.Tensor], batch: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """See `sgd.Problem`."""
        (values,) = weights
        features = tf.gather(self._features, batch.rows, batch_dims=1)
        with tf.GradientTape() as tape:
            tape.watch(values)
            logits = self._model(self._weights(values), features)
            loss, summed = batch.loss(logits)
        return [tape.gradient(loss, values)], logits, summed

    def _weights(self, values: tf.Tensor) -> list["tf.Tensor | MovedKernel"]:
        """The model's weights where the chosen ones are `values`, [C, K]."""
        moved = values - self.start[0]
        found = []
        for place, (weight, inside, own) in enumerate(self._parts):
            steps = tf.boolean_mask(moved, inside, axis=1)
            if place in self._dense and weight.shape.num_elements() > _SMALL:
                found.append(MovedKernel(weight, own, steps))
            else:
                found.append(_formed(weight, own, steps))
        return found


class MovedKernel:
    """Kernels that differ from one in a few entries, client by client.

    Args:
      kernel: W, [d, h].
      places: Rows of the flat kernel that differ, int32 [k].
      steps: By how much, [C, k].
    """

    def __init__(self, kernel: tf.Tensor, places: tf.Tensor, steps: tf.Tensor) -> None:
        self.dtype = kernel.dtype
        self._kernel = kernel
        self._rows = places // kernel.shape[1]
        self._columns = places % kernel.shape[1]
        self._steps = steps

    def product(self, x: tf.Tensor) -> tf.Tensor:
        """X W_c of every client, [C, B, h], of X [C, B, d]."""
        inputs, outputs = self._kernel.shape
        whole = tf.matmul(tf.reshape(x, [-1, inputs]), self._kernel)
        # Places first, so that both sums over places are of contiguous rows.
        by_input = tf.transpose(x, [2, 0, 1])
        terms = tf.gather(by_input, self._rows)
        terms *= tf.transpose(self._steps)[:, :, tf.newaxis]
        few = tf.math.unsorted_segment_sum(terms, self._columns, outputs)
        few = tf.transpose(few, [1, 2, 0])
        return tf.reshape(whole, tf.shape(few)) + few


def _formed(weight: tf.Tensor, places: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """A weight of every client, [C, ...]."""
    flat = tf.scatter_nd(
        places[:, tf.newaxis],
        tf.transpose(steps),
        [weight.shape.num_elements(), tf.shape(steps)[0]],
    )
    return weight + tf.reshape(tf.transpose(flat), [-1, *weight.shape])
