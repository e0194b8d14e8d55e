"""Two runs of one seed, on a machine whose random device says the same to both."""

import pandas as pd
import pytest

PROGRAM = """
import sys
import tensorflow as tf
from scripts.parts.torture_folders import SYSTEMS
from tff_hdp.simulation import experiment
system, out = sys.argv[1:]
print(tf.random.normal([4]).numpy().tolist())
config = SYSTEMS[system](num_clients=20, rounds=2, seed=3, quiet=True, out=out)
experiment.run(config)
"""


@pytest.mark.parametrize(
    "system",
    [
        "hdp",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("hfl_dp", "gfl", "fl_top", "udp_hypernet")
        ),
    ],
)
def test_the_noise_differs(system, tmp_path, with_fixed_device):
    known = [with_fixed_device(PROGRAM, system, tmp_path / name)[0] for name in "ab"]
    assert known[0] == known[1]  # TensorFlow repeats itself
    first, second = (pd.read_csv(tmp_path / name / "metrics.csv") for name in "ab")
    assert first["clients"].tolist() == second["clients"].tolist()
    # Far more than rounding, which threads may do in another order.
    assert (first["train_loss"] - second["train_loss"]).abs().iloc[1] > 1e-4
