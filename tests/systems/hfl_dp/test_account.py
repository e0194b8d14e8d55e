"""HFL-DP's noise put right, and its account against other accountants."""

import dataclasses
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import RoundLedger
from tff_hdp.privacy.divergences import gaussian_delta
from tff_hdp.privacy.plan import MOST_COORDINATES
from tff_hdp.systems.hfl_dp import account as hfl_dp_account
from tff_hdp.systems.hfl_dp import noise as hfl_dp
from tff_hdp.systems.hfl_dp import worth as hfl_dp_table
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, HflDpRound, rounds_of
from tff_hdp.systems.hfl_dp.process import _grid_of_mean

ALL = (25, 13, 12, 12, 12)
FEW = (1, 13, 1, 1, 12)
SETTING = hfl_dp.Setting(
    n=10, N=5, m=1000, C=15.0, eps1=20.0, eps2=25.0, delta=1e-5, t=ALL
)


def rounds(noise, **changes):
    shape = {"n": 10, "N": 5, "C": 15.0, **changes}
    return rounds_of(noise, **shape)


@given(
    epsilon=st.floats(1e-3, 300.0),
    delta=st.sampled_from([1e-12, 1e-5, 0.1]),
)
@example(epsilon=1e-3, delta=0.5)
@example(epsilon=1e-5, delta=0.1)
@settings(max_examples=60, deadline=None)
def test_gaussian_multiplier_inverts_epsilon(epsilon, delta):
    z = hfl_dp.gaussian_multiplier(epsilon, delta)
    assert float(gaussian_delta(epsilon, z)) == pytest.approx(delta, rel=1e-6)


def test_exposures_of_the_papers_run():
    assert hfl_dp.exposures(25, 2) == ALL
    assert hfl_dp.exposures(1, 2) == (1, 1, 1, 1, 1)


@pytest.mark.parametrize("t", [ALL, FEW])
def test_exact_noise_gives_what_was_asked_as_run(t):
    # Of a client with one example, the paper's sensitivity is that of the model.
    setting = replace(SETTING, m=1, t=t)
    noise = hfl_dp.exact_noise(setting)
    table = hfl_dp_table.noise_table(noise, setting, rounds=(13, 12))
    for row in table:
        assert row.epsilon_example <= row.epsilon_stated * (1 + 1e-9)
    # Going down nothing is added where the way up added enough.
    exact = {row.quantity: row.epsilon_example for row in table}
    assert exact["client to edge, edge rounds"] == pytest.approx(20.0)
    if noise.n_e > 0:
        assert exact["edge to clients"] == pytest.approx(20.0)
    if noise.n_c > 0:
        assert exact["cloud to clients"] == pytest.approx(25.0)
    assert (noise.n_e > 0, noise.n_c > 0) == ((False, False) if t == ALL else (True, 0))


def test_theorem_1_is_what_its_table_says_it_is_not():
    setting = replace(SETTING, t=FEW)
    noise = hfl_dp.theorem_1(setting)
    table = hfl_dp_table.noise_table(noise, setting, rounds=(1, 1))
    first = table[0]
    assert first.epsilon_example == pytest.approx(25.44, abs=0.005)
    assert first.epsilon_client > 1e5
    said = hfl_dp_table.warnings(table, m=1000)
    assert any("eps < 1" in w and "used at 20" in w for w in said)
    assert any("25.44, not 20" in w for w in said)
    assert any("1000 times as much" in w for w in said)


def test_loose_noise_is_not_warned_of():
    setting = replace(SETTING, eps1=0.5, eps2=0.5)
    noise = hfl_dp.theorem_1(setting)
    table = hfl_dp_table.noise_table(noise, setting, rounds=(13, 12))
    assert all(row.epsilon_example < row.epsilon_stated for row in table)
    assert len(hfl_dp_table.warnings(table, m=1000)) == 1


@given(
    n=st.integers(1, 40),
    N=st.integers(1, 40),
    m=st.integers(1, 40),
    t=st.tuples(*(st.floats(0.5, 60.0) for _ in range(5))),
    C=st.floats(0.1, 20.0),
    eps=st.tuples(*(st.floats(0.2, 60.0) for _ in range(2))),
    edge_rounds=st.integers(1, 60),
    cloud_rounds=st.integers(1, 60),
)
@settings(max_examples=25, deadline=None)
def test_noises_and_their_table_by_the_papers_formulas(
    n, N, m, t, C, eps, edge_rounds, cloud_rounds
):
    """Section 4.2's, and epsilons by the Gaussian mechanism's own delta."""
    delta, (t1, t2, t3, t4, t5), (eps1, eps2) = 1e-5, t, eps
    asked = {"eps1": eps1, "eps2": eps2, "delta": delta, "t": t}
    setting = hfl_dp.Setting(n=n, N=N, m=m, C=C, **asked)
    found = hfl_dp.theorem_1(setting)
    c = math.sqrt(2 * math.log(1.25 / delta))
    below = t2**2 - t1**2 * n
    above = t5**2 - t4**2 * N - t3**2 * N * n
    assert dataclasses.astuple(found) == pytest.approx(
        (
            c * t1 * 2 * C / (m * eps1),
            c * t3 * 2 * C / (m * eps2),
            c * t4 * 2 * C / (m * n * eps2),
            2 * c * C / (eps1 * m * n) * math.sqrt(max(below, 0.0)),
            2 * c * C / (eps2 * m * n * N) * math.sqrt(max(above, 0.0)),
        ),
        abs=1e-9 * c * C,
    )
    exact = hfl_dp.exact_noise(setting)
    z1, z2 = (hfl_dp.gaussian_multiplier(e, delta) for e in eps)
    below = (z1**2 * t2 / n - z1**2 * t1) / n
    above = (z2**2 * t5 / (n * N) - z2**2 * t4 / n - z2**2 * t3) / (n * N)
    assert dataclasses.astuple(exact) == pytest.approx(
        (
            2 * C * z1 * math.sqrt(t1),
            2 * C * z2 * math.sqrt(t3),
            2 * C * z2 * math.sqrt(t4) / n,
            2 * C * math.sqrt(max(below, 0.0)),
            2 * C * math.sqrt(max(above, 0.0)),
        ),
        abs=1e-6 * C,
    )
    down = found.n_e**2 + found.sigma_u1**2 / n
    from_cloud = found.n_c**2 + found.sigma_e**2 / N + found.sigma_u2**2 / (n * N)
    links = (
        (found.sigma_u1, 1),
        (math.sqrt(down), n),
        (found.sigma_u2, 1),
        (found.sigma_e, n),
        (math.sqrt(from_cloud), n * N),
    )
    # An upload has the one noise or the other, by the kind of its round.
    sent = (edge_rounds, edge_rounds, cloud_rounds, cloud_rounds, cloud_rounds)
    kinds = (edge_rounds, cloud_rounds)
    table = hfl_dp_table.noise_table(found, setting, rounds=kinds)
    for row, (noise, averaged), count, seen in zip(table, links, t, sent, strict=True):
        assert row.noise == pytest.approx(noise)
        for epsilon, times, share in (
            (row.epsilon_example, count, m),
            (row.epsilon_client, seen, 1),
        ):
            z = noise * share * averaged / (2 * C * math.sqrt(times))
            assert float(gaussian_delta(epsilon, z)) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("eps", [1e20, 1e30])
def test_noise_that_is_next_to_nothing_has_an_epsilon_too(eps):
    """A root was looked for in vain, in a run that had begun."""
    setting = replace(SETTING, eps1=eps, eps2=eps, t=FEW)
    noise = hfl_dp.theorem_1(setting)
    table = hfl_dp_table.noise_table(noise, setting, rounds=(1, 1))
    for row in table:
        assert row.epsilon_client > row.epsilon_example > eps
    kinds = [(plan, 1) for plan in rounds(noise)]
    for row in hfl_dp_account.account(kinds, 1e-5):
        assert row.epsilon_pld is None
        assert row.epsilon_rdp is None or row.epsilon_rdp > eps


def test_a_run_without_one_kind_of_round_counts_that_as_once():
    assert hfl_dp.exposures(6, 1) == (6, 1, 6, 6, 6)
    assert hfl_dp.exposures(3, 4) == (3, 3, 1, 1, 1)


def test_what_no_round_sends_costs_a_client_nothing():
    setting = replace(SETTING, t=hfl_dp.exposures(6, 1))
    noise = hfl_dp.theorem_1(setting)
    table = hfl_dp_table.noise_table(noise, setting, rounds=(0, 6))
    spent = [row.epsilon_client > 0 for row in table]
    assert spent == [False, False, True, True, True]


# What each observer meets ----------------------------------------------------------


def test_multipliers_by_simulating_the_links():
    """The variance of what is seen, drawn link by link, over its sensitivity."""
    rng = np.random.default_rng(0)
    n, edges, draws = 4, 3, 200_000
    noise = HflDpNoise(0.5, 0.7, 0.3, 0.2, 0.1)
    edge, cloud = rounds(noise, n=n, N=edges, C=2.0)

    def clients(sigma, silent=0):
        values = rng.normal(0, sigma, (draws, edges, n))
        values[:, 0, :silent] = 0  # noise that the observer knows
        return values.mean(2)

    def check(plan, observer, seen, sensitivity):
        assert plan.noise_multiplier(observer) == pytest.approx(
            seen.std() / sensitivity, rel=0.01
        )

    down = rng.normal(0, 0.2, draws)
    check(edge, "super_node", rng.normal(0, 0.5, draws), 4.0)
    check(edge, "aggregator", clients(0.5)[:, 0] + down, 4.0 / n)
    check(edge, "edge_broadcast", clients(0.5, 1)[:, 0] + down, 4.0 / n)
    up = rng.normal(0, 0.3, (draws, edges))
    down = rng.normal(0, 0.1, draws)
    check(cloud, "super_node", rng.normal(0, 0.7, draws), 4.0)
    check(cloud, "aggregator", clients(0.7)[:, 0] + up[:, 0], 4.0 / n)
    released = (clients(0.7) + up).mean(1) + down
    check(cloud, "released_model", released, 4.0 / (n * edges))
    colluding = (clients(0.7, 1) + up).mean(1) + down
    check(cloud, "edge_broadcast", colluding, 4.0 / (n * edges))
    check(
        edge,
        "fellow_super_node",
        clients(0.5)[:, 0] + rng.normal(0, 0.2, draws),
        4.0 / n,
    )
    fellow = clients(0.7) + up
    fellow[:, 0] = 0  # what it sent itself
    check(cloud, "fellow_super_node", fellow.mean(1) + down, 4.0 / (n * edges))


def test_composition_against_pld_accounting():
    noise = HflDpNoise(60.0, 90.0, 5.0, 3.0, 1.0)
    edge, cloud = rounds(noise)
    found = hfl_dp_account.account([(edge, 13), (cloud, 12)], 1e-5)
    assert [row.observer for row in found] == list(hfl_dp_account.OBSERVERS)
    for row in found:
        pld = None
        for plan, count in ((edge, 13), (cloud, 12)):
            one = privacy_loss_distribution.from_gaussian_mechanism(
                plan.noise_multiplier(row.observer), value_discretization_interval=1e-3
            ).self_compose(count)
            pld = one if pld is None else pld.compose(one)
        assert row.epsilon_pld == pytest.approx(
            pld.get_epsilon_for_delta(1e-5), rel=2e-3
        )
        assert row.epsilon_pld <= row.epsilon_rdp <= 1.2 * row.epsilon_pld


def test_noise_only_on_one_link_leaves_others_without_promise():
    edge, cloud = rounds(HflDpNoise(n_e=1.0, n_c=1.0))
    found = hfl_dp_account.account([(edge, 1), (cloud, 1)], 1e-5)
    sound = {row.observer: row.epsilon_pld is not None for row in found}
    assert sound == {
        "super_node": False,
        "edge_broadcast": True,
        "aggregator": False,
        "released_model": True,
        "fellow_super_node": True,
    }


def test_another_edge_knows_what_it_sent():
    """Of two edges' noise half is left, and the mean still moves by the same."""
    noise = HflDpNoise(sigma_u2=80.0, sigma_e=8.0)
    _, cloud = rounds(noise, n=10, N=2, C=15.0)
    found = {r.observer: r for r in hfl_dp_account.account([(cloud, 20)], 1e-5)}
    public, other = found["released_model"], found["fellow_super_node"]
    assert other.noise_multiplier == pytest.approx(
        public.noise_multiplier / math.sqrt(2)
    )
    z = other.noise_multiplier / math.sqrt(20)
    left = privacy_loss_distribution.from_gaussian_mechanism(z)
    assert other.epsilon_pld == pytest.approx(
        left.get_epsilon_for_delta(1e-5), rel=1e-3
    )
    # The public's epsilon does not hold against it.
    assert left.get_delta_for_epsilon(public.epsilon_pld) > 50 * 1e-5


def test_one_edge_has_no_other():
    edge, cloud = rounds(HflDpNoise(1.0, 1.0, 1.0), n=4, N=1)
    found = hfl_dp_account.account([(edge, 1), (cloud, 1)], 1e-5)
    assert "fellow_super_node" not in {row.observer for row in found}


def test_rows_tell_of_all_rounds_and_show_the_last_kind():
    noise = HflDpNoise(60.0, 90.0, 5.0, 3.0, 1.0)
    edge, cloud = rounds(noise, n=4, N=3)
    found = hfl_dp_account.account([(edge, 3), (cloud, 2)], 1e-5)
    assert [row.level for row in found] == [1, 2, 3, 4, 4]
    for row in found:
        assert row.noise_multiplier == cloud.noise_multiplier(row.observer)
        # Five rounds of 12 clients, 3 edges that hide grids and noise, and a cloud.
        numbers = 5 * (12 + 2 * 3 + 1) * MOST_COORDINATES
        assert f"finite precision, {numbers:.2g} numbers" in row.assumptions


def test_whole_numbers_are_noise_too():
    """Then a graph was of whole numbers and was not built."""
    edge, cloud = rounds(HflDpNoise(1, 2, 3, 0, 0), C=15)
    for plan in (edge, cloud):
        kept = (plan.C, plan.sigma_u, plan.sigma_e, plan.n_down)
        assert set(map(type, kept)) == {float}


def test_a_single_client_has_no_other_of_its_edge():
    edge, _ = rounds(HflDpNoise(1.0, 1.0), n=1, N=1)
    found = {r.observer: r for r in hfl_dp_account.account([(edge, 1)], 1e-5)}
    assert "edge_broadcast" not in found
    assert found["released_model"].epsilon_pld is not None


def test_stated_epsilons_are_eps1_at_the_edge_and_eps2_above():
    noise = hfl_dp.theorem_1(SETTING)
    edge, cloud = rounds(noise, paper_epsilons=(20.0, 25.0))
    found = hfl_dp_account.account([(edge, 13), (cloud, 12)], 1e-5)
    assert [row.epsilon_paper for row in found] == [20.0, 20.0, 25.0, 25.0, None]
    found = hfl_dp_account.account([(edge, 13), (cloud, 12)], 1e-5, ("rdp",))
    assert {(row.epsilon_paper, row.epsilon_pld) for row in found} == {(None, None)}


def test_a_ledger_of_both_rounds_comes_back_from_json():
    edge, cloud = rounds(hfl_dp.theorem_1(SETTING))
    kind = {
        "plan_type": HflDpRound,
        "account": hfl_dp_account.account,
    }
    ledger = RoundLedger(**kind)
    for plan in (edge, cloud, edge):
        ledger.record(plan)
    fresh = RoundLedger(**kind)
    fresh.load_state_dict(ledger.state_dict())
    assert fresh.history == ((edge, 1), (cloud, 1), (edge, 1))
    twice = hfl_dp_account.account([(edge, 2), (cloud, 1)], 1e-5)
    assert [r.epsilon_pld for r in fresh.account(1e-5)] == pytest.approx(
        [r.epsilon_pld for r in twice]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n is 0"),
        ({"n": 2.5}, r"n is 2\.5; allowed: a whole number >= 1"),
        ({"N": 1.5}, r"N is 1\.5; allowed: a whole number >= 1"),
        ({"sigma_u": -1.0}, "sigma_u is -1"),
        ({"C": None}, "C is None; allowed: a bound"),
        ({"C": math.inf}, "C is inf"),
        ({"C": 1e-19}, "C is 1e-19; allowed: at least 1e-12"),
    ],
)
def test_rounds_that_make_no_sense(changes, message):
    edge, _ = rounds(HflDpNoise(1.0))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(edge, **changes)


@pytest.mark.parametrize("name", ["n", "N", "m"])
def test_noise_is_chosen_for_whole_parties(name):
    with pytest.raises(ArgumentError, match=rf"{name} is 2\.5; allowed: a whole"):
        hfl_dp.theorem_1(replace(SETTING, **{name: 2.5}))


@pytest.mark.parametrize("name", ["sigma_u1", "sigma_e", "n_e"])
def test_noise_beyond_float32_is_refused(name):
    for noise in (5e39, 1e37, 1e-34, 5e-39):
        allowed = re.escape(f"is {noise}; allowed: 0 or 1.2e-34..5.32e+36")
        with pytest.raises(ArgumentError, match=allowed):
            rounds(hfl_dp.HflDpNoise(**{name: noise}))


@pytest.mark.parametrize("n", [1, 3, 1000])
def test_the_least_noise_leaves_room_to_hide_its_grid(n):
    """By two of its steps over n, of at least 2^-121: the least noise of float32."""
    edge, _ = rounds(HflDpNoise(2.0**-116 * n), n=n)
    step = 2.0 ** math.floor(math.log2(edge.sigma_u)) / 32
    assert 2.0 * step / n >= 2.0**-121


def test_means_that_float32_rounds_are_hidden():
    coarse = HflDpRound(cloud=False, n=4, N=2, C=1000.0, sigma_u=1e-3)
    assert _grid_of_mean(coarse)[0] > 0.0
    assert _grid_of_mean(dataclasses.replace(coarse, sigma_u=1.0))[0] == 0.0
