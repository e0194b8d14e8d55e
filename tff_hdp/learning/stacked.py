"""Many copies of one Keras model, each with its own weights, run as one.

A stack of C clients holds every weight with a leading axis [C, ...]; a dense
layer is then one batched matrix product for all clients.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

Weights = Sequence[tf.Tensor]
Layer = Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor]


class StackedModel:
    """A Keras `Sequential` applied to C clients at once.

    Args:
      model: A built `Sequential` of Rescaling, Flatten, Reshape, Dense, Conv2D,
        MaxPooling2D, ReLU and Activation layers.

    Raises:
      ValueError: If a layer or one of its options is not supported, naming it.
    """

    def __init__(self, model: tf.keras.Sequential) -> None:
        if not isinstance(model, tf.keras.Sequential):
            raise ValueError(f"model is a {type(model).__name__}, not a Sequential")
        self._layers: list[tuple[int, Layer]] = []
        for layer in model.layers:
            self._layers.append((len(layer.trainable_weights), _stack_layer(layer)))
        self.num_weights = sum(count for count, _ in self._layers)
        counts = [count for count, _ in self._layers]
        self._first = next((i for i, count in enumerate(counts) if count), None)
        if len(model.non_trainable_weights):
            raise ValueError(
                f"model has {len(model.non_trainable_weights)} non-trainable weights"
            )

    def __call__(self, weights: Weights, features: tf.Tensor) -> tf.Tensor:
        """Logits of every client on its own batch.

        Args:
          weights: Per Keras weight, in its order, [C, ...].
          features: [C, B, ...].

        Returns:
          [C, B, classes] of the weights' dtype.
        """
        return _apply(self._layers, weights, features)

    @property
    def reads_examples_densely(self) -> bool:
        """Whether the first layer with weights is dense."""
        return self._first is not None and isinstance(
            self._layers[self._first][1], _Dense
        )

    def to_first_dense(self, features: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """What the first dense layer multiplies, [C, N, d].

        Args:
          features: [C, N, ...].
          dtype: Of the weights.
        """
        return tf.cast(_apply(self._layers[: self._first], (), features), dtype)

    def from_first_dense(self, weights: Weights, product: tf.Tensor) -> tf.Tensor:
        """Logits, given the first dense layer's product.

        Args:
          weights: All but the first kernel.
          product: [C, B, h], before the bias.

        Returns:
          [C, B, classes].
        """
        count, dense = self._layers[self._first]
        biases, others = weights[: count - 1], weights[count - 1 :]
        value = dense.finish(biases, product)
        return _apply(self._layers[self._first + 1 :], others, value)


def is_supported(model: tf.keras.Model) -> bool:
    """Whether `StackedModel` takes the model."""
    try:
        StackedModel(model)
    except ValueError:
        return False
    return True


def _apply(
    layers: Sequence[tuple[int, Layer]], weights: Weights, value: tf.Tensor
) -> tf.Tensor:
    position = 0
    for count, layer in layers:
        value = layer(list(weights[position : position + count]), value)
        position += count
    return value


def _stack_layer(layer: tf.keras.layers.Layer) -> Layer:
    keras = tf.keras.layers
    if isinstance(layer, keras.Flatten):
        return lambda _, x: tf.reshape(x, [*_leading(x, 2), _size(x.shape[2:])])
    if isinstance(layer, keras.Reshape):
        return lambda _, x: tf.reshape(x, _leading(x, 2) + list(layer.target_shape))
    if isinstance(layer, keras.Dense):
        return _Dense(layer)
    if isinstance(layer, keras.Conv2D) and type(layer) is keras.Conv2D:
        return _convolution(layer)
    if isinstance(layer, keras.MaxPooling2D):
        return _max_pooling(layer)
    if isinstance(layer, keras.Rescaling | keras.ReLU | keras.Activation):
        return lambda _, x: layer(x)
    raise ValueError(f"layer {layer.name} is a {type(layer).__name__}")


class _Dense:
    """A matrix product a client, then bias and activation."""

    def __init__(self, layer: tf.keras.layers.Dense) -> None:
        if len(layer.input_shape) != 2:
            raise ValueError(
                f"layer {layer.name} has inputs {layer.input_shape}, not vectors"
            )
        self._activation = layer.activation

    def __call__(self, weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        kernel, *biases = weights
        return self.finish(biases, tf.matmul(tf.cast(x, kernel.dtype), kernel))

    def finish(self, biases: Weights, product: tf.Tensor) -> tf.Tensor:
        for bias in biases:
            product += bias[:, tf.newaxis]
        return self._activation(product)


def _convolution(layer: tf.keras.layers.Conv2D) -> Layer:
    if layer.groups != 1 or layer.data_format != "channels_last":
        raise ValueError(
            f"layer {layer.name} has groups {layer.groups} and data_format "
            f"{layer.data_format}"
        )

    def one_client(args: tuple[tf.Tensor, ...]) -> tf.Tensor:
        kernel, x = args
        return tf.nn.conv2d(
            x,
            kernel,
            strides=layer.strides,
            padding=layer.padding.upper(),
            dilations=layer.dilation_rate,
        )

    def apply(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        # A convolution per client keeps oneDNN's kernels; a grouped one has none.
        value = tf.map_fn(
            one_client,
            (weights[0], x),
            fn_output_signature=weights[0].dtype,
            parallel_iterations=8,
        )
        if layer.use_bias:
            value += weights[1][:, tf.newaxis, tf.newaxis, tf.newaxis]
        return layer.activation(value)

    return apply


def _max_pooling(layer: tf.keras.layers.MaxPooling2D) -> Layer:
    def apply(_: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        merged = tf.reshape(x, [-1, *x.shape[2:]])
        pooled = layer(merged)
        return tf.reshape(pooled, _leading(x, 2) + list(pooled.shape[1:]))

    return apply


def _leading(x: tf.Tensor, count: int) -> list[tf.Tensor]:
    shape = tf.shape(x)
    return [shape[i] for i in range(count)]


def _size(shape: tf.TensorShape) -> int:
    return shape.num_elements()
