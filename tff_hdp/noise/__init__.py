"""Noise worth the account: cryptographic randomness, exact tails, a grid."""

from tff_hdp.noise.discrete import discrete_gaussian
from tff_hdp.noise.normals import RELATIVE_ERROR
from tff_hdp.noise.samplers import STEPS, add_gaussian, add_laplace, grid_step
from tff_hdp.noise.words import secure_words, system_words

__all__ = [
    "RELATIVE_ERROR",
    "STEPS",
    "add_gaussian",
    "add_laplace",
    "discrete_gaussian",
    "grid_step",
    "secure_words",
    "system_words",
]
