"""What a client's SGD step costs one core, and other ways to do its parts.

    python benchmarks/profile_step.py --work=A,B
    ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/profile_step.py --work=B --forms

Processor milliseconds with one thread, so that others' load matters little: medians
and least over repetitions, and as a multiple of direct arithmetic at the SGEMM rate
measured in between.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from tff_hdp import cli

_STEPS = 5  # of work B, for the sake of time; A takes all its steps
_SQUARE = 1024


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_list("work", ["A", "B"], "Which of A and B.")
    flags.DEFINE_integer("repetitions", 12, "Of everything.", lower_bound=1)
    flags.DEFINE_bool("forms", False, "Also other forms of some operations.")
    flags.DEFINE_string("csv", None, "A file for the rows.")


def main(argv: list[str]) -> int:
    """Prints a line for each work and form, and writes them to --csv."""
    cli.refuse_arguments(argv)
    f = flags.FLAGS
    cli.check_choices("work", f.work, ("A", "B"))
    import machine
    import tensorflow as tf

    machine.hide_gpus()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = []
    for name in f.work:
        function, flops, steps = _training(name)
        rows.append(_measured(f"{name}, a step of a client", function, flops, steps))
        if f.forms and name == "B":
            function, flops, steps = _training(name, "bfloat16")
            text = "  with convolutions in bfloat16"
            rows.append(_measured(text, function, flops, steps))
    if f.forms:
        rows += [_measured(name, *form) for name, form in _forms().items()]
    machine.report(rows, f.csv, key=["part"])
    return 0


def _measured(
    name: str, function: Callable[[], Any], flops: float, per: int = 1
) -> dict[str, Any]:
    import tensorflow as tf

    square = tf.random.uniform([_SQUARE, _SQUARE], seed=1)
    product = tf.function(lambda: tf.matmul(square, square), autograph=False)
    function = tf.function(function, autograph=False)
    function(), product()
    own, rate = [], []
    for _ in range(flags.FLAGS.repetitions):
        own.append(_seconds(function) / per)
        rate.append(2 * _SQUARE**3 / _seconds(product))
    median, floor = statistics.median(own), flops / per / statistics.median(rate)
    return {
        "part": name.replace("  ", "… "),
        "ms, median": 1e3 * median,
        "ms, least": 1e3 * min(own),
        "times the floor": median / floor if flops else None,
    }


def _seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def _training(
    name: str, convolutions_in: str | None = None
) -> tuple[Callable[[], Any], float, int]:
    """Training of a chunk of A or a client of B, its operations, clients' steps."""
    import tensorflow as tf
    import works
    from programs import tensorflow_model

    from tasks.models import with_convolutions_in
    from tff_hdp.clients import training
    from tff_hdp.clients.sgd import SgdRule
    from tff_hdp.clients.stacked_model import StackedModel
    from tff_hdp.clients.updates import weighted_sums

    work = works.WORKS[name]
    keras = tensorflow_model.build_model(work)
    if convolutions_in is not None:
        keras = with_convolutions_in(convolutions_in, keras)
    model = StackedModel.built_by(lambda: keras)
    at_once = training.chunk_size(model, work.clients)
    count, steps = (1, _STEPS) if model.convolves else (at_once, work.steps)
    examples = [works.client_examples(work, client) for client in range(count)]
    features, labels = (np.stack(part) for part in zip(*examples, strict=True))
    rows = np.tile(np.arange(work.examples, dtype=np.int32), work.epochs)
    order = rows.reshape(work.steps, work.batch_size)[:steps]
    chunk = {
        "features": tf.constant(features),
        "labels": tf.constant(labels),
        "order": tf.constant(np.stack([order] * count)),
        "weight": tf.ones([count]),
    }
    weights = [tf.constant(w) for w in works.initial_weights(work)]
    rule = SgdRule(learning_rate=work.learning_rate)
    given = (model, weights, chunk, rule)

    def total(updates: list[Any], part: Any) -> list[tf.Tensor]:
        factors = [part["weight"][tf.newaxis]] * len(updates)
        return [total[0] for total in weighted_sums(updates, factors)]

    def run() -> Any:
        if model.convolves:
            return training.train_one_by_one(*given, then=total)
        updates, sums = training.train_stack(*given)
        return total(updates, chunk), sums

    share = count * steps / (work.clients * work.steps)
    return run, work.flops * share, count * steps


def _winograd() -> list[Any]:
    """What F(2x2, 5x5) multiplies by: products to sums, kernels, and tiles.

    From polynomials' values at five points and infinity (Toom and Cook), transposed, as
    convolutions of networks are correlations.
    """
    import tensorflow as tf

    def values(size: int) -> np.ndarray:
        points = np.array([0.0, 1.0, -1.0, 2.0, -0.5])
        last = np.eye(size)[-1:]
        return np.concatenate([points[:, np.newaxis] ** np.arange(size), last])

    one_way = (values(2).T, values(5), np.linalg.inv(values(6)).T)
    return [tf.constant(np.kron(m, m), tf.float32) for m in one_way]


def _by_row_blocks(x: Any, kernel: Any) -> Any:
    """A 5x5 convolution of blocks of four pixels of a row, as many times the channels.

    Blocks are had by a reshape. Their kernel is 5x2, 1.6 times the arithmetic.
    """
    import tensorflow as tf

    batch, side, _, channels = x.shape
    padded = tf.pad(x, [[0, 0], [0, 0], [2, 2], [0, 0]])
    blocks = tf.reshape(padded, [batch, side, side // 4 + 1, 4 * channels])
    shifted = [tf.pad(kernel, [[0, 0], [q, 3 - q], [0, 0], [0, 0]]) for q in range(4)]
    wide = tf.reshape(tf.concat(shifted, 3), [5, 2, 4 * channels, -1])
    rows = [[0, 0], [2, 2], [0, 0], [0, 0]]
    found = tf.nn.conv2d(blocks, wide, strides=1, padding=rows)
    return tf.reshape(found, [batch, side, side, -1])


def _forms() -> dict[str, tuple[Callable[[], Any], float]]:
    """By name, parts of a step in several forms, with their operations."""
    import tensorflow as tf

    def tensor(*shape: int) -> tf.Tensor:
        return tf.random.normal(shape, seed=len(shape))

    def gradient(f: Callable[[Any], Any], x: tf.Tensor, of: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x, of)

    def halves(x: tf.Tensor) -> tf.Tensor:
        _, height, width, channels = x.shape
        pairs = tf.reshape(x, [-1, height, width // 2, 2 * channels])
        rows = tf.maximum(*tf.split(pairs, 2, axis=3))
        rows = tf.reshape(rows, [-1, height // 2, width * channels])
        pooled = tf.maximum(*tf.split(rows, 2, axis=2))
        return tf.reshape(pooled, [-1, height // 2, width // 2, channels])

    def by_fft(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        size = [x.shape[1] + kernel.shape[0] - 1] * 2
        ours = tf.signal.rfft2d(tf.transpose(x, [0, 3, 1, 2]), size)
        theirs = tf.signal.rfft2d(tf.transpose(kernel[::-1, ::-1], [2, 3, 0, 1]), size)
        product = tf.einsum("bixy,ioxy->boxy", ours, theirs)
        return tf.signal.irfft2d(product, size)[:, :, 2:-2, 2:-2]

    def by_winograd(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        # Two by two outputs of 5x5 at once: 36 products for 100.
        batch, side, _, channels = x.shape
        tiles, out = batch * (side // 2) ** 2, kernel.shape[-1]
        of_sums, of_kernels, of_tiles = _winograd()
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

    def columns_of(x: tf.Tensor) -> tf.Tensor:
        clients, _, _, _, channels = x.shape
        cut = {"sizes": [1, 5, 5, 1], "strides": [1] * 4, "rates": [1] * 4}
        images = tf.reshape(x, [-1, *x.shape[2:]])
        windows = tf.image.extract_patches(images, padding="SAME", **cut)
        return tf.reshape(windows, [clients, -1, 25 * channels])

    def by_columns(x: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
        clients, *_, out = kernels.shape
        return tf.matmul(columns_of(x), tf.reshape(kernels, [clients, -1, out]))

    def pool(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    batch, positions, window = 20, 32 * 32, 5 * 5 * 3
    images, outputs, pooled = (
        tensor(batch, 32, 32, 3),
        tensor(batch, 32, 32, 32),
        tensor(batch, 16, 16, 32),
    )
    first, second = tensor(5, 5, 3, 32), tensor(5, 5, 32, 64)
    columns, flat = tensor(batch * positions, window), tf.reshape(outputs, [-1, 32])
    x, kernel, dy = tensor(batch, 4096), tensor(4096, 512), tensor(batch, 512)
    step, past, slopes = tensor(4096, 512), tensor(1, 240, 4096), tensor(1, 240, 512)
    many = tensor(10 * batch, 4096)
    small = 2.0 * batch * positions * window * 32
    large = 2.0 * batch * 256 * 25 * 32 * 64
    dense = 2.0 * batch * 4096 * 512
    same = {"strides": 1, "padding": "SAME"}
    four_images, four_first = tensor(4, batch, 32, 32, 3), tensor(4, 5, 5, 3, 32)
    four_pooled, four_second = tensor(4, batch, 16, 16, 32), tensor(4, 5, 5, 32, 64)
    spanning, spanned, gram = (
        tensor(20, 100, 784),
        tensor(20, 100, 200),
        tensor(20, 100, 100),
    )

    def formed() -> tuple[tf.Tensor, tf.Tensor]:
        updates = tf.matmul(spanning, spanned, transpose_a=True)
        norms = tf.reduce_sum(tf.square(updates), [1, 2])
        return norms, tf.tensordot(norms, updates, 1)

    def by_coordinates() -> tuple[tf.Tensor, tf.Tensor]:
        norms = tf.reduce_sum(spanned * tf.matmul(gram, spanned), [1, 2])
        weighted = tf.reshape(spanned * norms[:, tf.newaxis, tf.newaxis], [-1, 200])
        stacked = tf.reshape(spanning, [-1, 784])
        return norms, tf.matmul(stacked, weighted, transpose_a=True)

    # LeNet's convolutions on batches of UDP-Alg's users.
    lenet, six = tensor(64, 32, 32, 3), tensor(64, 32, 32, 6)
    halved, sixteen = tensor(64, 16, 16, 6), tensor(64, 16, 16, 16)
    to_six, to_sixteen = tensor(5, 5, 3, 6), tensor(5, 5, 6, 16)
    blocks, of_blocks, to_blocks = (
        tensor(64, 16, 16, 12),
        tensor(64, 16, 16, 24),
        tensor(3, 3, 12, 24),
    )
    few = 2.0 * 64 * positions * window * 6
    more = 2.0 * 64 * 256 * 25 * 6 * 16
    return {
        "LeNet's first convolution, 3 to 6 channels": (
            lambda: tf.nn.conv2d(lenet, to_six, **same),
            few,
        ),
        "  gradient of kernel": (
            lambda: gradient(lambda k: tf.nn.conv2d(lenet, k, **same), to_six, six),
            few,
        ),
        "  on blocks of 2x2 pixels, 12 to 24 channels": (
            lambda: tf.nn.conv2d(blocks, to_blocks, **same),
            few,
        ),
        "    gradient of kernel": (
            lambda: gradient(
                lambda k: tf.nn.conv2d(blocks, k, **same), to_blocks, of_blocks
            ),
            few,
        ),
        "    images to blocks": (lambda: tf.nn.space_to_depth(lenet, 2), 0),
        "  by blocks of 4 pixels of a row, 12 to 24 channels": (
            lambda: _by_row_blocks(lenet, to_six),
            few,
        ),
        "    gradient of kernel by row blocks": (
            lambda: gradient(lambda k: _by_row_blocks(lenet, k), to_six, six),
            few,
        ),
        "its second, 6 to 16 channels": (
            lambda: tf.nn.conv2d(halved, to_sixteen, **same),
            more,
        ),
        "  by row blocks, 24 to 64 channels": (
            lambda: _by_row_blocks(halved, to_sixteen),
            more,
        ),
        "  gradient of inputs": (
            lambda: gradient(
                lambda x: tf.nn.conv2d(x, to_sixteen, **same), halved, sixteen
            ),
            more,
        ),
        "A: 20 updates formed, normed, added up": (formed, 0),
        "  normed and added up by coordinates": (by_coordinates, 0),
        "first convolution": (lambda: tf.nn.conv2d(images, first, **same), small),
        "  as columns times kernel": (
            lambda: tf.matmul(columns, tf.reshape(first, [window, 32])),
            small,
        ),
        "  gradient, columns times outputs": (
            lambda: tf.matmul(columns, flat, transpose_a=True),
            small,
        ),
        "  of four clients by columns, made and multiplied": (
            lambda: by_columns(four_images, four_first),
            4 * small,
        ),
        "    columns of images": (lambda: columns_of(four_images), 0),
        "second convolution": (lambda: tf.nn.conv2d(pooled, second, **same), large),
        "  four clients' second by columns, made and multiplied": (
            lambda: by_columns(four_pooled, four_second),
            4 * large,
        ),
        "    columns of pooled images": (lambda: columns_of(four_pooled), 0),
        "  by FFT": (lambda: by_fft(pooled, second), large),
        "  by Winograd": (lambda: by_winograd(pooled, second), large),
        "  in bfloat16": (
            lambda: tf.nn.conv2d(
                tf.cast(pooled, tf.bfloat16), tf.cast(second, tf.bfloat16), **same
            ),
            large,
        ),
        "pooling and gradient, oneDNN's": (lambda: gradient(pool, outputs, pooled), 0),
        "  by maxima of halves": (lambda: gradient(halves, outputs, pooled), 0),
        "dense": (lambda: tf.matmul(x, kernel), dense),
        "  ten clients on one kernel": (lambda: tf.matmul(many, kernel), 10 * dense),
        "dense, gradient of kernel": (
            lambda: tf.matmul(x, dy, transpose_a=True),
            dense,
        ),
        "  as a batch of one": (
            lambda: tf.matmul(x[tf.newaxis], dy[tf.newaxis], transpose_a=True),
            dense,
        ),
        "dense, gradient of inputs": (
            lambda: tf.matmul(dy, kernel, transpose_b=True),
            dense,
        ),
        "dense, the step itself": (lambda: kernel - step, 0),
        "dense in the span of 240 rows, forward": (
            lambda: tf.matmul(tf.matmul(x[tf.newaxis], past, transpose_b=True), slopes),
            0,
        ),
        "dense in the span of 240 rows, backward": (
            lambda: tf.matmul(
                tf.matmul(dy[tf.newaxis], slopes, transpose_b=True), past
            ),
            0,
        ),
    }


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
