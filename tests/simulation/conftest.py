"""What tests of run folders share."""

import pytest

from tests.simulation.run_folders import (
    config,
    release,
)
from tff_hdp.simulation.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    """The folder of a run of five rounds that stopped."""
    with RunFolder(config(tmp_path)) as folder:
        folder.resolve(noise_multiplier=1.0, zones="abc")
        folder.publish(("accuracy",))
        release(folder, 0, 1, 2, 3, 4, 5)
        for number in range(1, 6):
            folder.release_metrics(number, {"accuracy": number / 10})
    return tmp_path
