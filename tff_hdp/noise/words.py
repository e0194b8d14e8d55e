"""Random words worth a privacy account: fresh system entropy, a cryptographic stream.

TensorFlow derives every seed of a process from one 32-bit read of the system's
random device, so whoever sees some of its noise can find all of it by search. Here
each call takes a key of its own from the operating system, in the process where it
is run, and expands it by a stream cipher. No key is shared, kept or logged.
"""

import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tff_hdp.noise.chacha import key_stream
from tff_hdp.runtime.replacements import replace_function

MARKER = "tff_hdp_secure_words"
# The kernel writes a new random UUID whenever it is read: 30 random hexadecimal
# digits, one that tells the version, and one of which two bits are fixed.
_UUIDS = "/proc/sys/kernel/random/uuid"
_RANDOM_DIGITS = [i for i in range(36) if i not in (8, 13, 14, 18, 19, 23)]
_UUIDS_PER_KEY = 3  # 90 digits; a key is 64
_ZEROS = memoryview(bytes(2**18))


@functools.cache
def traced_once(function: Any, *signature: tf.TensorSpec) -> Any:
    """A tf.function's one trace for a signature, to be called in any graph.

    In each of TFF's graphs it would be traced anew, for a third of a second.
    """
    with tf.Graph().as_default():
        return function.get_concrete_function(*signature)


def secure_words(count: tf.Tensor | int) -> tf.Tensor:
    """Uniform random 64-bit words that nobody can compute.

    In a graph, every execution draws anew, also inside a loop; two calls never
    share a key. As it stands it runs wherever TensorFlow does on Linux, TFF's
    workers included; the in-process runtime computes `system_words` in its place,
    which is many times as fast.

    Args:
      count: How many, int32 [].

    Returns:
      int64 [count].

    Raises:
      tf.errors.NotFoundError: When run, where the kernel offers no random UUIDs.
      tf.errors.InvalidArgumentError: When run, if what it offers is not UUIDs, or
        repeats.
    """
    return traced_once(_secure_words)(tf.convert_to_tensor(count, tf.int32))


def system_words(count: np.ndarray) -> np.ndarray:
    """What `secure_words` gives, by AES-256 in counter mode in this process.

    Args:
      count: How many, int32 [].

    Returns:
      int64 [count].
    """
    words = np.empty(int(count), np.int64)
    stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    room = memoryview(words).cast("B")
    for start in range(0, len(room), len(_ZEROS)):
        part = room[start : start + len(_ZEROS)]
        # Encrypting zeros gives the stream.
        stream.update_into(_ZEROS[: len(part)], part)
    return words


def nonnegative(word: tf.Tensor) -> tf.Tensor:
    """The last 63 bits of each, 0..2^63 - 1."""
    return tf.bitwise.bitwise_and(word, tf.constant(2**63 - 1, tf.int64))


@tf.function(
    input_signature=[tf.TensorSpec([], tf.int32)],
    autograph=False,
    experimental_implements=MARKER,
)
def _secure_words(count: tf.Tensor) -> tf.Tensor:
    return key_stream(_fresh_key(), count)


replace_function(MARKER, system_words)


def _fresh_key() -> tf.Tensor:
    """uint32 [8] of the operating system's entropy, new at every execution."""
    # A data set is read anew each time; reading a file by an operation of its own
    # could be done once, when a graph is optimised, and shared.
    lines = tf.data.TextLineDataset([_UUIDS] * _UUIDS_PER_KEY)
    lines = lines.batch(_UUIDS_PER_KEY, drop_remainder=True).get_single_element()
    # What stands in for the kernel's file, as in some sandboxes, may not change.
    differ = tf.equal(tf.size(tf.unique(lines).y), _UUIDS_PER_KEY)
    with tf.control_dependencies([tf.debugging.Assert(differ, [_UUIDS, "repeats"])]):
        text = tf.strings.reduce_join(lines)
    codes = tf.io.decode_raw(text, tf.uint8)
    codes = tf.ensure_shape(codes, [36 * _UUIDS_PER_KEY])
    codes = tf.gather(tf.reshape(codes, [_UUIDS_PER_KEY, 36]), _RANDOM_DIGITS, axis=1)
    codes = tf.cast(tf.reshape(codes, [-1])[:64], tf.uint32)
    digits = tf.where(codes < 97, codes - 48, codes - 87)  # "0".."9", "a".."f"
    places = tf.constant([16**i for i in range(8)], tf.uint32)
    return tf.reduce_sum(tf.reshape(digits, [8, 8]) * places, axis=1)
