"""GFL's account: its proof replayed with numbers, and its Laplace losses."""

import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.pld import privacy_loss_distribution
from scipy import integrate, stats

from tff_hdp.errors import ArgumentError
from tff_hdp.noise import add_laplace
from tff_hdp.privacy import RoundLedger
from tff_hdp.privacy.mechanisms import Laplace
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.topology.mixing import metropolis

PLAN = gfl.GflPlan(
    scheme="hybrid", mu=0.1, B=1.0, sigma_g=0.2, dimension=2, clients=50, per_round=10
)
IID = dataclasses.replace(PLAN, scheme="iid")


def rows(plan, iterations, methods=("rdp", "pld", "paper")):
    found = gfl_account.account([(plan, iterations)], 1e-5, methods)
    return {row.observer: row for row in found}


# The claim behind the hybrid account ------------------------------------------


def gradient(w, data, bound):
    """A clipped gradient of a loss that is not convex."""
    h, gamma = data
    g = np.sin(3 * w) + np.tanh(h @ w - gamma) @ h
    return g * min(1.0, bound / np.linalg.norm(g))


def run(psi_noise, data, mixing, *, mu, bound, iterations, messages=None):
    """GFL with given noise; the own copy gets -(1 - a_pp)/a_pp g_p (eq. 24).

    With `messages`, chooses server 0's noise so that it sends those.
    """
    servers, noise = len(mixing), psi_noise.copy()
    w, sent = np.zeros((servers, 2)), []
    for i in range(iterations):
        psi = np.stack(
            [
                w[p] - mu * np.mean([gradient(w[p], d, bound) for d in data[p]], 0)
                for p in range(servers)
            ]
        )
        if messages is not None:
            noise[i, 0] = messages[i][0] - psi[0]
        sent.append(psi + noise[i])
        w = np.zeros_like(w)
        for p in range(servers):
            for m in range(servers):
                own = -(1 - mixing[p, p]) / mixing[p, p]
                g = noise[i, m] if m != p else own * noise[i, p]
                w[p] += mixing[p, m] * (psi[m] + g)
    return np.stack(sent), noise


@pytest.mark.parametrize("seed", range(5))
def test_the_same_messages_from_neighbouring_data_by_shifting_one_servers_noise(seed):
    """Every message of every server can be kept by moving g_0 by at most 2 mu B i."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(5, 0.7, seed=seed)
    graph.add_edges_from((p, p + 1) for p in range(4))
    mixing, iterations = metropolis(graph), 12
    data = [
        [(rng.normal(size=(4, 2)), rng.normal(size=4)) for _ in range(3)]
        for _ in range(5)
    ]
    other = [list(clients) for clients in data]
    other[0][1] = (50 * rng.normal(size=(4, 2)), rng.normal(size=4))
    noise = rng.laplace(size=(iterations, 5, 2))
    setting = {"mu": 0.1, "bound": 0.7, "iterations": iterations}
    sent, _ = run(noise, data, mixing, **setting)
    again, moved = run(noise, other, mixing, **setting, messages=sent)
    np.testing.assert_allclose(again, sent, atol=1e-9)
    shift = np.linalg.norm(moved[:, 0] - noise[:, 0], axis=1)
    bound = 2 * 0.1 * 0.7 * np.arange(1, iterations + 1)
    assert (shift <= bound + 1e-9).all()
    assert shift.max() > 1e-3
    np.testing.assert_array_equal(moved[:, 1:], noise[:, 1:])


def test_hybrid_is_theorem_2_with_its_root_of_m():
    for iterations in (1, 10, 300):
        found = rows(PLAN, iterations)["other_servers"]
        setting = {"i": iterations, "mu": 0.1, "B": 1.0, "sigma_g": 0.2}
        stated = gfl.epsilon(**setting)
        assert found.epsilon_paper == pytest.approx(stated)
        # Composition in Renyi DP saves a little at delta 1e-5, never adds.
        assert found.epsilon_rdp == pytest.approx(stated * math.sqrt(2), rel=1e-2)
        assert found.epsilon_rdp <= stated * math.sqrt(2) * (1 + 1e-6)


def test_hybrid_promises_nothing_to_the_own_server_or_the_centroid():
    found = rows(PLAN, 5)
    for observer in ("super_node", "released_model"):
        row = found[observer]
        assert row.epsilon_rdp is row.epsilon_pld is row.noise_multiplier is None
        assert row.assumptions.startswith("no guarantee")
    assert "cancels" in found["released_model"].assumptions


def test_against_other_servers_a_servers_clients_must_keep_its_model_too():
    """They get it, and with what it sent it tells psi: A s - w = g, and s - g = psi."""
    mixing = metropolis(nx.path_graph(4))
    psi, g = np.random.default_rng(0).normal(size=[2, 4, 2])
    sent = psi + g
    model = mixing[1] @ sent - g[1]
    np.testing.assert_allclose(sent[1] - (mixing[1] @ sent - model), psi[1])
    assert "and its clients keep" in rows(PLAN, 5)["other_servers"].assumptions


# Laplace noise -----------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.01, 0.7, 5.0])
@pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
def test_laplace_divergence_by_integration(ratio, order):
    def integrand(x):
        return math.exp(
            order * stats.laplace.logpdf(x, ratio)
            + (1 - order) * stats.laplace.logpdf(x, 0.0)
        )

    parts = ((-80, 0.0), (0.0, ratio), (ratio, 80 + ratio))
    total = sum(integrate.quad(integrand, *p, epsabs=0, limit=200)[0] for p in parts)
    found = Laplace(ratio).rdp((order,))[0]
    assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-6)


def test_a_shift_of_a_given_norm_diverges_most_where_it_spreads_evenly():
    rng = np.random.default_rng(0)
    orders = (1.01, 1.2, 2.0, 8.0, 300.0)
    for norm in (1e-3, 0.1, 1.0, 30.0):
        most = Laplace(norm, coordinates=6).rdp(orders)
        for _ in range(10):
            shift = rng.exponential(size=6) ** rng.choice([0.1, 1.0, 4.0])
            shift *= norm / np.linalg.norm(shift)
            apart = sum(Laplace(each).rdp(orders) for each in shift)
            assert (apart <= most * (1 + 1e-9)).all()
        even = 6 * Laplace(norm / math.sqrt(6)).rdp(orders)
        np.testing.assert_allclose(even, most)
        # All of the L1 norm on one coordinate, which the L2 norm does not allow.
        assert (most < Laplace(norm * math.sqrt(6)).rdp(orders)).all()


def test_hybrid_is_every_iterations_laplace_noise_composed():
    """Over plans, too: the shift goes on from where the plan before left it."""
    other = dataclasses.replace(PLAN, sigma_g=0.3, B=0.5)
    history = [(PLAN, 300), (other, 20), (PLAN, 270)]
    rounds, shift = [], 0.0
    for plan, count in history:
        for _ in range(count):
            shift += 2 * plan.update_norm
            rounds.append(Laplace(math.sqrt(2) * shift / plan.sigma_g, coordinates=2))
    orders = (1.01, 1.5, 3.0, 40.0)
    each = sum(mechanism.rdp(orders) for mechanism in rounds)
    parts = list(gfl_account._stretches(history))
    np.testing.assert_allclose(sum(part.rdp(orders) for part in parts), each)
    pure = sum(mechanism.pure_epsilon for mechanism in rounds)
    assert sum(part.pure_epsilon for part in parts) == pytest.approx(pure)


def test_an_account_after_every_iteration_looks_at_the_last_ones_alone(monkeypatch):
    looked_at = []

    def counted(ratio, orders):
        looked_at.append(np.size(ratio))
        return laplace_rdp(ratio, orders)

    laplace_rdp = gfl_account.laplace_rdp
    monkeypatch.setattr(gfl_account, "laplace_rdp", counted)
    gfl_account.account([(PLAN, 9_000)], 1e-5)
    looked_at.clear()
    for iterations in range(9_001, 9_011):
        gfl_account.account([(PLAN, iterations)], 1e-5)
    # At most twice each: with the orders, and with those for tiny epsilons.
    assert sum(looked_at) <= 2 * 10 * 256


def test_iid_is_local_and_the_same_for_every_observer():
    found = rows(IID, 30)
    assert len({row.epsilon_rdp for row in found.values()}) == 1
    assert all(row.epsilon_paper is None for row in found.values())


def test_iid_with_everybody_drawn_against_pld():
    """Of the even spread, a PLD is tighter than Renyi DP, and not by much here."""
    plan = dataclasses.replace(IID, per_round=50, sigma_g=8.0)
    ratio = 2 * 0.1 / 8.0
    pld = privacy_loss_distribution.from_laplace_mechanism(
        1 / ratio, value_discretization_interval=1e-4
    )
    exact = pld.self_compose(2 * 40).get_epsilon_for_delta(1e-5)
    found = rows(plan, 40)["released_model"].epsilon_rdp
    assert exact <= found <= 1.15 * exact


def test_being_drawn_less_often_costs_less():
    drawn = [
        rows(dataclasses.replace(IID, per_round=k, sigma_g=4.0), 50)[
            "super_node"
        ].epsilon_rdp
        for k in (5, 25, 50)
    ]
    assert drawn == sorted(drawn)
    assert drawn[0] < 0.6 * drawn[2]


# Plans and ledger ----------------------------------------------------------------


def test_rounding_is_in_the_sensitivity():
    assert PLAN.update_norm > 0.1
    assert PLAN.update_norm == pytest.approx(0.1, rel=1e-6)
    assert IID.update_norm == 0.1


def test_a_ledger_of_iterations_comes_back_from_json():
    ledger = RoundLedger(plan_type=gfl.GflPlan, account=gfl_account.account)
    ledger.record(PLAN, 3)
    ledger.record(PLAN, 4)
    fresh = RoundLedger(plan_type=gfl.GflPlan, account=gfl_account.account)
    fresh.load_state_dict(ledger.state_dict())
    assert fresh.rounds == 7
    assert fresh.account(1e-5) == gfl_account.account([(PLAN, 7)], 1e-5)


def test_sensitivity_goes_on_growing_over_plans():
    halves = gfl_account.account([(PLAN, 3), (PLAN, 4)], 1e-5, ("rdp",))
    assert halves == gfl_account.account([(PLAN, 7)], 1e-5, ("rdp",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "secret"}, "scheme is secret"),
        ({"sigma_g": 0.0}, "sigma_g is 0"),
        ({"sigma_g": math.nan}, "sigma_g is nan"),
        ({"scheme": "none"}, "sigma_g is 0.2; allowed: 0"),
        ({"mu": -1.0}, "mu is -1"),
        ({"B": 1e-19}, "B is 1e-19; allowed: at least 1e-12"),
        ({"per_round": 51}, "per_round is 51; allowed: at most 50"),
        ({"per_round": 1}, "per_round is 1; allowed: at least 2"),
        ({"per_round": 2.5}, "per_round is 2.5; allowed: a whole number"),
        ({"dimension": 2.5}, "dimension is 2.5; allowed: a whole number"),
        ({"clients": True}, "clients is True; allowed: a whole number"),
    ],
)
def test_plans_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PLAN, **changes)


def test_schemes_do_not_mix():
    with pytest.raises(ValueError, match="history is hybrid,iid; allowed"):
        gfl_account.account([(PLAN, 1), (IID, 1)], 1e-5)


def test_noise_that_rounds_clients_steps_away_is_refused():
    assert dataclasses.replace(PLAN, sigma_g=102.4).is_noisy
    too_much = r"sigma_g is 102.5; allowed: at most 102.4"
    with pytest.raises(ArgumentError, match=too_much):
        dataclasses.replace(PLAN, sigma_g=102.5)
    # A model's norm is sqrt(M) times a coordinate's noise: at M = 10^6 a hundredth.
    large = dataclasses.replace(PLAN, dimension=10**6, sigma_g=1.6384)
    with pytest.raises(ArgumentError, match=r"sigma_g is 1.64; allowed: at most 1.638"):
        dataclasses.replace(large, sigma_g=1.64)


def test_a_clients_step_is_not_rounded_up_in_the_model_it_is_added_to():
    """One of half of what float32 rounds to became all of it, twice the account's."""
    norm, step = 0.1, 2.0**-28 * 1.01
    assert np.float32(norm) + np.float32(step) > np.float32(norm) + 1.9 * step
    small = dataclasses.replace(PLAN, mu=step / PLAN.B, sigma_g=step)
    with pytest.raises(ArgumentError, match=r"mu is .* weights of norm 0\.1$"):
        small.check_start(norm)
    # Between adjacent numbers of float32 lie at most 2^-23 of them.
    least = dataclasses.replace(PLAN, mu=norm / 2**14 / PLAN.B, sigma_g=step)
    least.check_start(norm)
    dataclasses.replace(IID, mu=step).check_start(norm)


@pytest.mark.parametrize("plan", [PLAN, IID], ids=["hybrid", "iid"])
def test_noise_that_float32_has_not_is_refused(plan):
    """What would be drawn of it is nothing, and the account would call it noise."""
    tiny = 1e-39
    with pytest.raises(ArgumentError, match="sigma_g is 1e-39; allowed: at least"):
        dataclasses.replace(plan, mu=tiny, sigma_g=tiny)
    least = gfl.LEAST_NOISE
    drawn = np.asarray(add_laplace(tf.zeros([20_000]), least), np.float64)
    assert drawn.std() == pytest.approx(least, rel=0.05)
    assert dataclasses.replace(plan, mu=least, sigma_g=least).is_noisy
    with pytest.raises(ArgumentError, match=r"sigma_g is 1e\+37; allowed: at most"):
        dataclasses.replace(plan, sigma_g=1e37)


def test_every_number_of_every_iteration_is_of_finite_precision():
    plan = gfl.GflPlan(
        scheme="hybrid",
        mu=0.1,
        B=1.0,
        sigma_g=0.2,
        dimension=200,
        clients=50,
        per_round=10,
    )
    row = gfl_account.account([(plan, 7)], 1e-5, ("rdp",))[1]
    assert f"{200 * 7:.2g} numbers" in row.assumptions


def test_theorem_2_is_of_one_plan():
    plan = gfl.GflPlan(
        scheme="hybrid",
        mu=0.1,
        B=1.0,
        sigma_g=0.2,
        dimension=2,
        clients=50,
        per_round=10,
    )
    mixed = [(plan, 7), (dataclasses.replace(plan, sigma_g=2.0), 1)]
    assert gfl_account.account(mixed, 1e-5, ("paper",))[1].epsilon_paper is None
    assert gfl_account.account(mixed[:1], 1e-5, ("paper",))[1].epsilon_paper > 0
