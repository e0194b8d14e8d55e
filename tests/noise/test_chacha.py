"""The key stream against the `cryptography` package's."""

import os

import numpy as np
import pytest
import tensorflow as tf
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from tff_hdp.noise.chacha import key_stream


def reference(key, count):
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), np.int64)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 4096 * 8, 4096 * 8 + 1, 100_003])
def test_the_stream_is_chacha20(count):
    key = os.urandom(32)
    words = key_stream(tf.constant(np.frombuffer(key, np.uint32)), count)
    np.testing.assert_array_equal(words, reference(key, count))


def test_the_blocks_of_rfc_8439():
    """Section 2.3.2 has another nonce; appendix A.1, vector 1, is the zero key."""
    words = key_stream(tf.zeros([8], tf.uint32), 8).numpy()
    assert words.tobytes().hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")
