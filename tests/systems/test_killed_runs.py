"""Runs of the neighbour systems that are killed, and that it loses nothing.

Noise too small to show, where a system has such, lets a resumed run be compared with
an uninterrupted one number by number.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from tff_hdp.simulation import experiment
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
SETTINGS = {"task": "digits", "num_clients": 20, "rounds": 8, "seed": 3}
FL_TOP_DP = {"scheme": "fl_top_dp", "clients_per_round": 4, "local_epochs": 1}
GFL = {
    **{"task": "gfl_logistic", "scheme": "hybrid", "sigma_g": 1e-9},
    **{"servers": 4, "per_round": 3},
}
HFL_DP = {
    **{"noise": "theorem_1", "eps1": 1e10, "eps2": 1e10, "edges": 2},
    **{"local_steps": 2, "batch_size": 8},
}
UDP_HYPERNET = {
    **{"noise_multiplier": 2.0, "sampling_rate": 0.3, "local_steps": 2},
    **{"descriptor_dim": 4, "hidden_width": 8},
}


def newest_round(out):
    names = [p.name for p in (out / "checkpoints").glob("program_state_*")]
    rounds = [name.removeprefix("program_state_") for name in names]
    return max((int(r) for r in rounds if r.isdigit()), default=0)


def kill_after(minimum, script, settings, out):
    """Starts a program and kills it once so many rounds are on disk."""
    flags = [f"--{name}={value}" for name, value in settings.items()]
    run = subprocess.Popen(
        [sys.executable, str(SCRIPTS / script), *flags, f"--out={out}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while run.poll() is None and newest_round(out) < minimum:
            time.sleep(0.005)
    finally:
        run.kill()
    assert run.wait(timeout=60) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("config_class", "changes", "same"),
    [
        (FlTopConfig, FL_TOP_DP, ["clients"]),
        (GflConfig, GFL, ["clients", "msd", "train_loss"]),
        (HflDpConfig, HFL_DP, ["clients", "loss", "disagreement"]),
        (UdpHypernetConfig, UDP_HYPERNET, ["clients"]),
    ],
    ids=["fl_top_dp", "gfl", "hfl_dp", "udp_hypernet"],
)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, config_class, changes, same):
    settings = SETTINGS | changes
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    kill_after(2, f"{config_class.system}.py", settings, killed)
    assert 2 <= newest_round(killed) < 8
    for out in (whole, killed):
        experiment.run(config_class(**settings, out=str(out)))
    first, second = (
        json.loads((out / "privacy.json").read_text()) for out in (whole, killed)
    )
    assert first["accounts"]
    assert second["ledger"] == first["ledger"]
    assert second["accounts"] == first["accounts"]
    assert second["rounds"] == 8
    frames = [pd.read_csv(out / "metrics.csv") for out in (whole, killed)]
    assert frames[1]["round"].tolist() == list(range(1, 9))
    for column in ("epsilon", *same):
        np.testing.assert_allclose(
            frames[1][column], frames[0][column], rtol=1e-3, atol=1e-8
        )
