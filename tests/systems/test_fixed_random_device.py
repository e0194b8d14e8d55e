"""Noise on a machine whose random device says the same to every process."""

import pandas as pd
import pytest

# TensorFlow's own generator depends on one read of `std::random_device`. With that
# read fixed it repeats itself in every process; ours must not.
DRAWS = """
import tensorflow as tf
from tff_hdp.noise import add_gaussian, add_laplace, secure_words
zeros = tf.zeros([4])
print(tf.random.normal([4]).numpy().tolist())
for draw in secure_words(4), add_gaussian(zeros, 1.0), add_laplace(zeros, 1.0):
    print(draw.numpy().tolist())
"""

RUN = """
import sys
import tensorflow as tf
from scripts.parts.torture_folders import SYSTEMS
from tff_hdp.simulation import experiment
system, out = sys.argv[1:]
print(tf.random.normal([4]).numpy().tolist())
config = SYSTEMS[system](num_clients=20, rounds=2, seed=3, quiet=True, out=out)
experiment.run(config)
"""


def test_draws_differ(with_fixed_device):
    (known, *first), (again, *second) = (with_fixed_device(DRAWS) for _ in range(2))
    assert known == again  # the device is fixed: TensorFlow repeats itself
    assert len(first) == 3
    assert not set(first) & set(second)


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
def test_the_noise_of_two_runs_of_one_seed_differs(system, tmp_path, with_fixed_device):
    known = [with_fixed_device(RUN, system, tmp_path / name)[0] for name in "ab"]
    assert known[0] == known[1]  # TensorFlow repeats itself
    first, second = (pd.read_csv(tmp_path / name / "metrics.csv") for name in "ab")
    assert first["clients"].tolist() == second["clients"].tolist()
    # Far more than rounding, which threads may do in another order.
    assert (first["train_loss"] - second["train_loss"]).abs().iloc[1] > 1e-4
