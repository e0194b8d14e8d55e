"""Parts of a client's SGD step, and other forms of the same arithmetic.

Every part of `forms` is a function to be timed and how many operations it takes, 0
where it is compared with the next forms alone. A form follows, indented, what it is
another form of.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Form = tuple[Callable[[], Any], float]

_BATCH = 20
_SAME = {"strides": 1, "padding": "SAME"}


def forms() -> dict[str, Form]:
    """All parts by name, in several forms each, with their operations."""
    return (
        _lenet()
        | _updates()
        | _first_convolution()
        | _second_convolution()
        | _pooling()
        | _dense()
    )


def winograd() -> list[tf.Tensor]:
    """What F(2x2, 5x5) multiplies by: products to sums, kernels, and tiles.

    From polynomials' values at five points and infinity (Toom and Cook), transposed, as
    convolutions of networks are correlations.
    """

    def values(size: int) -> np.ndarray:
        points = np.array([0.0, 1.0, -1.0, 2.0, -0.5])
        last = np.eye(size)[-1:]
        return np.concatenate([points[:, np.newaxis] ** np.arange(size), last])

    one_way = (values(2).T, values(5), np.linalg.inv(values(6)).T)
    return [tf.constant(np.kron(m, m), tf.float32) for m in one_way]


def by_winograd(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A 5x5 convolution of even sides, 2x2 outputs at once: 36 products for 100."""
    batch, side, _, channels = x.shape
    tiles, out = batch * (side // 2) ** 2, kernel.shape[-1]
    of_sums, of_kernels, of_tiles = winograd()
    padded = tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]])
    cut = {"sizes": [1, 6, 6, 1], "strides": [1, 2, 2, 1], "rates": [1] * 4}
    windows = tf.image.extract_patches(padded, padding="VALID", **cut)
    windows = tf.transpose(tf.reshape(windows, [tiles, 36, channels]), [1, 0, 2])
    theirs = tf.matmul(of_tiles, tf.reshape(windows, [36, -1]))
    ours = tf.matmul(of_kernels, tf.reshape(kernel, [25, -1]))
    products = tf.matmul(
        tf.reshape(theirs, [36, tiles, channels]),
        tf.reshape(ours, [36, channels, out]),
    )
    sums = tf.matmul(of_sums, tf.reshape(products, [36, -1]))
    shape = [2, 2, batch, side // 2, side // 2, out]
    sums = tf.transpose(tf.reshape(sums, shape), [2, 3, 0, 4, 1, 5])
    return tf.reshape(sums, [batch, side, side, out])


def by_row_blocks(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A 5x5 convolution of blocks of four pixels of a row, as many times the channels.

    Blocks are had by a reshape. Their kernel is 5x2, 1.6 times the arithmetic.
    """
    batch, side, _, channels = x.shape
    padded = tf.pad(x, [[0, 0], [0, 0], [2, 2], [0, 0]])
    blocks = tf.reshape(padded, [batch, side, side // 4 + 1, 4 * channels])
    shifted = [tf.pad(kernel, [[0, 0], [q, 3 - q], [0, 0], [0, 0]]) for q in range(4)]
    wide = tf.reshape(tf.concat(shifted, 3), [5, 2, 4 * channels, -1])
    rows = [[0, 0], [2, 2], [0, 0], [0, 0]]
    found = tf.nn.conv2d(blocks, wide, strides=1, padding=rows)
    return tf.reshape(found, [batch, side, side, -1])


def by_fft(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A 5x5 convolution by its Fourier transform; channels come second."""
    size = [x.shape[1] + kernel.shape[0] - 1] * 2
    ours = tf.signal.rfft2d(tf.transpose(x, [0, 3, 1, 2]), size)
    theirs = tf.signal.rfft2d(tf.transpose(kernel[::-1, ::-1], [2, 3, 0, 1]), size)
    product = tf.einsum("bixy,ioxy->boxy", ours, theirs)
    return tf.signal.irfft2d(product, size)[:, :, 2:-2, 2:-2]


def columns_of(x: tf.Tensor) -> tf.Tensor:
    """Every client's 5x5 windows as rows: [C, B, H, W, c] to [C, B H W, 25 c]."""
    clients, _, _, _, channels = x.shape
    cut = {"sizes": [1, 5, 5, 1], "strides": [1] * 4, "rates": [1] * 4}
    images = tf.reshape(x, [-1, *x.shape[2:]])
    windows = tf.image.extract_patches(images, padding="SAME", **cut)
    return tf.reshape(windows, [clients, -1, 25 * channels])


def by_columns(x: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
    """A 5x5 convolution for each client by its own kernel, as one batch of products."""
    clients, *_, out = kernels.shape
    return tf.matmul(columns_of(x), tf.reshape(kernels, [clients, -1, out]))


def by_halves(x: tf.Tensor) -> tf.Tensor:
    """2x2 maxima of even sides, as maxima of halves of a reshape."""
    _, height, width, channels = x.shape
    pairs = tf.reshape(x, [-1, height, width // 2, 2 * channels])
    rows = tf.maximum(*tf.split(pairs, 2, axis=3))
    rows = tf.reshape(rows, [-1, height // 2, width * channels])
    pooled = tf.maximum(*tf.split(rows, 2, axis=2))
    return tf.reshape(pooled, [-1, height // 2, width // 2, channels])


def _lenet() -> dict[str, Form]:
    """LeNet's convolutions on batches of UDP-Alg's users."""
    images, six = _tensor(64, 32, 32, 3), _tensor(64, 32, 32, 6)
    halved, sixteen = _tensor(64, 16, 16, 6), _tensor(64, 16, 16, 16)
    to_six, to_sixteen = _tensor(5, 5, 3, 6), _tensor(5, 5, 6, 16)
    blocks, of_blocks = _tensor(64, 16, 16, 12), _tensor(64, 16, 16, 24)
    to_blocks = _tensor(3, 3, 12, 24)
    first = 2.0 * 64 * 32 * 32 * 25 * 3 * 6
    second = 2.0 * 64 * 16 * 16 * 25 * 6 * 16

    def conv(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(x, kernel, **_SAME)

    return {
        "LeNet's first convolution, 3 to 6 channels": (
            lambda: conv(images, to_six),
            first,
        ),
        "  gradient of kernel": (
            lambda: _gradient(lambda k: conv(images, k), to_six, six),
            first,
        ),
        "  on blocks of 2x2 pixels, 12 to 24 channels": (
            lambda: conv(blocks, to_blocks),
            first,
        ),
        "    gradient of kernel": (
            lambda: _gradient(lambda k: conv(blocks, k), to_blocks, of_blocks),
            first,
        ),
        "    images to blocks": (lambda: tf.nn.space_to_depth(images, 2), 0),
        "  by blocks of 4 pixels of a row, 12 to 24 channels": (
            lambda: by_row_blocks(images, to_six),
            first,
        ),
        "    gradient of kernel by row blocks": (
            lambda: _gradient(lambda k: by_row_blocks(images, k), to_six, six),
            first,
        ),
        "its second, 6 to 16 channels": (lambda: conv(halved, to_sixteen), second),
        "  by row blocks, 24 to 64 channels": (
            lambda: by_row_blocks(halved, to_sixteen),
            second,
        ),
        "  gradient of inputs": (
            lambda: _gradient(lambda x: conv(x, to_sixteen), halved, sixteen),
            second,
        ),
    }


def _updates() -> dict[str, Form]:
    """Norms and a weighted sum of A's updates, which are products of two matrices."""
    spanning, spanned = _tensor(20, 100, 784), _tensor(20, 100, 200)
    gram = _tensor(20, 100, 100)

    def formed() -> tuple[tf.Tensor, tf.Tensor]:
        updates = tf.matmul(spanning, spanned, transpose_a=True)
        norms = tf.reduce_sum(tf.square(updates), [1, 2])
        return norms, tf.tensordot(norms, updates, 1)

    def by_coordinates() -> tuple[tf.Tensor, tf.Tensor]:
        norms = tf.reduce_sum(spanned * tf.matmul(gram, spanned), [1, 2])
        weighted = tf.reshape(spanned * norms[:, tf.newaxis, tf.newaxis], [-1, 200])
        stacked = tf.reshape(spanning, [-1, 784])
        return norms, tf.matmul(stacked, weighted, transpose_a=True)

    return {
        "A: 20 updates formed, normed, added up": (formed, 0),
        "  normed and added up by coordinates": (by_coordinates, 0),
    }


def _first_convolution() -> dict[str, Form]:
    """B's first, 3 to 32 channels."""
    positions, window = 32 * 32, 5 * 5 * 3
    images, outputs = _tensor(_BATCH, 32, 32, 3), _tensor(_BATCH * positions, 32)
    kernel, columns = _tensor(5, 5, 3, 32), _tensor(_BATCH * positions, window)
    four_images, four_kernels = _tensor(4, _BATCH, 32, 32, 3), _tensor(4, 5, 5, 3, 32)
    operations = 2.0 * _BATCH * positions * window * 32
    return {
        "first convolution": (
            lambda: tf.nn.conv2d(images, kernel, **_SAME),
            operations,
        ),
        "  as columns times kernel": (
            lambda: tf.matmul(columns, tf.reshape(kernel, [window, 32])),
            operations,
        ),
        "  gradient, columns times outputs": (
            lambda: tf.matmul(columns, outputs, transpose_a=True),
            operations,
        ),
        "  of four clients by columns, made and multiplied": (
            lambda: by_columns(four_images, four_kernels),
            4 * operations,
        ),
        "    columns of images": (lambda: columns_of(four_images), 0),
    }


def _second_convolution() -> dict[str, Form]:
    """B's second, 32 to 64 channels."""
    pooled, kernel = _tensor(_BATCH, 16, 16, 32), _tensor(5, 5, 32, 64)
    four_pooled = _tensor(4, _BATCH, 16, 16, 32)
    four_kernels = _tensor(4, 5, 5, 32, 64)
    operations = 2.0 * _BATCH * 16 * 16 * 25 * 32 * 64

    def in_bfloat16() -> tf.Tensor:
        halves = [tf.cast(tensor, tf.bfloat16) for tensor in (pooled, kernel)]
        return tf.nn.conv2d(*halves, **_SAME)

    return {
        "second convolution": (
            lambda: tf.nn.conv2d(pooled, kernel, **_SAME),
            operations,
        ),
        "  four clients' second by columns, made and multiplied": (
            lambda: by_columns(four_pooled, four_kernels),
            4 * operations,
        ),
        "    columns of pooled images": (lambda: columns_of(four_pooled), 0),
        "  by FFT": (lambda: by_fft(pooled, kernel), operations),
        "  by Winograd": (lambda: by_winograd(pooled, kernel), operations),
        "  in bfloat16": (in_bfloat16, operations),
    }


def _pooling() -> dict[str, Form]:
    outputs, pooled = _tensor(_BATCH, 32, 32, 32), _tensor(_BATCH, 16, 16, 32)

    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    return {
        "pooling and gradient, oneDNN's": (lambda: _gradient(pool, outputs, pooled), 0),
        "  by maxima of halves": (lambda: _gradient(by_halves, outputs, pooled), 0),
    }


def _dense() -> dict[str, Form]:
    """B's first dense layer; its kernel as it is, and as a sum of past steps."""
    x, kernel, dy = _tensor(_BATCH, 4096), _tensor(4096, 512), _tensor(_BATCH, 512)
    step, past = _tensor(4096, 512), _tensor(1, 240, 4096)
    slopes, many = _tensor(1, 240, 512), _tensor(10 * _BATCH, 4096)
    operations = 2.0 * _BATCH * 4096 * 512

    def forward_in_span() -> tf.Tensor:
        return tf.matmul(tf.matmul(x[tf.newaxis], past, transpose_b=True), slopes)

    def backward_in_span() -> tf.Tensor:
        return tf.matmul(tf.matmul(dy[tf.newaxis], slopes, transpose_b=True), past)

    return {
        "dense": (lambda: tf.matmul(x, kernel), operations),
        "  ten clients on one kernel": (
            lambda: tf.matmul(many, kernel),
            10 * operations,
        ),
        "dense, gradient of kernel": (
            lambda: tf.matmul(x, dy, transpose_a=True),
            operations,
        ),
        "  as a batch of one": (
            lambda: tf.matmul(x[tf.newaxis], dy[tf.newaxis], transpose_a=True),
            operations,
        ),
        "dense, gradient of inputs": (
            lambda: tf.matmul(dy, kernel, transpose_b=True),
            operations,
        ),
        "dense, the step itself": (lambda: kernel - step, 0),
        "dense in the span of 240 rows, forward": (forward_in_span, 0),
        "dense in the span of 240 rows, backward": (backward_in_span, 0),
    }


def _tensor(*shape: int) -> tf.Tensor:
    return tf.random.normal(shape, seed=len(shape))


def _gradient(f: Callable[[Any], Any], x: tf.Tensor, of: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, of)
