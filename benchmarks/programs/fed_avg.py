"""Unmodified TFF: `build_unweighted_fed_avg` with a DP aggregator."""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import works
from programs import tensorflow_model
from serving import Federation, read_spec, serve


def builder(spec: dict[str, Any]) -> Callable[..., Federation]:
    """Installs the spec's runtime; returns how to build the spec's process."""
    work = spec["work"]
    tensorflow_model.install_runtime(spec)
    data = [_batches(work, client) for client in range(work.clients)]

    def build(*, noise_multiplier: float) -> Federation:
        process = tff.learning.algorithms.build_unweighted_fed_avg(
            lambda: _model(work),
            tff.learning.optimizers.build_sgdm(work.learning_rate),
            model_aggregator=tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
                noise_multiplier, float(work.clients), work.clip_norm
            ),
        )
        return tensorflow_model.ProcessFederation(process, work, data)

    return build


def _batches(work: works.Work, client: int) -> tf.data.Dataset:
    features, labels = works.client_examples(work, client)
    columns = collections.OrderedDict(x=features, y=labels)
    examples = tf.data.Dataset.from_tensor_slices(columns)
    return examples.repeat(work.epochs).batch(work.batch_size)


def _model(work: works.Work) -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
        tensorflow_model.build_model(work),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=collections.OrderedDict(
            x=tf.TensorSpec([None, *work.input_shape], tf.float32),
            y=tf.TensorSpec([None], tf.int32),
        ),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


if __name__ == "__main__":
    options = read_spec()
    serve(builder(options), options["replies"])
