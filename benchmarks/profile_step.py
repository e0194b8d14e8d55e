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
    cli.define_choices("work", ("A", "B"), ("A", "B"))
    flags.DEFINE_integer("repetitions", 12, "Of everything.", lower_bound=1)
    flags.DEFINE_bool("forms", False, "Also other forms of some operations.")
    flags.DEFINE_string("csv", None, "A file for the rows.")


def main() -> int:
    """Prints a line for each work and form, and writes them to --csv."""
    f = flags.FLAGS
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
        import step_forms

        rows += [_measured(name, *form) for name, form in step_forms.forms().items()]
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


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
