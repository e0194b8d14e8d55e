import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tasks import text
from tasks.dataset import Examples
from tasks.loading import load_task
from tasks.models import CNN_LARGE, CNN_SMALL, DNN, Architecture, TextArchitecture
from tff_hdp.errors import ArgumentError

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


@pytest.mark.parametrize("shape", [(5,), (8, 8), (2, 3, 1, 2), ()])
def test_a_dense_model_takes_examples_of_any_shape(shape):
    rng = np.random.default_rng(3)
    labels = np.arange(12) % 10
    features = rng.integers(17, size=(12, *shape)).astype(np.uint8)

    def read(_):
        return Examples(features, labels, features, labels, "here", "none")

    dataset = dataclasses.replace(tasks.TASKS["digits"], input_shape=shape, read=read)
    options = dict.fromkeys(("data_dir", "partition", "dirichlet_alpha"))
    task = load_task(dataset, model="softmax", num_clients=3, seed=0, **options)
    made = task.build_model()
    assert f"; {made.count_params()} parameters" in task.description
    kernel, bias = made.get_weights()
    logits = features.reshape(12, -1) / 16 @ kernel + bias
    np.testing.assert_allclose(made(features), logits, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input_shape": (8, 8), "models": {"cnn": CNN_SMALL}},
            "digits.input_shape is 8,8; allowed: height and width of 4 or more, and",
        ),
        (
            {"input_shape": (3, 8, 1), "models": {"cnn": CNN_SMALL}},
            "digits.input_shape is 3,8,1; allowed: height and width of 4 or more",
        ),
        (
            {"input_shape": (8, 8), "models": text.MODELS},
            "digits.input_shape is 8,8; allowed: a window alone",
        ),
        (
            {"input_shape": (8, 8), "models": {}, "mirrored": True},
            "digits.input_shape is 8,8; allowed: height, width and channels where",
        ),
        ({"max_value": 0}, "digits.max_value is 0; allowed: above min_value, which is"),
        ({"min_value": 17.0}, "digits.max_value is 16; allowed: above .* is 17 in fl"),
        # Apart, but not in float32.
        (
            {"min_value": 2.0**24, "max_value": 2.0**24 + 1},
            "digits.max_value is 1.67772e\\+07; allowed: above min_value",
        ),
        ({"max_value": None}, "digits.max_value is None; allowed: a finite number"),
        ({"min_value": float("-inf")}, "digits.min_value is -inf; allowed: a finite"),
        (
            {"input_shape": (3,), "min_value": (0, 2, 0), "max_value": (1, 2, 3)},
            r"digits.max_value is 2; allowed: above .* is 2 in float32 \(column 1\)",
        ),
        (
            {"input_shape": (3,), "max_value": (1, 2)},
            r"digits.max_value is 1,2; .* one for each column of \(3,\)",
        ),
    ],
)
def test_a_data_set_that_its_models_do_not_fit_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}") as error:
        dataclasses.replace(tasks.TASKS["digits"], **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 1}, "num_classes is 1; allowed: a whole number >= 2"),
        ({"num_classes": 2.5}, "num_classes is 2.5; allowed: a whole number >= 2"),
        ({"class_names": ("a", "b")}, "class_names is a,b; allowed: a tuple of 10"),
        ({"class_names": ("a",) * 11}, "class_names is a,a,.*; allowed: a tuple of 10"),
        ({"class_names": tuple(range(10))}, "class_names is 0,1,.*: a tuple of 10"),
        ({"class_names": "0123456789"}, "class_names is 0123456789; allowed: a tuple"),
        ({"class_names": None}, "class_names is None; allowed: a tuple of 10 texts"),
        ({"partitions": "writer"}, "partitions is writer; allowed: a tuple of one"),
        ({"partitions": ("iid", "user")}, r"partitions\[1\] is user; allowed: iid, di"),
        ({"partitions": ()}, "partitions is empty; allowed: a tuple of one or more of"),
        ({"partitions": None}, "partitions is None; allowed: a tuple of one or more"),
        ({"input_shape": 64}, r"input_shape is 64; .* whole numbers, as \(20,\)"),
        ({"input_shape": (8, -8)}, r"input_shape\[1\] is -8; allowed: a whole number"),
        ({"input_shape": (8, None)}, r"input_shape\[1\] is None; allowed: a whole"),
        ({"num_clients": None}, "num_clients is None; allowed: a whole number >= 1"),
        ({"num_clients": 0}, "num_clients is 0; allowed: a whole number >= 1"),
        ({"encoding": {"a": np.ones(2)}}, "encoding is .*; allowed: a dict that JSON"),
        ({"encoding": {1: "a"}}, "encoding is .*; allowed: a dict that JSON"),
        (
            {"encoding": {"a": float("nan")}},
            "encoding is .*; allowed: a dict that JSON",
        ),
        ({"encoding": "utf-8"}, "encoding is utf-8; allowed: a dict that JSON gives"),
        (
            {"models": {}, "max_value": None, "input_shape": (8,)},
            "models is {}; allowed: a dict of one or more",
        ),
        ({"models": [DNN]}, r"models is Architecture.*; allowed: a dict of one or"),
        ({"models": None}, "models is None; allowed: a dict of one or more"),
        ({"models": {"mine": dict}}, r"models\['mine'\] is <class .*: an Arch"),
        ({"models": {"mine": DNN, "b": None}}, r"models\['b'\] is None; allowed: an A"),
        ({"mirrored": "no"}, "mirrored is 'no'; allowed: "),
        ({"read": None}, "read is None; allowed: a function"),
    ],
    ids=str,
)
def test_a_malformed_data_set_is_one_line(changes, message):
    with pytest.raises(ArgumentError, match=rf"^digits\.{message}") as error:
        dataclasses.replace(tasks.TASKS["digits"], **changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", "two\nlines", 5])
def test_a_data_set_has_a_name_of_one_line(name):
    with pytest.raises(ArgumentError, match=r"^name is .*; allowed: a line of text"):
        dataclasses.replace(tasks.TASKS["digits"], name=name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Architecture(16, 8), "filters is 16; allowed: a sequence"),
        (lambda: Architecture(None, 8), "filters is None; allowed: a sequence"),
        (lambda: Architecture((8, 0), 8), r"filters\[1\] is 0; allowed: .* >= 1"),
        (lambda: Architecture((), -3), "units is -3; allowed: .* >= 1"),
        (lambda: Architecture((), 2.5), "units is 2.5; allowed: a whole number"),
        (lambda: TextArchitecture(8, "no"), "recurrent is 'no'; allowed: "),
        (lambda: TextArchitecture(8, True, 0), "embedding is 0; allowed: .* >= 1"),
    ],
)
def test_a_model_without_a_layers_width_is_refused(make, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        make()


def test_numbers_and_names_of_numpys_are_ones_that_a_models_card_can_hold():
    """They ended a run in a traceback once all its rounds were done."""
    changes = {"num_classes": np.int64(10), "class_names": np.array(list("abcdefghij"))}
    dataset = dataclasses.replace(tasks.TASKS["digits"], **changes)
    made = {"classes": dataset.num_classes, "names": dataset.class_names}
    assert json.loads(json.dumps(made)) == {"classes": 10, "names": list("abcdefghij")}


def test_the_smallest_image_that_convolutions_take_is_taken():
    models = {"cnn": CNN_SMALL}
    dataset = dataclasses.replace(
        tasks.TASKS["digits"], input_shape=(4, 5, 1), models=models
    )
    made = CNN_SMALL.build(**dataset.model_shape, max_value=16)
    assert made.count_params() == CNN_SMALL.num_parameters(**dataset.model_shape)


def test_each_column_of_a_table_is_mapped_from_its_own_range():
    dataset = tasks.TASKS["breast_cancer"]
    layer = build("breast_cancer", "dnn").layers[0]
    ends = np.array([dataset.min_value, dataset.max_value], np.float32)
    np.testing.assert_allclose(layer(ends), [[0.0] * 30, [1.0] * 30], atol=1e-5)


@pytest.mark.parametrize("kind", [np.array, list, pd.Series], ids=lambda k: k.__name__)
def test_ranges_of_columns_are_told_in_any_form(kind):
    dataset = tasks.TASKS["breast_cancer"]
    ends = {n: kind(getattr(dataset, n)) for n in ("min_value", "max_value")}
    changed = dataclasses.replace(dataset, **ends)
    assert changed == dataset
    options = dict.fromkeys(("model", "data_dir", "partition", "dirichlet_alpha"))
    task = load_task(changed, num_clients=3, seed=0, **options)
    assert "values mapped from their ranges to 0..1, Dense" in task.description
    both = np.array([dataset.min_value, dataset.max_value], np.float32)
    found = task.build_model().layers[0](both)
    np.testing.assert_allclose(found, [[0.0] * 30, [1.0] * 30], atol=1e-5)


def test_a_task_builds_the_model_that_tells_its_shapes_once():
    built = []
    task = tasks.load("digits")

    def build():
        built.append(task.build_model())
        return built[-1]

    counted = dataclasses.replace(task, build_model=build)
    assert counted.model is counted.model is built[0]
    assert len(built) == 1
    shapes = [tuple(weight.shape) for weight in counted.model.trainable_weights]
    assert shapes == [(64, 32), (32,), (32, 10), (10,)]
    # Another model's task asks anew.
    softmax = tasks.load("digits", model="softmax").build_model
    other = dataclasses.replace(counted, build_model=softmax)
    assert [tuple(w.shape) for w in other.model.trainable_weights] == [(64, 10), (10,)]
