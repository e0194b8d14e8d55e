"""The ChaCha20 key stream in TensorFlow operations, for runtimes without Python.

Source: RFC 8439, section 2.3. Its block counter of 32 bits lasts for more words than
an int32 counts.
"""

from collections.abc import Sequence

import tensorflow as tf

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_DOUBLE_ROUNDS = 10
_WORDS = 16  # 32-bit words of a block
# Blocks computed together at most: their sixteen words stay in a core's cache.
_CHUNK = 4096


def key_stream(key: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
    """The first 64-bit words of the stream of a key, with nonce 0.

    A key must be used once: two streams of one key are the same.

    Args:
      key: uint32 [8], secret and uniform.
      count: How many words, int32 [].

    Returns:
      int64 [count], little-endian pairs of the stream's 32-bit words.
    """
    blocks = (count + _WORDS // 2 - 1) // (_WORDS // 2)
    chunks = tf.maximum((blocks + _CHUNK - 1) // _CHUNK, 1)
    # As long as each other, so that few blocks are left over.
    length = (blocks + chunks - 1) // chunks

    def write(i: tf.Tensor, words: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return i + 1, words.write(i, _blocks(key, i * length, length))

    words = tf.TensorArray(tf.uint32, size=chunks, element_shape=[None, _WORDS])
    _, words = tf.while_loop(
        lambda i, _: i < chunks, write, (0, words), parallel_iterations=2
    )
    pairs = tf.reshape(words.stack(), [-1, 2])
    return tf.bitcast(pairs, tf.int64)[:count]


def _blocks(key: tf.Tensor, first: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """uint32 [length, 16], the blocks from the counter `first` (int32 []) on."""
    counter = tf.bitcast(first + tf.range(length), tf.uint32)
    nonce = tf.zeros_like(counter)
    constants = tf.constant(_CONSTANTS, tf.uint32)
    # Rows of the 4 x 4 state, each [4, blocks].
    start = [
        tf.tile(constants[:, tf.newaxis], [1, length]),
        tf.tile(key[:4, tf.newaxis], [1, length]),
        tf.tile(key[4:, tf.newaxis], [1, length]),
        tf.stack([counter, nonce, nonce, nonce]),
    ]
    # A loop, since every draw of a graph brings these operations with it.
    _, *rows = tf.while_loop(
        lambda i, *_: i < _DOUBLE_ROUNDS,
        lambda i, *rows: (i + 1, *_double_round(rows)),
        (0, *start),
    )
    mixed = tf.concat([a + b for a, b in zip(rows, start, strict=True)], 0)
    return tf.transpose(mixed)


def _double_round(rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """A round on the columns and one on the diagonals."""
    first, *others = _quarter_rounds(*rows)
    # Diagonals become columns, and back.
    others = [tf.roll(row, -i, 0) for i, row in enumerate(others, 1)]
    first, *others = _quarter_rounds(first, *others)
    return [first, *(tf.roll(row, i, 0) for i, row in enumerate(others, 1))]


def _quarter_rounds(
    a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor
) -> list[tf.Tensor]:
    """A quarter round on each of the four columns at once."""
    a += b
    d = _rotated(tf.bitwise.bitwise_xor(d, a), 16)
    c += d
    b = _rotated(tf.bitwise.bitwise_xor(b, c), 12)
    a += b
    d = _rotated(tf.bitwise.bitwise_xor(d, a), 8)
    c += d
    b = _rotated(tf.bitwise.bitwise_xor(b, c), 7)
    return [a, b, c, d]


def _rotated(x: tf.Tensor, bits: int) -> tf.Tensor:
    # Products and sums have vector instructions in TensorFlow, left shifts have none.
    left = x * tf.constant(2**bits, tf.uint32)
    return left + tf.bitwise.right_shift(x, tf.constant(32 - bits, tf.uint32))
