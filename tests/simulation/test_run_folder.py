"""Checkpoints come back whole, or the one before does."""

import collections
import json
import logging
import shutil

import numpy as np
import pandas as pd
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.files import write_json
from tff_hdp.simulation.run_folder import Checkpoint, RunFolder
from tff_hdp.systems.hdp.config import HdpConfig

State = collections.namedtuple("State", ["weights", "count"])


def config(path, **changes):
    return HdpConfig(**{"noise_multiplier": 1.0, "out": str(path)} | changes)


def checkpoint(number):
    state = collections.OrderedDict(
        model=State(
            [np.full([2, 3], number, np.float32), np.ones([4], np.float64)], number
        ),
        empty=(),
    )
    ledger = {"rounds": number, "nested": [1.5]}
    return Checkpoint(
        number, state, 2**127 + 5, {"seats": [number]}, ledger, {"accuracy": number / 7}
    )


def test_a_checkpoint_comes_back_exactly(tmp_path):
    folder = RunFolder(config(tmp_path))
    for number in range(6):
        folder.save(checkpoint(number))
    found = RunFolder(config(tmp_path)).load_latest(like=checkpoint(0).state)
    assert found.round_number == 5
    assert found.entropy == 2**127 + 5
    assert found.carried == {"seats": [found.round_number]}
    assert found.ledger == {"rounds": 5, "nested": [1.5]}
    assert found.metrics == {"accuracy": 5 / 7}
    assert isinstance(found.state["model"], State)
    assert found.state["model"].weights[0].dtype == np.float32
    np.testing.assert_array_equal(found.state["model"].weights[0], np.full([2, 3], 5.0))
    kept = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert kept == [f"program_state_{i}" for i in (3, 4, 5)]


@pytest.mark.parametrize("damage", ["truncate", "delete", "empty_folder"])
def test_a_broken_newest_checkpoint_falls_back(tmp_path, caplog, damage):
    folder = RunFolder(config(tmp_path))
    for number in range(3):
        folder.save(checkpoint(number))
    newest = tmp_path / "checkpoints" / "program_state_2"
    for file in [p for p in newest.rglob("*") if p.is_file()]:
        if damage == "truncate":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        else:
            file.unlink()
    again = RunFolder(config(tmp_path))
    with caplog.at_level(logging.WARNING):
        found = again.load_latest(like=checkpoint(0).state)
    assert found.round_number == 1
    assert "checkpoint of round 2" in caplog.text
    assert found.lost_rounds == 1
    again.save(checkpoint(2))
    newest = again.load_latest(like=checkpoint(0).state)
    assert (newest.round_number, newest.lost_rounds) == (2, 0)


def test_a_run_whose_checkpoints_are_all_broken_is_not_started_over(tmp_path):
    folder = RunFolder(config(tmp_path))
    folder.save(checkpoint(0))
    (tmp_path / "checkpoints" / "program_state_0" / "saved_model.pb").unlink()
    with pytest.raises(ArgumentError, match=r"out is .*checkpoints none can be read"):
        RunFolder(config(tmp_path)).load_latest(like=checkpoint(0).state)


def test_a_run_whose_checkpoints_are_gone_is_not_started_over(tmp_path):
    folder = RunFolder(config(tmp_path))
    folder.save(checkpoint(1))
    folder.release_metrics(1, {"accuracy": 0.5})
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(ArgumentError, match=r"out is .*checkpoints none can be read"):
        RunFolder(config(tmp_path)).load_latest(like=checkpoint(0).state)


def test_one_run_at_a_time(tmp_path):
    first, second = RunFolder(config(tmp_path)), RunFolder(config(tmp_path))
    with (
        first.locked(),
        pytest.raises(ArgumentError, match=r"out is .*no other run"),
        second.locked(),
    ):
        pass
    with second.locked():
        pass


def test_nothing_to_load(tmp_path):
    assert RunFolder(config(tmp_path)).load_latest(like=checkpoint(0).state) is None


def test_a_folder_belongs_to_its_settings(tmp_path):
    RunFolder(config(tmp_path)).save(checkpoint(0))
    RunFolder(config(tmp_path, rounds=300))
    with pytest.raises(ArgumentError, match=r"noise_multiplier is 2.0; allowed: 1.0"):
        RunFolder(config(tmp_path, noise_multiplier=2.0))


def test_a_run_that_never_started_binds_nobody(tmp_path):
    RunFolder(config(tmp_path)).resolve(noise_multiplier=3.0)
    assert RunFolder(config(tmp_path, noise_multiplier=2.0)).resolved == {}


def test_rounds_beyond_a_target_epsilon_are_refused(tmp_path):
    target = {"noise_multiplier": None, "target_epsilon": 4.0}
    RunFolder(config(tmp_path, **target)).save(checkpoint(0))
    with pytest.raises(ArgumentError, match=r"rounds is 300; allowed: 200"):
        RunFolder(config(tmp_path, rounds=300, **target))


def test_config_json_says_what_ran(tmp_path):
    folder = RunFolder(config(tmp_path, zones=3))
    folder.save(checkpoint(0))
    folder.resolve(noise_multiplier=0.75)
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["flags"]["zones"] == 3
    assert record["resolved"] == {"noise_multiplier": 0.75}
    assert record["versions"]["tensorflow-federated"] == "0.87.0"
    assert RunFolder(config(tmp_path, zones=3)).resolved == {"noise_multiplier": 0.75}


def test_rows_of_undone_rounds_are_dropped(tmp_path):
    folder = RunFolder(config(tmp_path))
    for number in (1, 2, 3):
        folder.release_metrics(number, {"accuracy": number / 10})
    RunFolder(config(tmp_path)).release_metrics(2, {"accuracy": 0.9})
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["round"].tolist() == [1, 2]
    assert frame["accuracy"].tolist() == [0.1, 0.9]


def test_json_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]
