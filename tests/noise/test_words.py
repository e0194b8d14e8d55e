"""Words are fresh at every execution, wherever they are drawn."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.noise import secure_words, system_words, words
from tff_hdp.noise.words import _fresh_key


def assert_all_differ(*draws):
    words = np.concatenate([np.asarray(d) for d in draws])
    assert len(np.unique(words)) == len(words)


def test_every_call_draws_anew():
    assert_all_differ(secure_words(50), secure_words(50))


def test_two_calls_in_a_graph_and_two_executions_draw_anew():
    @tf.function
    def both():
        return secure_words(50), secure_words(50)

    assert_all_differ(*both(), *both())


def test_every_turn_of_a_loop_draws_anew():
    @tf.function
    def loop():
        drawn = tf.TensorArray(tf.int64, 4)
        for i in tf.range(4):
            drawn = drawn.write(i, secure_words(20))
        return drawn.concat()

    assert_all_differ(loop(), loop())


def test_elements_of_a_data_set_draw_anew():
    numbers = tf.data.Dataset.range(4).map(lambda _: secure_words(20))
    assert_all_differ(*numbers, *numbers)


def test_tffs_own_worker_draws_anew(native_context):
    @tff.tensorflow.computation
    def both():
        return secure_words(50), secure_words(50)

    assert_all_differ(*both(), *both())


def test_clients_draw_each_their_own(in_process_default):
    draw = tff.tensorflow.computation(lambda x: secure_words(20), np.int32)

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def each(x):
        return tff.federated_map(draw, x)

    assert_all_differ(*each([1, 2, 3]), *each([1, 2, 3]))


def test_the_system_is_asked_every_time():
    assert_all_differ(system_words(50), system_words(50))
    assert system_words(np.int32(0)).shape == (0,)


@pytest.mark.parametrize("draw", [system_words, lambda n: secure_words(n).numpy()])
def test_every_bit_is_fair(draw):
    count = 200_000
    bits = np.unpackbits(draw(count).view(np.uint8)).reshape(count, 64)
    # Five standard deviations of a fair coin.
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / count**0.5
    neighbours = (bits[:, :-1] == bits[:, 1:]).mean(0)
    assert np.abs(neighbours - 0.5).max() < 5 * 0.5 / count**0.5


def test_every_bit_of_a_key_is_fair():
    draw = tf.function(_fresh_key)
    keys = np.stack([draw().numpy() for _ in range(200)])
    bits = np.unpackbits(keys.view(np.uint8), axis=1)
    assert bits.shape == (200, 256)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / 200**0.5


UUID = "01234567-89ab-4def-8123-456789abcdef\n"


@pytest.mark.parametrize(
    "text", [None, "", "0123\n", UUID * 2, UUID, UUID[:-1], f"{UUID[:-1]}00\n"]
)
def test_a_source_that_fails_gives_no_key(text, tmp_path, monkeypatch):
    """Missing, cut short, too long, or the same line whenever it is read."""
    source = tmp_path / "uuid"
    if text is not None:
        source.write_text(text)
    monkeypatch.setattr(words, "_UUIDS", str(source))
    with pytest.raises((tf.errors.NotFoundError, tf.errors.InvalidArgumentError)):
        tf.function(_fresh_key)()
