"""What may be published of a run, and what its notes keep for the operator."""

import re

import pytest

from tff_hdp.simulation.trackers import grouped
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl import run as gfl
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp import run as hdp
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp import run as hfl_dp
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet import run as udp_hypernet
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig


def kept_back(notes):
    """The columns that a note says are for the operator."""
    (named,) = re.findall(r"([\w, ]+) in metrics\.csv", " ".join(notes))
    return re.split(r", | and ", named)


@pytest.mark.parametrize(
    ("config", "notes"),
    [
        (HdpConfig, (hdp.OPERATOR_METRICS,)),
        (HflDpConfig, (hfl_dp.OPERATOR_METRICS,)),
        (GflConfig, (gfl.OPERATOR_METRICS,)),
        (UdpHypernetConfig, udp_hypernet.NOTES),
    ],
)
def test_what_notes_keep_for_the_operator_is_in_no_other_group(config, notes):
    columns = [*kept_back(notes), "msd_servers"]
    found = grouped(dict.fromkeys(columns, 1.0), config.test_columns)
    assert len(columns) > 5
    assert found["operator"].keys() == set(columns)
    assert found["test"] == found["privacy"] == found["time"] == {}


def test_tests_of_released_models_may_be_published():
    row = {"accuracy": 0.9, "auroc": 0.8, "epsilon": 2.0, "round_seconds": 1.0}
    for config in (HdpConfig, HflDpConfig, GflConfig, FlTopConfig):
        found = grouped(row, config.test_columns)
        assert found["test"] == {"accuracy": 0.9, "auroc": 0.8}
        assert found["privacy"] == {"epsilon": 2.0}
        assert found["time"] == {"round_seconds": 1.0}
