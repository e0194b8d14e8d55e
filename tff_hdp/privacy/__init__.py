"""Noise plans and what they are worth. Imports no TensorFlow."""

from tff_hdp.privacy import configurations
from tff_hdp.privacy.accountant import AccountRow, account, worst
from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.plan import Level, NoisePlan
from tff_hdp.privacy.sampling import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    Sampling,
)

__all__ = [
    "AccountRow",
    "Clipping",
    "FixedSizeSampling",
    "FullParticipation",
    "Level",
    "NoisePlan",
    "PoissonSampling",
    "Sampling",
    "account",
    "configurations",
    "worst",
]
