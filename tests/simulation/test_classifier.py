"""Classifiers come back from their files, or a line says what is wrong with them."""

import io
import random
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.errors import FileError
from tff_hdp.simulation.classifier import load_classifier, save_classifier, seeded


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a classifier, and what it says of four examples."""
    path = tmp_path_factory.mktemp("model")
    layers = [tf.keras.layers.Input([3]), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential(layers)
    features = np.float32([[1, 2, 3], [-3, 1, 0], [2, -2, 5], [0, 0, -1]])
    save_classifier(model, features, path)
    return path, features, model(features).numpy().argmax(-1)


def without(content, name):
    """The archive of a Keras file, without one of its files."""
    found = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as whole,
        zipfile.ZipFile(found, "w") as rest,
    ):
        for member in set(whole.namelist()) - {name}:
            rest.writestr(member, whole.read(member))
    return found.getvalue()


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_classifier_comes_back(saved):
    path, features, expected = saved
    np.testing.assert_array_equal(load_classifier(path, 2)(features, None), expected)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: flipped(content, content.index(b"Dense")),
        lambda content: flipped(content, content.rindex(b"model.weights.h5")),
        lambda content: without(content, "config.json"),
        lambda content: without(content, "model.weights.h5"),
        lambda content: None,
    ],
    ids=[
        *("emptied", "cut", "within", "a name", "no config", "no weights", "missing"),
    ],
)
def test_a_damaged_classifier_is_one_line(saved, tmp_path, damage):
    content = damage((saved[0] / "model.keras").read_bytes())
    if content is not None:
        (tmp_path / "model.keras").write_bytes(content)
    with pytest.raises(FileError, match=r"model\.keras: is damaged, or no ") as error:
        load_classifier(tmp_path, 2)
    assert "\n" not in str(error.value)


def test_a_classifier_that_cannot_be_written_is_one_line(tmp_path):
    """TensorFlow's errors of files, as on a full disk, are none of Python's."""
    (tmp_path / "saved_model").write_text("in the way")
    model = tf.keras.Sequential([tf.keras.layers.Input([3]), tf.keras.layers.Dense(2)])
    wrong = r"saved_model: cannot be written: [^{\n]+$"
    with pytest.raises(FileError, match=wrong):
        save_classifier(model, np.zeros([1, 3], np.float32), tmp_path)


def test_a_seed_leaves_nothing_seeded():
    def drawn():
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,))])
        return model.get_weights()[0], np.random.rand(), random.random()

    before = random.getstate(), np.random.get_state()[1].copy()
    within, after = [], []
    for _ in range(2):
        with seeded(3):
            within.append(drawn())
        assert random.getstate() == before[0]
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])
        model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,))])
        after.append(model.get_weights()[0])
    np.testing.assert_array_equal(within[0][0], within[1][0])
    assert within[0][1:] == within[1][1:]
    assert np.any(after[0] != after[1])
