"""TFF's algorithms, aggregators and analytics give the same rounds everywhere."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

algorithms = tff.learning.algorithms
SGD = tff.learning.optimizers.build_sgdm
FEATURES, CLASSES = 4, 3
SPEC = collections.OrderedDict(
    x=tf.TensorSpec([None, FEATURES], tf.float32), y=tf.TensorSpec([None], tf.int32)
)


def examples(client):
    """13 to 25 examples of a client, in ragged batches, three epochs."""
    generator = np.random.default_rng(client)
    x = generator.normal(size=(13 + 4 * client, FEATURES)).astype(np.float32)
    y = np.argmax(x[:, :CLASSES], axis=1).astype(np.int32)
    columns = collections.OrderedDict(x=x, y=y)
    return tf.data.Dataset.from_tensor_slices(columns).repeat(3).batch(8)


def layers():
    return [
        tf.keras.layers.InputLayer((FEATURES,)),
        tf.keras.layers.Dense(5, "relu", kernel_initializer="ones"),
        tf.keras.layers.Dense(CLASSES, kernel_initializer="zeros"),
    ]


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def metrics():
    return [
        tf.keras.metrics.SparseCategoricalAccuracy(),
        tf.keras.metrics.SparseTopKCategoricalAccuracy(2),
    ]


def model():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential(layers()),
        loss=loss(),
        input_spec=SPEC,
        metrics=metrics(),
    )


def normalised_model():
    """Has non-trainable variables that training changes."""
    keras_model = tf.keras.Sequential(
        [*layers()[:2], tf.keras.layers.BatchNormalization(), layers()[2]]
    )
    return tff.learning.models.from_keras_model(
        keras_model, loss=loss(), input_spec=SPEC, metrics=metrics()
    )


def functional_model():
    return tff.learning.models.functional_model_from_keras(
        tf.keras.Sequential(layers()),
        loss(),
        SPEC,
        metrics_constructor=lambda: collections.OrderedDict(
            accuracy=tf.keras.metrics.SparseCategoricalAccuracy()
        ),
    )


def reconstruction_model():
    inputs = tf.keras.Input((FEATURES,))
    shared = tf.keras.layers.Dense(5, "relu", kernel_initializer="ones")
    local = tf.keras.layers.Dense(CLASSES, kernel_initializer="zeros")
    keras_model = tf.keras.Model(inputs, local(shared(inputs)))
    return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
        keras_model, global_layers=[shared], local_layers=[local], input_spec=SPEC
    )


def fed_avg(**options):
    return algorithms.build_weighted_fed_avg(model, SGD(0.1), **options)


def unweighted_fed_avg(aggregator, of=model):
    return algorithms.build_unweighted_fed_avg(
        of, SGD(0.1), model_aggregator=aggregator
    )


QUICK = {
    "clipping": lambda: unweighted_fed_avg(
        tff.aggregators.clipping_factory(
            tff.aggregators.PrivateQuantileEstimationProcess.no_noise(0.1, 0.5, 0.5),
            tff.aggregators.UnweightedMeanFactory(),
        )
    ),
}
SLOW = {
    "fed_avg": fed_avg,
    "secure": lambda: unweighted_fed_avg(
        tff.learning.secure_aggregator(weighted=False)
    ),
    "fed_prox": lambda: algorithms.build_weighted_fed_prox(model, 0.5, SGD(0.1)),
    "fed_sgd": lambda: algorithms.build_fed_sgd(model),
    "fed_recon": lambda: algorithms.build_fed_recon(
        reconstruction_model, loss_fn=loss, metrics_fn=metrics
    ),
    "adam": lambda: fed_avg(
        server_optimizer_fn=tff.learning.optimizers.build_adam(0.01)
    ),
    "iterator_loop": lambda: fed_avg(
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR
    ),
    "batch_norm": lambda: algorithms.build_weighted_fed_avg(normalised_model, SGD(0.1)),
    "momentum": lambda: algorithms.build_weighted_fed_avg(model, SGD(0.1, 0.9)),
    "functional": lambda: algorithms.build_weighted_fed_avg(
        functional_model(), SGD(0.1)
    ),
    "schedule": lambda: algorithms.build_weighted_fed_avg_with_optimizer_schedule(
        model, lambda round_number: 0.1 / (1.0 + tf.cast(round_number, tf.float32)), SGD
    ),
    "mime_lite": lambda: algorithms.build_weighted_mime_lite(model, SGD(0.1, 0.9)),
    "robust": lambda: unweighted_fed_avg(
        tff.learning.robust_aggregator(weighted=False)
    ),
}


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_same_rounds(name, agree):
    process = (QUICK | SLOW)[name]()

    def train():
        state = process.initialize()
        results = [state]
        for clients in (2, 4):
            output = process.next(state, [examples(i) for i in range(clients)])
            results.append(output)
            state = output.state
        return results

    agree(train, rtol=2e-4, atol=1e-5)


def test_same_evaluation(agree):
    process = algorithms.build_fed_eval(model)
    cohort = [examples(i) for i in range(3)]
    agree(lambda: process.next(process.initialize(), cohort))


@pytest.mark.slow
def test_same_clusters(agree):
    process = algorithms.build_fed_kmeans(2, (FEATURES,), random_seed=(1, 2))
    cohort = [examples(i).unbatch().map(lambda e: e["x"]) for i in range(3)]
    agree(lambda: process.next(process.initialize(), cohort))


@pytest.mark.slow
def test_same_personalization(agree):
    def evaluate(model, dataset):
        total = dataset.batch(8).reduce(
            0.0,
            lambda s, b: (
                s
                + tf.cast(tf.shape(b["y"])[0], tf.float32)
                * model.forward_pass(b, training=False).loss
            ),
        )
        return collections.OrderedDict(total_loss=total)

    def build_personalize():
        def personalize(model, train, test, context=None):
            del train, context
            return evaluate(model, test)

        return personalize

    compute = algorithms.build_personalization_eval_computation(
        model, collections.OrderedDict(none=build_personalize), evaluate
    )
    process = algorithms.build_fed_eval(model)
    cohort = [
        collections.OrderedDict(
            train_data=examples(i).unbatch(), test_data=examples(i + 1).unbatch()
        )
        for i in range(3)
    ]

    def personalize():
        weights = process.initialize().global_model_weights
        # The sampling of metrics shuffles the clients.
        return tf.nest.map_structure(np.sort, compute(weights, cohort))

    agree(personalize)


def words(*texts):
    return tf.data.Dataset.from_tensor_slices(list(texts)).batch(1)


@pytest.mark.slow
def test_same_heavy_hitters(agree):
    compute = tff.analytics.heavy_hitters.iblt.build_iblt_computation(
        capacity=20, string_max_bytes=8, multi_contribution=True
    )
    cohort = [words("sun", "moon"), words("sun"), words("moon", "sun", "star")]

    def count():
        found = compute(cohort)
        # Decoding draws from a random queue: the order is not defined.
        pairs = zip(found.heavy_hitters, found.heavy_hitters_counts, strict=True)
        assert dict(pairs) == {b"sun": 3, b"moon": 2, b"star": 1}
        return found.clients

    agree(count)


@pytest.mark.slow
def test_same_histogram(agree):
    process = tff.analytics.build_hierarchical_histogram_process(
        0.0, 8.0, 4, clip_mechanism="distinct", enable_secure_sum=False
    )
    cohort = [
        tf.data.Dataset.from_tensor_slices(np.float32(v)) for v in ([1, 3], [3, 5, 7])
    ]

    def histogram():
        server, _ = process.next(process.initialize(), cohort)
        return server.aggregated_hierarchical_histogram

    agree(histogram)
