"""Noise worth the account: cryptographic randomness, exact tails, a grid."""

from tff_hdp.noise.discrete import discrete_gaussian
from tff_hdp.noise.normals import RELATIVE_ERROR, standard_normal
from tff_hdp.noise.samplers import (
    STEPS,
    add_gaussian,
    add_laplace,
    gaussian,
    grid_step,
    laplace,
)
from tff_hdp.noise.words import MARKER, secure_words, system_words

__all__ = [
    "MARKER",
    "RELATIVE_ERROR",
    "STEPS",
    "add_gaussian",
    "add_laplace",
    "discrete_gaussian",
    "gaussian",
    "grid_step",
    "laplace",
    "secure_words",
    "standard_normal",
    "system_words",
]
