"""Lagrange's interpolation modulo a prime, for shares of a secret."""

import functools


@functools.lru_cache(maxsize=1024)
def lagrange_at_zero(numbers: tuple[int, ...], modulus: int) -> tuple[int, ...]:
    """The weights of a polynomial's values at `numbers` in its value at 0.

    Args:
      numbers: Different, none of them 0.
      modulus: A prime.
    """
    weights = []
    for i in numbers:
        above = below = 1
        for j in numbers:
            if j != i:
                above = above * j % modulus
                below = below * (j - i) % modulus
        weights.append(above * pow(below, -1, modulus) % modulus)
    return tuple(weights)
