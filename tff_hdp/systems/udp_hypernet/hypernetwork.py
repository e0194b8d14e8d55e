"""The hypernetwork h(phi, v): one user's weights from the user's descriptor."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_hdp.clients.updates import OuterProducts
from tff_hdp.errors import ArgumentError

HIDDEN_LAYERS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hypernetwork:
    """A fully connected network with one linear head per weight tensor.

    Three hidden ReLU layers turn a descriptor v into features e(v); head l is a
    linear map from e(v) to the entries of the local model's tensor l (UDP-Alg
    paper, section 4.2, after Shamsian et al. 2021, "Personalized federated
    learning using hypernetworks"). It holds no weights: phi is an argument, a list
    of kernel and bias per hidden layer, then kernel and bias per head.

    Attributes:
      descriptor_dim: Entries of a descriptor v.
      width: Units of every hidden layer.
      targets: Shapes of the local model's weight tensors, in Keras' order.

    Raises:
      ArgumentError: If a size is below 1.
    """

    descriptor_dim: int
    width: int
    targets: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for name in ("descriptor_dim", "width"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, getattr(self, name), "a whole number >= 1")
        object.__setattr__(self, "targets", tuple(map(tuple, self.targets)))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of every tensor of phi."""
        widths = [self.descriptor_dim] + [self.width] * HIDDEN_LAYERS
        hidden = [
            shape for a, b in itertools.pairwise(widths) for shape in ((a, b), (b,))
        ]
        sizes = [math.prod(target) for target in self.targets]
        return hidden + [s for size in sizes for s in ((self.width, size), (size,))]

    @property
    def num_parameters(self) -> int:
        """How many numbers phi holds."""
        return sum(math.prod(shape) for shape in self.shapes)

    def initial(self, local_weights: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Draws phi so that every h(phi, v) is a fresh local model's size.

        Hidden kernels are He normal, which keeps the second moment of standard
        normal descriptors. The heads' biases are the local model's own initial
        weights, and their kernels are scaled so that e(v) adds as much variance as
        these tensors have themselves: users start alike and not the same. A tensor
        without variance, as Keras' biases are, takes that of the tensor before it:
        with a kernel of zeros no step of a descriptor could move it.

        Args:
          local_weights: A freshly drawn local model, tensors of shapes `targets`.

        Returns:
          phi, float32, drawn from TensorFlow's global generator.
        """
        phi = []
        for shape in self.shapes[: 2 * HIDDEN_LAYERS]:
            scale = math.sqrt(2.0 / shape[0]) if len(shape) == 2 else 0.0
            phi.append(scale * tf.random.normal(shape))
        spread = tf.constant(0.0)
        for tensor in local_weights:
            bias = tf.reshape(tf.cast(tensor, tf.float32), [-1])
            own = tf.math.reduce_std(bias)
            spread = tf.where(own > 0, own, spread)
            scale = spread / math.sqrt(self.width)
            phi += [scale * tf.random.normal([self.width, bias.shape[0]]), bias]
        return phi

    def __call__(
        self, phi: Sequence[tf.Tensor], descriptor: tf.Tensor
    ) -> list[tf.Tensor]:
        """The weights theta = h(phi, v).

        Args:
          phi: Tensors of shapes `shapes`.
          descriptor: v, float32 [descriptor_dim].

        Returns:
          The local model's weights, tensors of shapes `targets`.
        """
        pairs = list(zip(phi[0::2], phi[1::2], strict=True))
        value = descriptor[tf.newaxis]
        for kernel, bias in pairs[:HIDDEN_LAYERS]:
            value = tf.nn.relu(tf.matmul(value, kernel) + bias)
        return [
            tf.reshape(tf.matmul(value, kernel) + bias, shape)
            for (kernel, bias), shape in zip(
                pairs[HIDDEN_LAYERS:], self.targets, strict=True
            )
        ]

    def as_keras(self, phi: Sequence[tf.Tensor]) -> tf.keras.Model:
        """The same map of built-in layers, from descriptors to lists of tensors.

        Args:
          phi: Tensors of shapes `shapes`.
        """
        layers = tf.keras.layers
        descriptor = value = layers.Input([self.descriptor_dim], name="descriptor")
        for _ in range(HIDDEN_LAYERS):
            value = layers.Dense(self.width, activation="relu")(value)
        heads = [layers.Dense(math.prod(target))(value) for target in self.targets]
        pairs = zip(heads, self.targets, strict=True)
        shaped = [layers.Reshape(target)(head) for head, target in pairs]
        network = tf.keras.Model(descriptor, shaped)
        dense = (x for x in network.layers if isinstance(x, layers.Dense))
        pairs = zip(phi[0::2], phi[1::2], strict=True)
        for layer, pair in zip(dense, pairs, strict=True):
            layer.set_weights([np.asarray(tensor) for tensor in pair])
        return network

    def pull_back(
        self,
        phi: Sequence[tf.Tensor],
        descriptors: tf.Tensor,
        updates: Sequence[tf.Tensor],
    ) -> tuple[list[tf.Tensor | OuterProducts], tf.Tensor]:
        """Local updates in the coordinates of phi and of v, for a stack of users.

        A layer's kernel moves by the outer product of its input and of what comes back
        to its output, so nothing of phi's size is formed for a user.

        Args:
          phi: Tensors of shapes `shapes`.
          descriptors: v of U users, float32 [U, descriptor_dim].
          updates: Delta theta of each, tensors [U, ...] of shapes `targets`.

        Returns:
          (d theta / d phi)^T Delta theta of each, as a list like phi of stacks, and
          (d theta / d v)^T Delta theta, float32 [U, descriptor_dim] (UDP-Alg,
          Algorithm 1, lines 12 and 16).
        """
        pairs = list(zip(phi[0::2], phi[1::2], strict=True))
        hidden, heads = pairs[:HIDDEN_LAYERS], pairs[HIDDEN_LAYERS:]
        values = [descriptors]
        for kernel, bias in hidden:
            values.append(tf.nn.relu(tf.matmul(values[-1], kernel) + bias))
        flat = [
            tf.reshape(update, [-1, kernel.shape[1]])
            for update, (kernel, _) in zip(updates, heads, strict=True)
        ]
        pulled = [t for back in flat for t in (OuterProducts(values[-1], back), back)]
        back = tf.add_n(
            [
                tf.matmul(update, kernel, transpose_b=True)
                for update, (kernel, _) in zip(flat, heads, strict=True)
            ]
        )
        for (kernel, _), (given, value) in zip(
            reversed(hidden), reversed([*itertools.pairwise(values)]), strict=True
        ):
            back = tf.where(value > 0.0, back, 0.0)
            pulled = [OuterProducts(given, back), back, *pulled]
            back = tf.matmul(back, kernel, transpose_b=True)
        return pulled, back
