"""The models of the tasks: a hidden layer behind convolutions or characters, or none.

An architecture is plain data, so that its parameters can be counted and its
layers described without TensorFlow.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_hdp.errors import ArgumentError, check_bool, check_count, entries, require

if TYPE_CHECKING:
    import tensorflow as tf

KERNEL = 5
# One number for all values, or one for each column.
Value = float | tuple[float, ...]


def _check_width(name: str, value: Any) -> int:
    return check_count(name, value, 1)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A convolutional or (with no filters) a dense classifier.

    Attributes:
      filters: Output channels of each convolution; a convolution is 5x5 with
        zero padding and ReLU, followed by 2x2 max pooling.
      units: Width of the hidden dense layer, with ReLU; None for no such layer.

    Raises:
      ArgumentError: If a field is not as described, or a layer without any width.
    """

    filters: tuple[int, ...]
    units: int | None

    def __post_init__(self) -> None:
        filters = entries("filters", self.filters, _check_width)
        object.__setattr__(self, "filters", filters)
        if self.units is not None:
            object.__setattr__(self, "units", _check_width("units", self.units))

    def check(
        self,
        name: str,
        *,
        input_shape: tuple[int, ...],
        max_value: Value | None,
        min_value: Value = 0.0,
    ) -> None:
        """Raises ArgumentError unless the model can be built for a data set.

        Args:
          name: The data set's.
          input_shape: As `build` takes it.
          max_value: Likewise.
          min_value: Likewise.
        """
        if self.filters:
            least = 2 ** len(self.filters)
            fits = len(input_shape) == 3 and min(input_shape[:2]) >= least
            allowed = f"height and width of {least} or more, and channels, "
            allowed += f"before {len(self.filters)} convolutions"
            require(fits, f"{name}.input_shape", input_shape, allowed)
        _check_range(name, input_shape, min_value, max_value)

    def layers(
        self, *, input_shape: tuple[int, ...], num_classes: int
    ) -> list[tuple[str, int]]:
        """The layers that hold parameters, in order.

        Args:
          input_shape: Of an example; height, width and channels for convolutions.
          num_classes: Number of logits.

        Returns:
          For each layer, its description and number of parameters.
        """
        result = []
        for filters in self.filters:
            height, width, channels = input_shape
            parameters = (KERNEL * KERNEL * channels + 1) * filters
            result.append((f"Conv2D {KERNEL}x{KERNEL}, {filters}", parameters))
            input_shape = height // 2, width // 2, filters
        inputs = math.prod(input_shape)
        for units in filter(None, (self.units, num_classes)):
            result.append((f"Dense {units}", (inputs + 1) * units))
            inputs = units
        return result

    def num_parameters(self, *, input_shape: tuple[int, ...], num_classes: int) -> int:
        """How many trainable parameters the model has."""
        layers = self.layers(input_shape=input_shape, num_classes=num_classes)
        return sum(parameters for _, parameters in layers)

    def describe(
        self, *, max_value: Value, min_value: Value = 0.0, **shape: Any
    ) -> str:
        """The model in words; arguments are those of `build`."""
        divided = "mapped from their ranges to 0..1"
        if not isinstance(max_value, tuple) and not isinstance(min_value, tuple):
            divided = f"divided by {max_value}"
            if min_value:
                divided = f"mapped from {min_value}..{max_value} to 0..1"
        text = (
            f"values {divided}, {_listed(self.layers(**shape))}; "
            f"{self.num_parameters(**shape):,} parameters"
        )
        if self == SOFTMAX:
            return text
        return (
            f"{text}; ReLU after all but the last layer, 2x2 max pooling after each "
            "convolution"
        )

    def build(
        self,
        *,
        input_shape: tuple[int, ...],
        num_classes: int,
        max_value: Value,
        min_value: Value = 0.0,
    ) -> "tf.keras.Model":
        """Returns a new, uncompiled model from raw values to logits.

        Initial weights are Keras' defaults (Glorot uniform, zero biases), drawn
        from TensorFlow's global generator: `tf.keras.utils.set_random_seed`
        fixes them.

        Args:
          input_shape: Of an example; height, width and channels for convolutions.
          num_classes: Number of logits.
          max_value: The largest raw value, or that of each column, mapped to 1.
          min_value: The smallest, mapped to 0.
        """
        import tensorflow as tf

        layers = tf.keras.layers
        stack = [layers.Input(input_shape), rescaling(min_value, max_value)]
        for filters in self.filters:
            stack.append(
                layers.Conv2D(filters, KERNEL, padding="same", activation="relu")
            )
            stack.append(layers.MaxPooling2D(2))
        stack.append(layers.Flatten())
        if self.units is not None:
            stack.append(layers.Dense(self.units, activation="relu"))
        stack.append(layers.Dense(num_classes))
        return tf.keras.Sequential(stack)


@dataclasses.dataclass(frozen=True)
class TextArchitecture:
    """A classifier of windows of ids, by the id that comes next.

    Attributes:
      units: Width of the hidden layer.
      recurrent: Whether that is a GRU over the window; else dense, with ReLU.
      embedding: Numbers that stand for an id.

    Raises:
      ArgumentError: If a field is not as described, or a layer without any width.
    """

    units: int
    recurrent: bool
    embedding: int = 8

    def __post_init__(self) -> None:
        check_bool("recurrent", self.recurrent)
        for name in ("units", "embedding"):
            object.__setattr__(self, name, _check_width(name, getattr(self, name)))

    def check(self, name: str, *, input_shape: tuple[int, ...], **_: object) -> None:
        """See `Architecture.check`."""
        one = len(input_shape) == 1
        require(one, f"{name}.input_shape", input_shape, "a window alone, as (16,)")

    def layers(
        self, *, input_shape: tuple[int, ...], num_classes: int
    ) -> list[tuple[str, int]]:
        """See `Architecture.layers`; there are as many ids as classes."""
        (window,), units = input_shape, self.units
        if self.recurrent:
            hidden = f"GRU {units}", 3 * units * (self.embedding + units + 1)
        else:
            hidden = f"Dense {units}", (window * self.embedding + 1) * units
        return [
            (f"Embedding {self.embedding}", num_classes * self.embedding),
            hidden,
            (f"Dense {num_classes}", (units + 1) * num_classes),
        ]

    def num_parameters(self, *, input_shape: tuple[int, ...], num_classes: int) -> int:
        """How many trainable parameters the model has."""
        layers = self.layers(input_shape=input_shape, num_classes=num_classes)
        return sum(parameters for _, parameters in layers)

    def describe(self, *, max_value: None, min_value: float = 0.0, **shape: Any) -> str:
        """The model in words; arguments are those of `build`."""
        del max_value, min_value
        layers = _listed(self.layers(**shape))
        return f"{layers}; {self.num_parameters(**shape):,} parameters"

    def build(
        self,
        *,
        input_shape: tuple[int, ...],
        num_classes: int,
        max_value: None = None,
        min_value: float = 0.0,
    ) -> "tf.keras.Model":
        """Returns a new, uncompiled model from ids to logits.

        Args:
          input_shape: The window.
          num_classes: Number of ids, and of logits.
          max_value: None: ids are no quantities.
          min_value: Of no meaning either.
        """
        import tensorflow as tf

        del max_value, min_value
        layers = tf.keras.layers
        hidden = [layers.Flatten(), layers.Dense(self.units, activation="relu")]
        if self.recurrent:
            # Keras' GRU layer brings a kernel for GPUs that TFF cannot run.
            cell = layers.GRUCell(self.units, reset_after=False)
            hidden = [layers.RNN(cell, unroll=True)]
        return tf.keras.Sequential(
            [
                layers.Input(input_shape),
                layers.Embedding(num_classes, self.embedding),
                *hidden,
                layers.Dense(num_classes),
            ]
        )


def with_convolutions_in(dtype: str, model: "tf.keras.Model") -> "tf.keras.Model":
    """A model like another, newly initialised, whose convolutions multiply in `dtype`.

    Its weights, their gradients and all other layers stay float32: Keras calls it
    mixed precision.

    Args:
      dtype: `bfloat16`.
      model: Sequential, or of the functional kind.

    Raises:
      ValueError: If there is no convolution, or Keras cannot copy the model.
    """
    import tensorflow as tf

    layers = tf.keras.layers
    kinds = (layers.Conv1D, layers.Conv2D, layers.Conv3D)
    if not any(isinstance(layer, kinds) for layer in model.layers):
        raise ValueError("the model has no convolution")

    def copied(layer: "tf.keras.layers.Layer") -> "tf.keras.layers.Layer":
        config = layer.get_config()
        if isinstance(layer, kinds):
            config["dtype"] = f"mixed_{dtype}"
        return type(layer).from_config(config)

    return tf.keras.models.clone_model(model, clone_function=copied)


def rescaling(low: Value, high: Value) -> "tf.keras.layers.Layer":
    """The layer that maps low to 0 and high to 1, each column alike or on its own."""
    import tensorflow as tf

    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    scale = 1.0 / (high - low)
    return tf.keras.layers.Rescaling(scale.tolist(), (-low * scale).tolist())


def _check_range(
    name: str, input_shape: tuple[int, ...], low: Value, high: Value | None
) -> None:
    """Raises ArgumentError unless `rescaling` maps such examples to finite numbers."""
    ends = []
    for end, value in (("min_value", low), ("max_value", high)):
        allowed = f"a finite number, or one for each column of {input_shape}"
        try:
            # As the model computes: what float32 does not tell apart is no range.
            ends.append(np.broadcast_to(np.array(value, np.float32), input_shape))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{name}.{end}", value, allowed) from error
        require(np.isfinite(ends[-1]).all(), f"{name}.{end}", value, allowed)
    lows, highs = ends
    if np.any(highs <= lows):
        at = tuple(np.argwhere(highs <= lows)[0])
        allowed = f"above min_value, which is {lows[at]:g} in float32"
        allowed += f" (column {at[-1]})" if np.ndim(low) or np.ndim(high) else ""
        raise ArgumentError(f"{name}.max_value", f"{highs[at]:g}", allowed)


def _listed(layers: list[tuple[str, int]]) -> str:
    return ", ".join(f"{layer} ({parameters:,})" for layer, parameters in layers)


# Convex: softmax regression.
SOFTMAX = Architecture(filters=(), units=None)
# The HDP paper gives no widths; 200 units are those of McMahan et al. (2017).
DNN = Architecture(filters=(), units=200)
# About 1e5 parameters on 32x32x3, which the noise of a private run can bear.
CNN_SMALL = Architecture(filters=(16, 32), units=40)
# McMahan et al. (2017), also LEAF's: 1,663,370 parameters on 28x28x1.
CNN_LARGE = Architecture(filters=(32, 64), units=512)
# LeNet-5's two convolutions and its last hidden layer (LeCun et al. 1998).
LENET = Architecture(filters=(6, 16), units=84)
