"""Many copies of one Keras model, each with its own weights, run as one.

A stack of C clients holds every weight with a leading axis [C, ...]; a dense
layer is then one batched matrix product for all clients.
"""

import bisect
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.clients.updates import out_of_range, spoilt
from tff_hdp.errors import ArgumentError, check_makes_models, require
from tff_hdp.runtime import environment

# Act on each number, or row of the last axis, alone: a stack may be treated as a batch.
_ACTIVATIONS = [
    function
    for room in (tf.keras.activations, tf.nn)
    for name in vars(tf.keras.activations)
    if inspect.isfunction(function := getattr(room, name, None))
]

Weights = Sequence[tf.Tensor]
Layer = Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor]


class StackedModel:
    """A Keras `Sequential` applied to C clients at once.

    Args:
      model: A built `Sequential` of Rescaling, Flatten, Reshape, Embedding, Dense,
        Conv2D, MaxPooling2D, ZeroPadding1D, ReLU and Activation layers. Convolutions
        of a `mixed_bfloat16` policy multiply in bfloat16; all else is computed in the
        weights' dtype.

    Attributes:
      shapes: Of the model's weights, in Keras' order.
      sizes: How many numbers each of them holds.
      size: How many all do.
      convolves: Whether there is a convolution, of which every client has its own.

    Raises:
      ArgumentError: If the model is not built, a layer or one of its options is not
        supported, naming it, or weights are not all of one dtype.
    """

    def __init__(self, model: tf.keras.Sequential) -> None:
        # A user's own kind of one may do more than its layers.
        if type(model) is not tf.keras.Sequential:
            raise ArgumentError("model", type(model).__name__, "a Sequential")
        if not model.inputs:
            raise ArgumentError("model", "without its input's shape", "a built one")
        dtypes = sorted({tf.as_dtype(w.dtype).name for w in model.trainable_weights})
        if len(dtypes) > 1:
            raise ArgumentError("model.trainable_weights", dtypes, "of one dtype")
        # Keras does not name what takes the input among a model's layers.
        self._layers: list[tuple[int, Layer]] = [(0, _Input(model))]
        for layer in model.layers:
            stacked = _stack_layer(layer)
            before = self._layers[-1][1]
            if isinstance(stacked, _MaxPooling) and isinstance(before, _Affine):
                stacked = before.pooled(stacked)
                self._layers.pop()
                layer = before.layer
            self._layers.append((len(layer.trainable_weights), stacked))
        self.shapes = tuple(tuple(w.shape) for w in model.trainable_weights)
        self.sizes = tuple(map(math.prod, self.shapes))
        self.size = sum(self.sizes)
        convolution = tf.keras.layers.Conv2D
        self.convolves = any(isinstance(layer, convolution) for layer in model.layers)
        counts = [count for count, _ in self._layers]
        # The number of every layer's first weight.
        self._starts = list(itertools.accumulate(counts, initial=0))[:-1]
        self._first = next((i for i, count in enumerate(counts) if count), None)
        if len(model.non_trainable_weights):
            names = [weight.name for weight in model.non_trainable_weights]
            raise ArgumentError("model.non_trainable_weights", names, "none")
        # As regularizers add: TFF's own training minimises them too.
        found = f"{len(model.losses)} of layers"
        require(not model.losses, "model.losses", found, "none")

    @classmethod
    def built_by(cls, build_model: Callable[[], tf.keras.Sequential]) -> "StackedModel":
        """Of a new model, made in a graph of its own.

        Keras then refuses eager models made before, until a new one is made: make
        those to evaluate with later.

        Raises:
          ArgumentError: If `build_model` is no function to such a model, or the model
            has an unsupported layer.
        """
        kinds = "a function to a new Keras model"
        check_makes_models("build_model", build_model, kinds)
        try:
            with tf.Graph().as_default():
                return cls(build_model())
        except ArgumentError as error:
            raise error.renamed({"model": "build_model"}) from error

    def __call__(self, weights: Weights, features: tf.Tensor) -> tf.Tensor:
        """Logits of every client on its own batch.

        Args:
          weights: Per Keras weight, in its order, [C, ...]; a dense kernel may be
            anything else that has a dtype and a product with [C, B, d].
          features: [C, B, ...].

        Returns:
          [C, B, classes] of the weights' dtype.
        """
        return _apply(self._layers, weights, features)

    @property
    def reads_examples_densely(self) -> bool:
        """Whether the first layer with weights is dense."""
        first = None if self._first is None else self._layers[self._first][1]
        return _is_dense(first)

    @property
    def dense_kernels(self) -> list[int]:
        """The numbers of the weights that are dense layers' kernels."""
        pairs = zip(self._starts, self._layers, strict=True)
        return [start for start, (_, layer) in pairs if _is_dense(layer)]

    def to_dense(self, weights: Weights, place: int, features: tf.Tensor) -> tf.Tensor:
        """What the layer whose first weight is number `place` reads.

        Args:
          weights: Those before it, per Keras weight [C, ...].
          place: Of the weight, in Keras' order.
          features: [C, B, ...].
        """
        # Of layers that begin at one number, the last has the weights.
        before = bisect.bisect(self._starts, place) - 1
        return _apply(self._layers[:before], weights, features)

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
    except ArgumentError:
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


class _Input:
    """Examples as the model declares them.

    Keras would give or take a last axis of 1; here the shape must be the model's.
    """

    def __init__(self, model: tf.keras.Sequential) -> None:
        self._shape = tf.TensorShape(model.input_shape[1:])
        self._dtype = tf.as_dtype(model.inputs[0].dtype)

    def __call__(self, _: Weights, x: tf.Tensor) -> tf.Tensor:
        found, allowed = f"of shape {x.shape[2:]} each", f"{self._shape}, the model's"
        fits = self._shape.is_compatible_with(x.shape[2:])
        require(fits, "features", found, allowed)
        # Layers make these of it themselves, and leave float64 what it is.
        is_wide = self._dtype in (tf.float32, tf.float64)
        return x if is_wide else tf.cast(x, self._dtype)


def _stack_layer(layer: tf.keras.layers.Layer) -> Layer:
    keras = tf.keras.layers
    # A user's own kind of one of these may do anything.
    kind = type(layer)
    activation = getattr(layer, "activation", tf.keras.activations.linear)
    if activation not in _ACTIVATIONS:
        raise ArgumentError(
            f"layer {layer.name}.activation",
            getattr(activation, "__name__", type(activation).__name__),
            "for clients in a stack one of tf.keras.activations",
        )
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        name = f"layer {layer.name}.data_format"
        raise ArgumentError(name, layer.data_format, "channels_last")
    if kind is keras.Flatten:
        return lambda _, x: tf.reshape(x, [*_leading(x), x.shape[2:].num_elements()])
    if kind is keras.Reshape:
        return lambda _, x: tf.reshape(x, [*_leading(x), *layer.target_shape])
    if kind is keras.ZeroPadding1D:
        return lambda _, x: tf.pad(x, [(0, 0), (0, 0), layer.padding, (0, 0)])
    if kind is keras.Embedding and not layer.mask_zero:
        return _look_up
    if kind is keras.Dense:
        return _Affine(layer, _product(layer))
    if kind is keras.Conv2D:
        return _Affine(layer, _convolution(layer))
    if kind is keras.MaxPooling2D:
        return _MaxPooling(layer)
    if kind is keras.Rescaling:
        return lambda _, x: _rescaled(layer, x)
    if kind in (keras.ReLU, keras.Activation):
        return lambda _, x: _activated(layer, x)
    raise ArgumentError(
        "model",
        f"one with layer {layer.name}, of type {kind.__name__}",
        "for clients in a stack Rescaling, Flatten, Reshape, Embedding, Dense, Conv2D, "
        "MaxPooling2D, ZeroPadding1D, ReLU, Activation",
    )


def _look_up(weights: Weights, ids: tf.Tensor) -> tf.Tensor:
    """The rows [C, B, ..., D] of each client's table; NaN for an id of no row."""
    (table,) = weights
    # A product has dense gradients.
    hot = tf.one_hot(tf.cast(ids, tf.int32), table.shape[1], dtype=table.dtype)
    rows = tf.einsum("cb...v,cvd->cb...d", hot, table)
    return spoilt(rows, out_of_range(ids, table.shape[1])[..., tf.newaxis])


class _Affine:
    """A product with a kernel a client, perhaps pooled, then bias and activation.

    Pooling commutes with what does not decrease, and leaves less to do.
    """

    def __init__(
        self,
        layer: tf.keras.layers.Layer,
        product: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        pooling: "_MaxPooling | None" = None,
    ) -> None:
        self.layer = layer
        self._product = product
        self._pooling = pooling

    def pooled(self, pooling: "_MaxPooling") -> Layer:
        """This layer followed by `pooling`."""
        rising = (tf.keras.activations.relu, tf.keras.activations.linear)
        if self._pooling is None and self.layer.activation in rising:
            return _Affine(self.layer, self._product, pooling)
        return lambda weights, x: pooling([], self(weights, x))

    def __call__(self, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        kernel, *biases = weights
        product = self._product(kernel, tf.cast(x, kernel.dtype))
        if self._pooling is not None:
            product = self._pooling([], product)
        return self.finish(biases, tf.cast(product, kernel.dtype))

    def finish(self, biases: Weights, product: tf.Tensor) -> tf.Tensor:
        for bias in biases:
            if bias.shape[0] == 1:
                product = tf.nn.bias_add(product, tf.squeeze(bias, 0))
            else:
                shape = [-1] + [1] * (product.shape.rank - 2) + [bias.shape[1]]
                product += tf.reshape(bias, shape)
        return self.layer.activation(product)


def _is_dense(layer: Layer | None) -> bool:
    return isinstance(layer, _Affine) and isinstance(layer.layer, tf.keras.layers.Dense)


def _product(layer: tf.keras.layers.Dense) -> Callable[..., tf.Tensor]:
    if len(layer.input_shape) != 2:
        raise ArgumentError(
            f"layer {layer.name}.input_shape", layer.input_shape, "that of vectors"
        )

    def apply(kernel: Any, x: tf.Tensor) -> tf.Tensor:
        if not tf.is_tensor(kernel):
            return kernel.product(x)
        if kernel.shape[0] == 1:
            # The gradient of a batched product transposes first what this one does not.
            product = tf.matmul(tf.squeeze(x, 0), tf.squeeze(kernel, 0))
            return tf.expand_dims(product, 0)
        return tf.matmul(x, kernel)

    return apply


def _convolution(layer: tf.keras.layers.Conv2D) -> Callable[..., tf.Tensor]:
    if layer.groups != 1:
        raise ArgumentError(f"layer {layer.name}.groups", layer.groups, "1")

    in_bfloat16 = layer.compute_dtype == "bfloat16"

    @tf.autograph.experimental.do_not_convert
    def one_client(args: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        kernel, x = (tf.cast(t, tf.bfloat16) for t in args) if in_bfloat16 else args
        return tf.nn.conv2d(
            x,
            kernel,
            strides=layer.strides,
            padding=layer.padding.upper(),
            dilations=layer.dilation_rate,
        )

    def side_by_side(kernel: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """One convolution in groups, whose channels are all clients'."""
        clients, batch = _leading(x)
        height, width, channels = x.shape[2:]
        *window, _, filters = kernel.shape[1:]
        images = tf.transpose(x, [1, 2, 3, 0, 4])
        kernels = tf.transpose(kernel, [1, 2, 3, 0, 4])
        shapes = (
            [*window, channels, clients * filters],
            [batch, height, width, clients * channels],
        )
        product = one_client(tuple(map(tf.reshape, (kernels, images), shapes)))
        shape = tf.concat([tf.shape(product)[:3], [clients, filters]], 0)
        return tf.transpose(tf.reshape(product, shape), [3, 0, 1, 2, 4])

    def apply(kernel: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        if kernel.shape[0] == 1:
            only = (tf.squeeze(kernel, 0), tf.squeeze(x, 0))
            return tf.expand_dims(one_client(only), 0)
        if environment.gpus():
            return side_by_side(kernel, x)
        # A convolution per client keeps oneDNN's kernels; a grouped one has none.
        return tf.map_fn(
            one_client,
            (kernel, x),
            fn_output_signature=tf.bfloat16 if in_bfloat16 else kernel.dtype,
            parallel_iterations=8,
        )

    return apply


class _MaxPooling:
    """Max pooling of every client's batch."""

    def __init__(self, layer: tf.keras.layers.MaxPooling2D) -> None:
        self._layer = layer

    def __call__(self, _: Weights, x: tf.Tensor) -> tf.Tensor:
        # The layer itself would round float64.
        pooled = tf.nn.max_pool2d(
            tf.reshape(x, [-1, *x.shape[2:]]),
            self._layer.pool_size,
            self._layer.strides,
            self._layer.padding.upper(),
        )
        return tf.reshape(pooled, [*_leading(x), *pooled.shape[1:]])


def _rescaled(layer: tf.keras.layers.Rescaling, x: tf.Tensor) -> tf.Tensor:
    """As the layer does, which would round float64.

    By `call`, as all layers here: Keras refuses to call layers themselves that were
    made before others in a graph, as `built_by` makes them.
    """
    return x * layer.scale + layer.offset if x.dtype == tf.float64 else layer.call(x)


def _activated(layer: tf.keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
    """As the layer does of a model's input, but for float64."""
    return layer.call(x if x.dtype == tf.float64 else tf.cast(x, layer.variable_dtype))


def _leading(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """C and B of [C, B, ...]."""
    shape = tf.shape(x)
    return shape[0], shape[1]
