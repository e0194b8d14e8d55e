"""UDP-Alg's plan with weights, and what its ledger says of the descriptors."""

import json

import numpy as np
import pytest

from tff_hdp.privacy import account, paper
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.setup import build_plan

DELTA = 1e-5


def ledger(rounds, **plan):
    found = udp_alg.UdpLedger()
    found.record(udp_alg.plan(**plan), rounds)
    return found


def test_phi_is_worth_what_the_reference_says(row):
    """100 users, q = .1, sigma = .05, S = .1 reach its eps 4 in 1,430 rounds."""
    rows = ledger(1430, users=100, q=0.1, sigma=0.05, S=0.1).account(DELTA)
    phi = row(rows, "released_model")
    assert phi.noise_multiplier == pytest.approx(5.0)
    assert phi.epsilon_paper == pytest.approx(4.0, abs=1e-3)
    assert phi.epsilon_paper == pytest.approx(
        paper.accountant_epsilon(0.1, 5.0, 1430, DELTA)
    )
    # Both sound accounts are tighter than that of the paper's time.
    assert phi.epsilon_pld < phi.epsilon_rdp < phi.epsilon_paper
    assert (phi.neighbours, phi.delta) == ("add_or_remove", DELTA)


def test_phi_row_is_that_of_the_plan(row):
    plan = udp_alg.plan(users=50, q=0.2, sigma=0.1, S=0.3)
    found = udp_alg.UdpLedger()
    found.record(plan, 10)
    rows = found.account(DELTA, methods=("rdp",))
    assert row(rows, "released_model") == row(
        account(plan, 10, DELTA, methods=("rdp",)), "released_model"
    )


def test_who_sees_a_descriptor_or_is_the_server_is_promised_nothing(row):
    rows = ledger(3, users=20, q=0.5, sigma=0.2, S=0.1).account(DELTA)
    assert [r.observer for r in rows] == ["aggregator", "descriptors", "released_model"]
    for observer in ("aggregator", "descriptors"):
        found = row(rows, observer)
        assert found.noise_multiplier is None
        assert found.epsilon_rdp is None
        assert found.epsilon_pld is None
    phi = row(rows, "released_model")
    assert row(rows, "descriptors").epsilon_paper == phi.epsilon_paper  # its claim
    assert row(rows, "aggregator").epsilon_paper is None
    assert "joint DP" in row(rows, "descriptors").assumptions


def test_descriptors_that_are_never_stepped_are_worth_what_phi_is(row):
    """By post-processing, among neighbours of whom both have the user."""
    plan = udp_alg.plan(users=20, q=0.5, sigma=0.2, S=0.1)
    found = udp_alg.UdpLedger(descriptors_stepped=False)
    found.record(plan, 3)
    rows = found.account(DELTA)
    phi, descriptors = (row(rows, o) for o in ("released_model", "descriptors"))
    assert descriptors.epsilon_pld == phi.epsilon_pld > 0
    assert descriptors.epsilon_rdp == phi.epsilon_rdp
    assert (phi.neighbours, descriptors.neighbours) == ("add_or_remove", "zero_out")
    assert "as they were drawn" in descriptors.assumptions


def test_the_ledger_survives_json():
    first = ledger(7, users=20, q=0.5, sigma=0.2, S=0.1)
    again = udp_alg.UdpLedger()
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert again.account(DELTA, ("rdp",)) == first.account(DELTA, ("rdp",))


def test_weights_enter_through_their_public_sum():
    """Lemma 3.1 with max(w) taken as 1: S / (q W)."""
    plan = udp_alg.plan(users=10, q=0.5, sigma=0.2, S=0.3, W=4.0)
    assert plan.released_sensitivities == pytest.approx((0.3 / (0.5 * 4.0),))
    assert plan.server_noise_multiplier == pytest.approx(0.2 * 0.5 * 4.0 / 0.3)
    noise = plan.server_noise_multiplier * plan.released_sensitivities[0]
    assert noise == pytest.approx(0.2)


def test_a_runs_sigma_is_the_deviation_of_its_average():
    """z = sigma q W / S, W the sum of weights: .3 * .25 * 2.5 / .1."""
    config = UdpHypernetConfig(
        task="digits", num_clients=4, sampling_rate=0.25, sigma=0.3, clip_norm=0.1
    )
    weights = np.array([1.0, 0.5, 0.75, 0.25])
    plan = build_plan(config, weights, None)
    assert plan.server_noise_multiplier == pytest.approx(1.875)
    noise = plan.server_noise_multiplier * plan.released_sensitivities[0]
    assert noise == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"q": 0.0}, "q is 0"), ({"W": -1.0}, "W is -1"), ({"sigma": 0.0}, "sigma is 0")],
)
def test_what_is_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        udp_alg.plan(**{"users": 10, "q": 0.5, "sigma": 0.2, "S": 0.3} | changes)
