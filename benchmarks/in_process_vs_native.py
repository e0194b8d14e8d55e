"""Seconds a round of unmodified TFF on its C++ worker and in this process.

The work is `tff.learning.algorithms.build_unweighted_fed_avg` with
`tff.learning.dp_aggregator`: every client trains Dense(200)-Dense(10) on 100 random
examples of 784 features, 5 epochs in batches of 20.

    python benchmarks/in_process_vs_native.py --clients=100 --rounds=7 --json=FILE
"""

import collections
import json
import resource
import statistics
import time
from collections.abc import Sequence

from absl import app, flags

_CLIENTS = flags.DEFINE_integer("clients", 100, "Clients in every round.", 1)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Rounds measured after one to warm up.", 1)
_INTRA = flags.DEFINE_integer(
    "intra_op_threads", 0, "Threads within an operation in process; 0: TensorFlow's.", 0
)
_JSON = flags.DEFINE_string("json", None, "File to write the measurements to.")

_FEATURES, _CLASSES, _EXAMPLES, _EPOCHS, _BATCH = 784, 10, 100, 5, 20


def main(argv: Sequence[str]) -> None:
    """Measures both runtimes in turn, round by round."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_hdp.runtime import in_process, native

    tf.config.threading.set_intra_op_parallelism_threads(_INTRA.value)
    worker = native.set_native_context()
    stack = tff.framework.get_context_stack()
    contexts = {
        "native": stack.current,
        "in_process": in_process.create_in_process_context(),
    }
    process, cohort = _work()
    states, metrics, seconds = {}, {}, collections.defaultdict(list)
    for name, context in contexts.items():
        with stack.install(context):
            # The same initial model: Keras would draw another one.
            states[name] = states.get("native") or process.initialize()
            output = process.next(states[name], cohort)
            metrics[name] = output.metrics["client_work"]["train"]
    # The first round's training comes before any noise.
    _check_equal(*(metrics[name] for name in contexts))
    for _ in range(_ROUNDS.value):
        for name, context in contexts.items():
            with stack.install(context):
                start = time.perf_counter()
                states[name] = process.next(states[name], cohort).state
                seconds[name].append(time.perf_counter() - start)
    peak = {"in_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    with open(f"/proc/{worker.pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    peak["native"] = int(lines["VmHWM"].split()[0]) / 1024
    worker.close()

    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        {
            "work": f"A, {_CLIENTS.value} clients",
            "runtime": name,
            "seconds_median": medians[name],
            "seconds_min": min(values),
            "seconds_max": max(values),
            "ratio_to_native": medians["native"] / medians[name],
            # Of the worker; of this process, which holds the data for both.
            "peak_rss_mb": peak[name],
        }
        for name, values in seconds.items()
    ]
    for row in rows:
        print(
            "{runtime:12} median {seconds_median:.3f} s (min {seconds_min:.3f}, max "
            "{seconds_max:.3f}), {ratio_to_native:.2f} times as fast as native, peak "
            "{peak_rss_mb:.0f} MB".format(**row)
        )
    if _JSON.value:
        with open(_JSON.value, "w") as file:
            json.dump(rows, file, indent=2)


def _work() -> tuple[object, list[object]]:
    """Returns the learning process and the clients' data sets."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    spec = collections.OrderedDict(
        x=tf.TensorSpec([None, _FEATURES], tf.float32),
        y=tf.TensorSpec([None], tf.int32),
    )

    def model() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(
                [
                    tf.keras.layers.InputLayer((_FEATURES,)),
                    tf.keras.layers.Dense(200, "relu"),
                    tf.keras.layers.Dense(_CLASSES),
                ]
            ),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=spec,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        tff.learning.optimizers.build_sgdm(0.1),
        model_aggregator=tff.learning.dp_aggregator(0.3, _CLIENTS.value),
    )
    generator = np.random.default_rng(0)
    teacher = generator.normal(size=(_FEATURES, _CLASSES))

    def examples() -> tf.data.Dataset:
        x = generator.random((_EXAMPLES, _FEATURES), dtype=np.float32)
        y = np.argmax(x @ teacher, axis=1).astype(np.int32)
        columns = collections.OrderedDict(x=x, y=y)
        return tf.data.Dataset.from_tensor_slices(columns).repeat(_EPOCHS).batch(_BATCH)

    return process, [examples() for _ in range(_CLIENTS.value)]


def _check_equal(actual: dict[str, float], expected: dict[str, float]) -> None:
    for name, value in expected.items():
        if abs(actual[name] - value) > 1e-3 * abs(value):
            raise RuntimeError(
                f"the runtimes disagree on {name}: {actual[name]} and {value}"
            )


if __name__ == "__main__":
    app.run(main)
