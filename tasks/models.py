"""The models of the tasks: convolutions, then one hidden layer, then logits.

An architecture is plain data, so that its parameters can be counted and its
layers described without TensorFlow.
"""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

KERNEL = 5


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A convolutional or (with no filters) a dense classifier.

    Attributes:
      filters: Output channels of each convolution; a convolution is 5x5 with
        zero padding and ReLU, followed by 2x2 max pooling.
      units: Width of the hidden dense layer, with ReLU.
    """

    filters: tuple[int, ...]
    units: int

    def layers(
        self, *, input_shape: tuple[int, int, int], num_classes: int
    ) -> list[tuple[str, int]]:
        """The layers that hold parameters, in order.

        Args:
          input_shape: Height, width and channels of an example.
          num_classes: Number of logits.

        Returns:
          For each layer, its description and number of parameters.
        """
        height, width, channels = input_shape
        result = []
        for filters in self.filters:
            parameters = (KERNEL * KERNEL * channels + 1) * filters
            result.append((f"Conv2D {KERNEL}x{KERNEL}, {filters}", parameters))
            height, width, channels = height // 2, width // 2, filters
        inputs = height * width * channels
        result.append((f"Dense {self.units}", (inputs + 1) * self.units))
        result.append((f"Dense {num_classes}", (self.units + 1) * num_classes))
        return result

    def num_parameters(
        self, *, input_shape: tuple[int, int, int], num_classes: int
    ) -> int:
        """How many trainable parameters the model has."""
        layers = self.layers(input_shape=input_shape, num_classes=num_classes)
        return sum(parameters for _, parameters in layers)

    def build(
        self, *, input_shape: tuple[int, int, int], num_classes: int, max_value: int
    ) -> "tf.keras.Model":
        """Returns a new, uncompiled model from raw values to logits.

        Initial weights are Keras' defaults (Glorot uniform, zero biases), drawn
        from TensorFlow's global generator: `tf.keras.utils.set_random_seed`
        fixes them.

        Args:
          input_shape: Height, width and channels of an example.
          num_classes: Number of logits.
          max_value: The largest raw value, which the model maps to 1.
        """
        import tensorflow as tf

        layers = tf.keras.layers
        stack = [layers.Input(input_shape), layers.Rescaling(1.0 / max_value)]
        for filters in self.filters:
            stack.append(
                layers.Conv2D(filters, KERNEL, padding="same", activation="relu")
            )
            stack.append(layers.MaxPooling2D(2))
        stack.append(layers.Flatten())
        stack.append(layers.Dense(self.units, activation="relu"))
        stack.append(layers.Dense(num_classes))
        return tf.keras.Sequential(stack)


# The HDP paper gives no widths; 200 units are those of McMahan et al. (2017).
DNN = Architecture(filters=(), units=200)
# About 1e5 parameters on 32x32x3, which the noise of a private run can bear.
CNN_SMALL = Architecture(filters=(16, 32), units=40)
# McMahan et al. (2017), also LEAF's: 1,663,370 parameters on 28x28x1.
CNN_LARGE = Architecture(filters=(32, 64), units=512)
# LeNet-5's two convolutions and its last hidden layer (LeCun et al. 1998).
LENET = Architecture(filters=(6, 16), units=84)
