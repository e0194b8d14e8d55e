"""What the tests of whole runs share: the settings of a small one."""

import pytest

from tff_hdp.simulation.systems.hdp_config import HdpConfig


@pytest.fixture(scope="session")
def hdp_config():
    """Settings of three rounds of HDP on digits, but for what a test changes."""

    def make(out, **changes):
        settings = {
            "task": "digits",
            "privacy": "hdp",
            "noise_multiplier": 1.0,
            "clip_norm": 0.5,
            "zones": 4,
            "clients_per_round": 20,
            "rounds": 3,
            "client_learning_rate": 0.1,
            "seed": 5,
            "out": str(out),
        }
        return HdpConfig(**settings | changes)

    return make
