import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks.models import CNN_LARGE, CNN_SMALL, DNN

ALL = [(name, model) for name, models in tasks.MODELS.items() for model in models]
ALLOWED = (
    tf.keras.layers.Embedding,
    tf.keras.layers.Rescaling,
    tf.keras.layers.Flatten,
    tf.keras.layers.Dense,
    tf.keras.layers.Conv2D,
    tf.keras.layers.MaxPooling2D,
)


def build(name, model):
    dataset = tasks.TASKS[name]
    return dataset.models[model].build(
        input_shape=dataset.input_shape,
        num_classes=dataset.num_classes,
        max_value=dataset.max_value,
        min_value=dataset.min_value,
    )


@pytest.mark.parametrize(("name", "model"), ALL)
def test_counted_parameters_are_those_keras_makes(name, model):
    dataset = tasks.TASKS[name]
    keras_model = build(name, model)
    layers = dataset.models[model].layers(
        input_shape=dataset.input_shape, num_classes=dataset.num_classes
    )
    made = [la.count_params() for la in keras_model.layers if la.count_params() > 0]
    assert [parameters for _, parameters in layers] == made
    assert keras_model.output_shape == (None, dataset.num_classes)


@pytest.mark.parametrize(("name", "model"), [p for p in ALL if p[1] != "gru"])
def test_models_are_stacks_of_the_allowed_layers(name, model):
    keras_model = build(name, model)
    assert isinstance(keras_model, tf.keras.Sequential)
    for layer in keras_model.layers:
        assert type(layer) in ALLOWED
        activation = getattr(layer, "activation", tf.keras.activations.linear)
        assert activation in (tf.keras.activations.relu, tf.keras.activations.linear)
    assert keras_model.layers[-1].activation is tf.keras.activations.linear


def test_published_sizes():
    grey = {"input_shape": (28, 28, 1), "num_classes": 10}
    colour = {"input_shape": (32, 32, 3), "num_classes": 10}
    # FL-TOP states this number for its Fashion-MNIST model.
    assert CNN_LARGE.num_parameters(**grey) == 1_663_370
    assert CNN_LARGE.num_parameters(**colour) == 2_156_490
    # 784 * 200 + 200 + 200 * 10 + 10.
    assert DNN.num_parameters(**grey) == 159_010
    assert 9e4 < CNN_SMALL.num_parameters(**colour) < 1.1e5


@pytest.mark.parametrize(("name", "model"), [("digits", "dnn"), ("mnist", "cnn_small")])
def test_the_seed_fixes_the_initial_weights(name, model):
    def weights(seed):
        tf.keras.utils.set_random_seed(seed)
        return build(name, model).get_weights()

    first, again, other = weights(1), weights(1), weights(2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(np.any(a != b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10"])
def test_raw_bytes_are_normalised_in_the_graph(name):
    dataset = tasks.TASKS[name]
    model = build(name, tasks.MODELS[name][0])
    rng = np.random.default_rng(0)
    raw = rng.integers(0, dataset.max_value + 1, (4, *dataset.input_shape))
    raw = raw.astype(np.uint8)
    rescaled = model.layers[0](raw)
    np.testing.assert_allclose(rescaled, raw / dataset.max_value, rtol=1e-6)
    np.testing.assert_array_equal(model(raw), model(raw.astype(np.float32)))
    # Inputs can be optimised over, as gradient inversion does.
    image = tf.Variable(raw.astype(np.float32))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(image) ** 2)
    assert np.any(tape.gradient(total, image).numpy() != 0)


def test_each_column_of_a_table_is_mapped_from_its_own_range():
    dataset = tasks.TASKS["breast_cancer"]
    layer = build("breast_cancer", "dnn").layers[0]
    ends = np.array([dataset.min_value, dataset.max_value], np.float32)
    np.testing.assert_allclose(layer(ends), [[0.0] * 30, [1.0] * 30], atol=1e-5)
