"""Whole runs of every system, without noise, measure the same on every runtime."""

import numpy as np
import pandas as pd
import pytest

from tff_hdp.simulation import experiment
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

HDP = {"privacy": "none", "zones": 3, "clients_per_round": 12, "local_epochs": 2}
FL_TOP = {"num_clients": 40, "clients_per_round": 8, "local_epochs": 2}
QUICK = {
    "hdp_stacked": (HdpConfig, HDP),
}
SLOW = {
    "hdp_single": (HdpConfig, HDP | {"cohort_chunk": 0}),
    "hdp_adam": (HdpConfig, HDP | {"client_optimizer": "adam"}),
    "hfl_dp": (
        HflDpConfig,
        {"noise": "none", "num_clients": 20, "edges": 2, "local_steps": 3},
    ),
    "gfl": (
        GflConfig,
        {"scheme": "none", "servers": 3, "per_round": 3, "batch_size": 5},
    ),
    "gfl_logistic": (
        GflConfig,
        {"task": "gfl_logistic", "scheme": "none", "servers": 3, "per_round": 3},
    ),
    "fl_top": (FlTopConfig, FL_TOP),
    "fl_basic": (FlTopConfig, FL_TOP | {"scheme": "fl_basic"}),
    "fl_cs": (FlTopConfig, FL_TOP | {"scheme": "fl_cs"}),
    "fl_std": (FlTopConfig, FL_TOP | {"scheme": "fl_std"}),
    "udp_hypernet": (
        UdpHypernetConfig,
        {
            "privacy": "none",
            "num_clients": 20,
            "sampling_rate": 0.3,
            "local_steps": 4,
            "descriptor_dim": 4,
            "hidden_width": 8,
        },
    ),
}
# Seconds differ, of course.
NOT_COMPARED = {"round_seconds"}


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
@pytest.mark.usefixtures("every_core")
def test_same_measurements(name, cluster_context, tmp_path):
    config_class, settings = (QUICK | SLOW)[name]
    addresses = tuple(member.address for member in cluster_context.members)
    places = {"native": (), "in_process": (), "cluster": addresses}
    measured = {}
    for runtime, workers in places.items():
        folder = tmp_path / runtime
        config = config_class(
            **{"task": "digits"} | settings,
            rounds=3,
            seed=3,
            runtime=runtime,
            workers=workers,
            out=str(folder),
        )
        experiment.run(config)
        measured[runtime] = pd.read_csv(folder / "metrics.csv")
    expected = measured.pop("native")
    columns = [name for name in expected.columns if name not in NOT_COMPARED]
    assert len(expected) == 3 and len(columns) >= 3
    for runtime, actual in measured.items():
        assert list(actual.columns) == list(expected.columns)
        for column in columns:
            np.testing.assert_allclose(
                actual[column].astype(float),
                expected[column].astype(float),
                rtol=2e-3,
                atol=1e-5,
                err_msg=f"{column} under {runtime}",
            )
