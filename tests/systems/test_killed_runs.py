"""Runs of all systems that are killed, and that it loses nothing.

Noise too small to show, where a system has such, lets a resumed run be compared with
an uninterrupted one number by number. What dies at every single write is tested on a
loop without learning, in tests/simulation/test_deaths.py; `scripts/torture.py` does it
to whole programs.
"""

import json

import numpy as np
import pandas as pd
import pytest

from tff_hdp.simulation import experiment
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.run import FlTop
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.gfl.run import Gfl
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.run import HflDp
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.run import UdpHypernet

SETTINGS = {"task": "digits", "num_clients": 20, "rounds": 4, "seed": 3}
HDP = {
    **{"privacy": "c7", "alpha": 0.5, "beta": 0.25, "zones": 4},
    **{"clients_per_round": 10, "noise_multiplier": 1.0, "local_epochs": 1},
}
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


@pytest.mark.parametrize(
    ("system_class", "config_class", "changes", "same"),
    [
        pytest.param(Hdp, HdpConfig, HDP, ["clients"], marks=pytest.mark.slow),
        pytest.param(
            *(FlTop, FlTopConfig, FL_TOP_DP, ["clients"]), marks=pytest.mark.slow
        ),
        pytest.param(
            *(Gfl, GflConfig, GFL, ["clients", "msd", "train_loss"]),
            marks=pytest.mark.slow,
        ),
        (HflDp, HflDpConfig, HFL_DP, ["clients", "loss", "disagreement"]),
        pytest.param(
            *(UdpHypernet, UdpHypernetConfig, UDP_HYPERNET, ["clients"]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["hdp", "fl_top_dp", "gfl", "hfl_dp", "udp_hypernet"],
)
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path, monkeypatch, traced_once, system_class, config_class, changes, same
):
    traced_once(system_class)
    settings = SETTINGS | changes
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    release = RunFolder.release_metrics

    def die_after_two(folder, number, metrics):
        if folder.path == killed and number == 2:
            raise KeyboardInterrupt
        release(folder, number, metrics)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "release_metrics", die_after_two)
        experiment.run(config_class(**settings, out=str(whole)))
        with pytest.raises(KeyboardInterrupt):
            experiment.run(config_class(**settings, out=str(killed)))
    stopped = json.loads((killed / "privacy.json").read_text())
    assert stopped["rounds"] >= 2
    experiment.run(config_class(**settings, out=str(killed)))
    first, second = (
        json.loads((out / "privacy.json").read_text()) for out in (whole, killed)
    )
    assert first["accounts"]
    assert second["ledger"] == first["ledger"]
    assert second["accounts"] == first["accounts"]
    assert second["rounds"] == 4
    frames = [pd.read_csv(out / "metrics.csv") for out in (whole, killed)]
    assert frames[1]["round"].tolist() == [1, 2, 3, 4]
    for column in ("epsilon", "epsilon_rdp", *same):
        np.testing.assert_allclose(
            frames[1][column], frames[0][column], rtol=1e-3, atol=1e-8
        )


def torture(run_program, *flags):
    result = run_program("scripts/torture.py", *flags, timeout=None)
    assert result.returncode == 0, result.stdout + result.stderr
    return [line.split() for line in result.stdout.splitlines()[1:]]


def test_a_run_has_its_last_model_once_all_else_is_there(
    hdp_config, tmp_path, monkeypatch, traced_once
):
    """By which sweeps and studies know that it is finished."""
    traced_once(Hdp)

    def killed(system, path, state):
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Hdp, "finish", killed)
        with pytest.raises(OSError, match="killed"):
            experiment.run(hdp_config(tmp_path, rounds=1))
    assert (tmp_path / "figures").is_dir()
    assert not (tmp_path / "model" / "last").exists()
    experiment.run(hdp_config(tmp_path, rounds=1))
    assert (tmp_path / "model" / "last" / "card.json").exists()


def test_a_killed_program_loses_nothing(run_program):
    """One whole program of one system; all of them in the slow tests."""
    flags = ("--systems=gfl", "--kinds=kill", "--cases=1")
    rows = torture(run_program, *flags)
    assert [row[:4] for row in rows] == [["gfl", "kill", "2", "2"]]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_systems_under_torture(run_program):
    rows = torture(run_program, "--cases=10")
    assert len(rows) == 30
    for system, kind, cases, finished, refused, *_ in rows:
        assert int(cases) == int(finished) + int(refused)
        if kind in ("kill", "events", "full"):
            assert refused == "0", (system, kind)


def test_bad_flags_are_refused(assert_refused):
    assert_refused("scripts/torture.py", ["--kinds=fire"], ["--kinds is fire", "kill"])
