"""Noise plans, what is assumed of the parties, and what that is worth.

Names are imported when they are first used: a plan loads the protocols of secure
sums with their cryptography, and only an account SciPy. Imports no TensorFlow.
"""

import importlib
from typing import Any

_HOMES = {
    "AccountRow": "accountant",
    "Clipping": "parts",
    "FixedSizeSampling": "parts",
    "FullParticipation": "parts",
    "Ledger": "ledger",
    "Level": "planned_noise",
    "NoisePlan": "plan",
    "PoissonSampling": "parts",
    "RoundLedger": "ledger",
    "Sampling": "parts",
    "ThreatModel": "threat",
    "account": "accountant",
    "calibrate": "calibration",
    "worst": "accountant",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return getattr(home, name)
