"""The paper's ordering at one multiplier: none >= CDP >= HDP >= LDP."""

import pathlib
import subprocess
import sys

import pandas as pd
import pytest

SCRIPTS = pathlib.Path(__file__).parents[3] / "scripts"
MODES = ["none", "cdp", "hdp", "ldp"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ordering_on_digits_over_five_seeds(tmp_path):
    subprocess.run(
        [
            *(sys.executable, str(SCRIPTS / "sweep.py"), "--seeds=1,2,3,4,5"),
            *("--grid=privacy=none", f"--out={tmp_path}"),
            *("--grid=privacy=cdp,hdp,ldp;noise_multiplier=1", "--"),
            *("--zones=5", "--clients_per_round=50", "--rounds=60"),
            *("--client_learning_rate=0.1", "--clip_norm=0.5"),
        ],
        check=True,
    )
    means = pd.read_csv(tmp_path / "summary.csv", index_col="privacy")["mean"]
    assert means[MODES].is_monotonic_decreasing
    assert means["none"] - means["cdp"] < 0.04


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ordering_on_mnist_by_writer(tmp_path, data_dir):
    accuracy = {}
    for mode in MODES:
        preset = SCRIPTS / "papers" / "hdp" / f"mnist_{mode}.flags"
        out = tmp_path / mode
        subprocess.run(
            [
                *(sys.executable, str(SCRIPTS / "train.py"), f"--flagfile={preset}"),
                *(f"--data_dir={data_dir}", f"--out={out}"),
            ],
            check=True,
        )
        accuracy[mode] = pd.read_csv(out / "metrics.csv")["accuracy"].iloc[-1]
    assert pd.Series(accuracy)[MODES].is_monotonic_decreasing
    assert accuracy["none"] - accuracy["cdp"] < 0.04
