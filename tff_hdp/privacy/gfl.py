"""GFL: what its Laplace noise is worth per server and iteration.

Source: GFL paper, Theorem 2: after i iterations the model's sensitivity is
2 mu B i, and the losses of iterations 1..i add up. The root in the theorem
covers the 2 alone: a Laplace variable of standard deviation sigma_g has scale
sigma_g / sqrt(2).
"""

import math

from tff_hdp.privacy.checks import check_positive, check_rounds


def epsilon(
    *, i: int, mu: float, B: float, sigma_g: float, dimension: int | None = None
) -> float:
    """Epsilon after i iterations against a neighbouring server.

    Args:
      i: Iterations, >= 0.
      mu: Step size.
      B: Bound on the gradient's norm.
      sigma_g: Standard deviation of each coordinate's Laplace noise.
      dimension: M, the model's parameters. None gives the paper's value, which
        takes the L2 sensitivity for the L1 one. With it, epsilon is sqrt(M)
        larger: the L1 norm can be sqrt(M) times the L2 norm.

    Returns:
      sqrt(2) mu B i (i+1) / sigma_g, times sqrt(M) if `dimension` is given.
      Against whoever sees every server's model there is no guarantee: the noise
      cancels in their average.

    Raises:
      ValueError: If an argument is out of range.
    """
    i = check_rounds("i", i)
    for name, value in {"mu": mu, "B": B, "sigma_g": sigma_g}.items():
        check_positive(name, value)
    return math.sqrt(2 * _dimension(dimension)) * mu * B * i * (i + 1) / sigma_g


def sigma_g(
    *, i: int, mu: float, B: float, epsilon: float, dimension: int | None = None
) -> float:
    """The standard deviation that gives `epsilon` after i iterations.

    Args:
      i: Iterations, >= 1.
      mu: Step size.
      B: Bound on the gradient's norm.
      epsilon: Target.
      dimension: As in `epsilon`.

    Returns:
      The inverse of `epsilon` in sigma_g.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_positive("i", i)
    for name, value in {"mu": mu, "B": B, "epsilon": epsilon}.items():
        check_positive(name, value)
    return math.sqrt(2 * _dimension(dimension)) * mu * B * i * (i + 1) / epsilon


def _dimension(dimension: int | None) -> int:
    if dimension is None:
        return 1
    check_positive("dimension", dimension)
    return dimension
