"""Whole runs with secure aggregation: same models, honest accounts, named refusals."""

import functools
import json
import math

import numpy as np
import pandas as pd
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.simulation import experiment
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.run import Hdp
from tff_hdp.systems.secure_notes import notes

NOISY = {"privacy": "hdp", "noise_multiplier": 1.0}


@pytest.fixture(scope="module")
def hdp_config(hdp_config):
    """Short runs without noise in zones of some ten participants."""
    return functools.partial(
        hdp_config,
        **{"privacy": "none", "noise_multiplier": None, "clip_norm": 1.0},
        **{"zones": 3, "clients_per_round": 30, "rounds": 2, "local_epochs": 1},
    )


@pytest.fixture(autouse=True)
def one_trace(traced_once):
    """Of the runs of a plan: who drops out, or is Byzantine, changes no process."""
    traced_once(Hdp)


@pytest.fixture(scope="module")
def run(hdp_config):
    """Runs the settings; returns the result, its metrics and privacy.json."""

    def run_settings(out, **changes):
        result = experiment.run(hdp_config(out, **changes))
        metrics = pd.read_csv(result.path / "metrics.csv")
        return result, metrics, json.loads((result.path / "privacy.json").read_text())

    return run_settings


# Runs ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_metrics(run, tmp_path_factory):
    return run(tmp_path_factory.mktemp("plain"))[1]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"secure_aggregation": "zone"}, marks=pytest.mark.slow),
        {"secure_aggregation": "both", "secure_aggregation_protocol": "bonawitz"},
        pytest.param(
            {
                "secure_aggregation": "both",
                "secure_aggregation_protocol": "graph",
                "cohort_chunk": 0,
            },
            marks=pytest.mark.slow,
        ),
    ],
)
def test_trains_the_same_model(run, tmp_path, plain_metrics, changes):
    _, metrics, privacy = run(tmp_path, **changes)
    same = ["accuracy", "loss", "train_loss", "clients", "update_norm"]
    np.testing.assert_allclose(metrics[same], plain_metrics[same], rtol=1e-4)
    assert metrics["left_out_zones"].sum() == metrics["saturated"].sum() == 0
    real = "secure_aggregation_protocol" in changes
    assert ("secagg_seconds" in metrics) == real
    assert not real or (metrics["secagg_bytes_up"] > 0).all()
    assert any("Secure aggregation: each super-node" in n for n in privacy["notes"])


def test_ledger_and_notes_say_who_sees_what_and_small_zones_are_counted(run, tmp_path):
    """A server that sees the total only learns what everybody gets."""
    changes = {**NOISY, "secure_aggregation": "both", "min_zone_clients": 11}
    result, metrics, privacy = run(tmp_path, **changes)
    rows = {row["observer"]: row for row in privacy["accounts"]}
    assert rows["super_node"]["epsilon_rdp"] is None
    assert rows["aggregator"]["epsilon_pld"] == rows["released_model"]["epsilon_pld"]
    assert rows["aggregator"]["noise_multiplier"] == pytest.approx(math.sqrt(3))
    assert "sum over all zones only" in rows["aggregator"]["assumptions"]
    assert "fewer than 11 participants" in rows["aggregator"]["assumptions"]
    ((accounted, count),) = result.ledger.history
    plan = accounted.plan
    assert count == 2
    assert plan.secure_server and plan.secure_aggregation
    assert plan.encoding.bits == 30
    text = " ".join(privacy["notes"])
    for words in ("honest but curious", "discrete Gaussian", "modulo 2^30", "left out"):
        assert words in text
    # Of 30 expected clients in three zones.
    assert 0 < metrics["left_out_zones"].sum() < 2 * 3


@pytest.mark.parametrize(
    ("protocol", "fault_model", "asked", "signed"),
    [
        ("bonawitz", "byzantine", None, True),
        ("bonawitz", "byzantine", False, False),
        ("bonawitz", "crash", None, False),
        ("bonawitz", "crash", True, True),
        ("intrinsic", "byzantine", None, False),
    ],
)
def test_notes_say_whether_parties_sign(protocol, fault_model, asked, signed):
    config = HdpConfig(
        privacy="hdp",
        noise_multiplier=1.0,
        secure_aggregation="zone",
        secure_aggregation_protocol=protocol,
        elect_super_nodes="rotate",
        election_fault_model=fault_model,
        sign_messages=asked,
    )
    plan = configurations.c1(
        zone_sizes=(10,),
        sampling=PoissonSampling((0.5,)),
        clipping=Clipping(clip_norm=1.0),
        noise_multiplier=1.0,
        **config.secure_plan,
    )
    encoded = with_encoding(plan, size=10)
    note = notes(encoded, protocol, signed=config.parties_sign)[0]
    assert config.parties_sign == signed
    assert ("every message is signed" in note) == signed
    assert ("honest but curious" in note) != signed


@pytest.mark.usefixtures("rdp_alone")
def test_sums_that_byzantine_clients_unmask_protect_nobody(run, tmp_path):
    """The super-node may then see an update under its own noise alone."""
    changes = {
        **NOISY,
        "privacy": "ldp",
        "rounds": 1,
        "secure_aggregation": "zone",
        "secure_aggregation_protocol": "bonawitz",
    }
    _, _, privacy = run(tmp_path, **changes, byzantine=("0.2",))
    rows = {row["observer"]: row for row in privacy["accounts"]}
    # Zones of 66 clients have some ten participants, of whom a fifth can be most.
    assert rows["super_node"]["noise_multiplier"] == 1.0
    assert "that its sums could be unmasked" in " ".join(privacy["notes"])


@pytest.mark.usefixtures("rdp_alone")
def test_resumes_with_drop_outs_and_client_noise(run, tmp_path):
    changes = {
        **NOISY,
        "privacy": "ldp",
        "secure_aggregation": "zone",
        "secure_aggregation_protocol": "bonawitz",
        "drop_rate": 0.2,
    }
    run(tmp_path, **changes, rounds=1)
    result, metrics, privacy = run(tmp_path, **changes)
    assert metrics["round"].tolist() == [1, 2]
    assert metrics["dropped"].sum() > 0
    assert np.isfinite(metrics["loss"]).all()
    own = [row for row in privacy["accounts"] if row["observer"] == "super_node"]
    for row in own:
        # z sqrt(k): a third of 30 expected clients, a fifth of whom drop out.
        assert row["noise_multiplier"] == pytest.approx(math.sqrt(8), rel=0.01)
        assert "sum only" in row["assumptions"]
    assert result.ledger.rounds == 2


# Refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"secure_aggregation_protocol": "graph"},
            "secure_aggregation_protocol is graph; allowed: only with "
            "secure_aggregation=zone",
        ),
        ({"secure_aggregation": "all"}, "secure_aggregation is all; allowed: none"),
        (
            {
                "secure_aggregation": "zone",
                "secure_aggregation_protocol": "graph",
                "elect_super_nodes": "rotate",
            },
            "secure_aggregation_protocol is graph; allowed: bonawitz with sign_mess",
        ),
        (
            {
                "secure_aggregation": "zone",
                "secure_aggregation_protocol": "graph",
                "sign_messages": True,
            },
            "secure_aggregation_protocol is graph; allowed: bonawitz with sign_mess",
        ),
        (
            {"secure_aggregation": "zone", "sign_messages": True},
            "sign_messages is True; .* with secure_aggregation_protocol=bonawitz",
        ),
        (
            {"sign_messages": False},
            "sign_messages is False; .* with secure_aggregation=",
        ),
        ({"secure_bits": 20}, "secure_bits is 20; allowed: only with"),
        ({"min_zone_clients": 3}, "min_zone_clients is 3; allowed: only with"),
        (
            {"secure_aggregation": "server", "min_zone_clients": 3},
            "min_zone_clients is 3; allowed: only with secure_aggregation=zone",
        ),
        (
            {"secure_aggregation": "zone", "min_zone_clients": 1},
            "min_zone_clients is 1; allowed: at least 2",
        ),
        (
            {"secure_aggregation": "zone", "secure_bits": 31},
            "secure_bits is 31; allowed: 16..30",
        ),
        (
            {"secure_aggregation": "zone", "secure_range": -1.0},
            "secure_range is -1.0",
        ),
        (
            {"secure_aggregation": "zone", "privacy": "cdp", "clipping": "adaptive"},
            "clipping is adaptive; .*with secure_aggregation",
        ),
        ({"secure_aggregation": "server", "zones": 1}, "zones is 1; allowed: at"),
        (
            {"secure_aggregation": "server", "zones": None, "zone_sizes": (200,)},
            "zone_sizes is 200; allowed: at least 2 with secure_aggregation=server",
        ),
        ({"secure_aggregation": "server", "levels": (2,)}, "levels is 2; allowed"),
        (
            {"secure_aggregation": "both", "estimator": "bounded"},
            "estimator is bounded; allowed: fixed",
        ),
        (
            {"secure_aggregation": "both", "mixing": "equal"},
            "mixing is equal; allowed: weighted",
        ),
    ],
)
def test_bad_settings_are_named(hdp_config, tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}") as error:
        hdp_config(tmp_path, **NOISY | changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_zone_clients": 500}, "min_zone_clients is 500; allowed: 1"),
        (
            {"privacy": "ldp", "noise_multiplier": 1e-6, "secure_bits": 16},
            "noise_multiplier is 1e-06; .*encoding",
        ),
        (
            {
                **{"secure_aggregation": "server", "secure_bits": 16},
                "noise_multiplier": 1e-4,
            },
            "noise_multiplier is 0.0001; .*encoding",
        ),
        (
            {"sampling": "fixed", "clients_per_round": 3, "min_zone_clients": 3},
            "secure_aggregation is zone; allowed: none or server where a zone or its "
            "fixed cohort has 1 client; or fewer zones, or more clients_per_round",
        ),
        ({"zones": 200}, "secure_aggregation is zone; .* 1 client; or fewer zones"),
    ],
)
def test_what_only_the_task_shows_is_named_too(run, tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        run(tmp_path, **NOISY | {"secure_aggregation": "zone"} | changes)
