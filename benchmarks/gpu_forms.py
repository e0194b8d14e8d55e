"""Forms of a stack's convolutions on a GPU, and what compiling them with XLA gives.

    python benchmarks/gpu_forms.py --csv=docs/results/benchmarks/gpu_forms.csv

Training of one chunk of a work's clients, without the round around it: `one by one` as
on CPUs; `alone`, a convolution for each client of the stack; `products` of all
clients' patches with their kernels; `groups`, one convolution whose channels are all
clients', as `StackedModel` has it where there is a GPU. Milliseconds are medians of
`--turns` calls after the first, whose seconds stand apart. `apart` is how far the sum
of updates lies from the first form's, in shares of its norm: `works.Work.rounding` says
why that is more than rounding.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import works
from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

FORMS = ("one by one", "alone", "products", "groups")


def define_flags() -> None:
    """Defines the flags of this program."""
    cli.define_choices("work", ("A", "B"), works.COHORT_WORKS)
    flags.DEFINE_integer("turns", 5, "Calls measured of each.", lower_bound=1)
    flags.DEFINE_integer("clients", None, "Of the chunk; default: all.", lower_bound=1)
    flags.DEFINE_enum("device", "GPU", ["GPU", "CPU"], "Where to.")
    flags.DEFINE_string("csv", None, "File for the rows.")


def main() -> int:
    """Prints a row for each work and form, with and without XLA."""
    f = flags.FLAGS
    import machine

    if f.device == "GPU" and not machine.gpus():
        raise ArgumentError("device", "GPU", "CPU, where nvidia-smi finds no GPU")
    if f.device == "CPU":
        machine.hide_gpus()
    rows = []
    for name in f.work:
        work = works.WORKS[name]
        clients = f.clients or work.clients
        rows += timed(work, clients, turns=f.turns, device=f.device)
    key = ["work", "form", "clients", "jit_compile"]
    machine.report(rows, f.csv, key=key, devices=f.device.lower())
    return 0


def timed(
    work: works.Work, clients: int, *, turns: int, device: str
) -> list[dict[str, object]]:
    """A row for each form, with and without XLA.

    Args:
      work: Of which.
      clients: Of the chunk.
      turns: Calls measured of each form.
      device: `GPU` or `CPU`.
    """
    import tensorflow as tf

    chunk = _chunk(work, clients)
    sent = works.initial_weights(work)
    rows, first_form = [], None
    # A dense stack has one form.
    forms = FORMS if work.filters else ("stack",)
    for form in forms:
        for compiled in (False, True) if form != "one by one" else (False,):
            train = _train(work, form, compiled)
            with tf.device(f"/device:{device}:0"):
                given = tf.nest.map_structure(tf.constant, (sent, dict(chunk)))
                seconds = [_seconds(train, given) for _ in range(1 + turns)]
                found = np.concatenate([np.ravel(t) for t in train(*given)])
            first_form = found if first_form is None else first_form
            apart = np.linalg.norm(found - first_form) / np.linalg.norm(first_form)
            row = {"work": work.name, "form": form, "clients": clients}
            row |= {"jit_compile": compiled, "first seconds": seconds[0]}
            row["milliseconds"] = 1e3 * statistics.median(seconds[1:])
            rows.append(row | {"apart": apart})
    return rows


def _seconds(train: Callable[..., Any], given: tuple) -> float:
    start = time.perf_counter()
    # Until its numbers are here, a GPU may still be at it.
    for tensor in train(*given):
        tensor.numpy()
    return time.perf_counter() - start


def _chunk(work: works.Work, clients: int) -> Any:

    from tff_hdp.clients.batches import make_chunk

    order = np.tile(np.arange(work.examples, dtype=np.int32), work.epochs)
    return make_chunk(
        [works.client_examples(work, client) for client in range(clients)],
        [order.reshape(work.steps, work.batch_size)] * clients,
        weights=[1.0] * clients,
        carries_noise=[False] * clients,
        zone=0,
    )


def _train(work: works.Work, form: str, compiled: bool) -> Callable[..., Any]:
    """From the weights sent and a chunk to the sum of the clients' updates."""
    import tensorflow as tf
    from programs import tensorflow_model

    from tff_hdp.clients import stacked_model, training
    from tff_hdp.clients.sgd import SgdRule
    from tff_hdp.runtime import environment

    rule = SgdRule(learning_rate=work.learning_rate)
    gpus, convolution = environment.gpus, stacked_model._convolution

    @tf.function(jit_compile=compiled, autograph=False)
    def train(sent: Sequence[Any], chunk: Any) -> list[Any]:
        # XLA knows no writing into rows, which is how CPUs keep those of clients that
        # stand still.
        environment.gpus = lambda: int(form in ("stack", "groups") or compiled)
        stacked_model._convolution = {
            "alone": _alone,
            "products": _products,
        }.get(form, convolution)
        try:
            build = lambda: tensorflow_model.build_model(work)  # noqa: E731
            model = stacked_model.StackedModel.built_by(build)
            if form == "one by one":
                then = lambda updates, _: [u[0] for u in updates]  # noqa: E731
                return training.train_one_by_one(model, sent, chunk, rule, then=then)[0]
            updates, _ = training.train_stack(model, sent, chunk, rule)
            return [tf.reduce_sum(u, 0) for u in updates]
        finally:
            environment.gpus = gpus
            stacked_model._convolution = convolution

    return train


def _alone(layer: Any) -> Callable[..., Any]:
    """A convolution a client."""
    import tensorflow as tf

    def apply(kernel: Any, x: Any) -> Any:
        return tf.map_fn(
            lambda pair: tf.nn.conv2d(pair[1], pair[0], 1, layer.padding.upper()),
            (kernel, x),
            fn_output_signature=kernel.dtype,
        )

    return apply


def _products(layer: Any) -> Callable[..., Any]:
    """Patches [C, positions, window] times kernels [C, window, filters]."""
    import tensorflow as tf

    def apply(kernel: Any, x: Any) -> Any:
        clients, (height, width) = tf.shape(x)[0], x.shape[2:4]
        *window, channels, filters = kernel.shape[1:]
        edges = [(size // 2, (size - 1) // 2) for size in window]
        padded = tf.pad(x, [(0, 0), (0, 0), *edges, (0, 0)])
        patches = tf.concat(
            [
                padded[:, :, i : i + height, j : j + width]
                for i in range(window[0])
                for j in range(window[1])
            ],
            -1,
        )
        size = window[0] * window[1] * channels
        product = tf.matmul(
            tf.reshape(patches, [clients, -1, size]),
            tf.reshape(kernel, [clients, size, filters]),
        )
        return tf.reshape(product, [clients, -1, height, width, filters])

    return apply


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
