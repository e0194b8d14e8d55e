"""Noise plans and what they are worth. Imports no TensorFlow."""

from tff_hdp.privacy import configurations
from tff_hdp.privacy.accountant import AccountRow, account, worst
from tff_hdp.privacy.calibration import calibrate
from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.ledger import Ledger
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
    "Ledger",
    "Level",
    "NoisePlan",
    "PoissonSampling",
    "Sampling",
    "account",
    "calibrate",
    "configurations",
    "worst",
]
