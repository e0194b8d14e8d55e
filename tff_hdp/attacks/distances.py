"""How alike an original and a reconstruction are. Images are [V, H, W, c] in [0, 1].

PSNR, SSIM and MS-SSIM are larger for what is more alike; LPIPS and the task-feature
distance are distances, less for what is more alike.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from scipy import stats

from tff_hdp.attacks.victims import Target
from tff_hdp.errors import FileError
from tff_hdp.files import read_numbers

# What becomes of two equal images, in place of infinity.
MAX_PSNR = 120.0
# Pixels of a side that MS-SSIM's windows of 7 fit into at all three scales.
LEAST_HALVED_TWICE = 28
# Of all intervals.
_CONFIDENCE = 0.95
_MS_WEIGHTS = (0.3, 0.35, 0.35)
# Zhang et al. (2018): how AlexNet's trunk takes images in [-1, 1].
_SHIFT = np.array([-0.030, -0.088, -0.188], np.float32)
_SCALE = np.array([0.458, 0.448, 0.450], np.float32)
_STRIDES, _PADS = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1)
_POOLED = (False, True, True, False, False)
_LEAST_SIDE = 64


def psnr(originals: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Peak signal to noise ratio in dB, [V], at most `MAX_PSNR`."""
    error = np.mean((originals - found) ** 2, axis=(1, 2, 3))
    return np.minimum(-10 * np.log10(np.maximum(error, 1e-300)), MAX_PSNR)


def ssim(originals: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Structural similarity, [V]; windows of 11 pixels, or of 7 on small images."""
    size = 11 if min(originals.shape[1:3]) >= 11 else 7
    a, b = tf.constant(originals, tf.float32), tf.constant(found, tf.float32)
    return tf.image.ssim(a, b, 1.0, filter_size=size).numpy()


def ms_ssim(originals: np.ndarray, found: np.ndarray) -> np.ndarray:
    """SSIM over 3 scales, [V]; NaN for images too small to be halved twice."""
    if min(originals.shape[1:3]) < LEAST_HALVED_TWICE:
        return np.full(len(originals), np.nan)
    a, b = tf.constant(originals, tf.float32), tf.constant(found, tf.float32)
    return tf.image.ssim_multiscale(a, b, 1.0, _MS_WEIGHTS, filter_size=7).numpy()


@dataclasses.dataclass(frozen=True)
class Lpips:
    """LPIPS on AlexNet (Zhang et al. 2018), with weights of the user's.

    Images of less than 64 pixels are enlarged, as AlexNet cannot take them.

    Attributes:
      kernels: Of the five convolutions, [h, w, in, out].
      biases: Of each, [out].
      heads: Of each, [out], what a channel's difference counts.
    """

    kernels: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    heads: tuple[np.ndarray, ...]

    @classmethod
    def read(cls, path: str) -> "Lpips":
        """Of an .npz file of kernel0, bias0, head0 to kernel4, bias4, head4.

        Raises:
          FileError: If it is not one, or its shapes are not AlexNet's.
          OSError: If it cannot be read.
        """
        parts = {
            kind: tuple(
                array.astype(np.float32)
                for array in read_numbers(
                    pathlib.Path(path), *(f"{kind}{i}" for i in range(5))
                )
            )
            for kind in ("kernel", "bias", "head")
        }
        channels = 3
        for i, (side, out) in enumerate(
            ((11, 64), (5, 192), (3, 384), (3, 256), (3, 256))
        ):
            expected = (side, side, channels, out)
            held = parts["kernel"][i].shape
            flat = {parts["bias"][i].shape, parts["head"][i].shape}
            if held != expected or flat != {(out,)}:
                raise FileError(path, f"kernel{i} is of {held}, not {expected}")
            channels = out
        return cls(parts["kernel"], parts["bias"], parts["head"])

    def __call__(self, originals: np.ndarray, found: np.ndarray) -> np.ndarray:
        """The distance, [V]."""
        pairs = zip(self._features(originals), self._features(found), strict=True)
        return sum(
            _normalised_distance(a, b, head)
            for (a, b), head in zip(pairs, self.heads, strict=True)
        )

    def _features(self, images: np.ndarray) -> list[np.ndarray]:
        x = tf.constant(images, tf.float32)
        if x.shape[-1] == 1:
            x = tf.image.grayscale_to_rgb(x)
        if min(x.shape[1:3]) < _LEAST_SIDE:
            x = tf.image.resize(x, [_LEAST_SIDE, _LEAST_SIDE])
        x = (2 * x - 1 - _SHIFT) / _SCALE
        found = []
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            if _POOLED[i]:
                x = tf.nn.max_pool2d(x, 3, 2, "VALID")
            pad = [[0, 0], [_PADS[i]] * 2, [_PADS[i]] * 2, [0, 0]]
            x = tf.nn.conv2d(tf.pad(x, pad), kernel, _STRIDES[i], "VALID")
            x = tf.nn.relu(x + bias)
            found.append(x.numpy())
        return found


def task_feature_distance(
    target: Target, originals: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """LPIPS's form on the attacked model's own features, every channel alike; [V].

    Args:
      target: The model; its features say something once it is trained.
      originals: Images.
      found: Images.
    """
    # Keras refuses models older than one that was built in a graph of its own.
    model = tf.keras.models.clone_model(target.keras_model)
    model.set_weights(target.weights)
    layers = [
        layer
        for layer in model.layers[:-1]
        if isinstance(layer, tf.keras.layers.Conv2D | tf.keras.layers.Dense)
    ]
    features = tf.keras.Model(model.input, [layer.output for layer in layers])
    a = tf.nest.flatten(features(tf.constant(target.max_value * originals, tf.float32)))
    b = tf.nest.flatten(features(tf.constant(target.max_value * found, tf.float32)))
    distances = [
        _normalised_distance(x.numpy(), y.numpy(), np.float32(1.0))
        for x, y in zip(a, b, strict=True)
    ]
    return np.mean(distances, 0)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of Student's interval of 95 % around it."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    error = values.std(ddof=1) / np.sqrt(len(values))
    half = float(error * stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1))
    return mean, mean - half, mean + half


def proportion(hits: Sequence[bool]) -> tuple[float, float, float]:
    """Share of hits in independent trials, and the ends of its exact 95 % interval."""
    count, trials = int(np.sum(hits)), len(hits)
    ends = stats.binomtest(count, trials).proportion_ci(_CONFIDENCE, "exact")
    return count / trials, float(ends.low), float(ends.high)


def _normalised_distance(a: np.ndarray, b: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Squared difference of features of unit norm over channels, averaged over places.

    Args:
      a: [V, ..., channels].
      b: Alike.
      head: What each channel counts.
    """
    a = a / (np.linalg.norm(a, axis=-1, keepdims=True) + 1e-10)
    b = b / (np.linalg.norm(b, axis=-1, keepdims=True) + 1e-10)
    apart = np.sum(head * (a - b) ** 2, -1)
    return apart.reshape(len(a), -1).mean(1)
