"""What may be published of a run, and what its notes keep for the operator."""

import asyncio
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.trackers import Board, grouped
from tff_hdp.systems.fl_top.run import FlTop
from tff_hdp.systems.gfl import run as gfl
from tff_hdp.systems.hdp import run as hdp
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp import run as hfl_dp
from tff_hdp.systems.udp_hypernet import run as udp_hypernet


def published(system, *, public=True, scheme="iid"):
    """What a system that was not set up would publish."""
    made = system.__new__(system)
    made.task = types.SimpleNamespace(tests_are_public=public)
    made.plan = types.SimpleNamespace(scheme=scheme, is_noisy=True)
    return made.published


def kept_back(notes):
    """The columns that a note says are for the operator."""
    (named,) = re.findall(r"([\w, ]+) in metrics\.csv", " ".join(notes))
    return re.split(r", | and ", named)


@pytest.mark.parametrize(
    ("system", "scheme", "notes"),
    [
        (hdp.Hdp, None, (hdp.OPERATOR_METRICS,)),
        (hfl_dp.HflDp, None, (hfl_dp.OPERATOR_METRICS,)),
        (gfl.Gfl, "iid", (gfl.OPERATOR_METRICS,)),
        (gfl.Gfl, "hybrid", (gfl.OPERATOR_METRICS,)),
        (gfl.Gfl, "hybrid", (gfl.TESTS_WITHOUT_NOISE,)),
        (udp_hypernet.UdpHypernet, None, udp_hypernet.NOTES),
    ],
)
def test_what_notes_keep_for_the_operator_is_in_no_other_group(system, scheme, notes):
    columns = [*kept_back(notes), "msd_servers"]
    row = dict.fromkeys(columns, 1.0)
    found = grouped(row, published(system, scheme=scheme))
    assert len(columns) > 2
    assert found["operator"].keys() == set(columns)
    assert found["test"] == found["privacy"] == found["time"] == {}


@pytest.mark.parametrize("system", [hdp.Hdp, hfl_dp.HflDp, gfl.Gfl, FlTop])
def test_tests_of_released_models_may_be_published(system):
    row = {"accuracy": 0.9, "auroc": 0.8, "epsilon": 2.0, "round_seconds": 1.0}
    found = grouped(row, published(system))
    assert found["test"] == {"accuracy": 0.9, "auroc": 0.8}
    assert found["privacy"] == {"epsilon": 2.0}
    assert found["time"] == {"round_seconds": 1.0}
    # On clients' own examples they may not.
    found = grouped(row, published(system, public=False))
    assert found["operator"] == {"accuracy": 0.9, "auroc": 0.8}


@pytest.mark.parametrize("config", [None, {"task": "digits"}, "runs/mine"])
def test_what_is_run_are_settings(config):
    with pytest.raises(ArgumentError, match=r"^config is .*; allowed: settings of a"):
        experiment.run(config)


@pytest.mark.parametrize("seed", [-1, np.nan, 2.5, "x", True, np.array([1])])
def test_partition_seeds_are_whole_numbers(tmp_path, seed):
    config = HdpConfig(noise_multiplier=1.0, rounds=1, out=tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"^partition_seed is .*; allowed: a whole"):
        experiment.run(config, partition_seed=seed)
    assert not (tmp_path / "run").exists()


def test_partition_seeds_may_be_numpys_numbers(tmp_path):
    out = tmp_path / "run"
    config = HdpConfig(noise_multiplier=1.0, rounds=1, num_clients=9, out=out)
    # Refused once the seed has been used, and not for it.
    with pytest.raises(ArgumentError, match=r"^clients_per_round is 100"):
        experiment.run(config, partition_seed=np.int64(3))


class Waits:
    async def release(self, value, key):
        pass


class DoesNotWait:
    def release(self, value, key):
        pass


@pytest.mark.parametrize(
    ("trackers", "message"),
    [
        (["x"], r"^trackers\[0\] is x; allowed: a tff"),
        ([Waits(), DoesNotWait()], r"^trackers\[1\] is .*; .*whose release is async"),
        (Waits(), r"^trackers is .*; allowed: a sequence"),
        (None, r"^trackers is None; allowed: a sequence"),
    ],
)
def test_what_is_no_tracker_is_refused_before_a_round_is_released(
    tmp_path, trackers, message
):
    """It was found out by the first release."""
    config = HdpConfig(noise_multiplier=1.0, rounds=1, out=tmp_path / "run")
    with pytest.raises(ArgumentError, match=message):
        experiment.run(config, trackers=trackers)
    assert not (tmp_path / "run").exists()


def test_what_tensorflow_says_of_event_files_is_without_its_operation(
    tmp_path, monkeypatch
):
    said = (
        "{{function_node __wrapped__CreateSummaryFileWriter}} No space left on device"
    )

    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, said)

    board = Board(tmp_path / "board")
    monkeypatch.setattr(tf.summary, "create_file_writer", full)
    with pytest.raises(FileError) as error:
        Board(tmp_path)
    assert (
        str(error.value) == f"{tmp_path}: takes no event files: No space left on device"
    )
    monkeypatch.setattr(tf.summary.experimental, "write_raw_pb", full)
    with pytest.raises(FileError, match=r"board: takes no event: No space left on dev"):
        asyncio.run(board.release({"accuracy": 0.5}, 1))
