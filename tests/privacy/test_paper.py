import dataclasses
import math

import numpy as np
import pytest
from scipy import integrate, stats

from scripts.papers.hdp import tables
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan, PoissonSampling, account, paper
from tff_hdp.privacy.divergences import gaussian_delta, gaussian_epsilon
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.systems.hfl_dp import noise as hfl_dp
from tff_hdp.systems.udp_hypernet import plan as udp_alg


def test_paper_accountant_reference():
    assert paper.accountant_epsilon(0.2, 1.0, 200, 1e-5) == pytest.approx(24.807369)
    found = paper.accountant_epsilon(1 / 60, 1.54, 200, 1e-5)
    assert found == pytest.approx(1.000551, abs=5e-7)
    assert paper.accountant_epsilon(0.2, 1.0, 0, 1e-5) == 0.0
    with pytest.raises(ValueError, match="q is 0"):
        paper.accountant_epsilon(0, 1.0, 1, 1e-5)


def test_levels_formula_is_the_ldp_one_over_all_leaves():
    assert paper.levels(3.0, (10, 10)) == pytest.approx(paper.ldp(3.0, 100))


@pytest.fixture(scope="module")
def table_iii():
    return tables.table_iii()


def test_table_iii_prints_what_the_paper_printed(table_iii):
    """Printed values are truncated; HDP CIFAR has two digits swapped (7.84)."""
    for row in table_iii:
        if row["data_set"] == "EMNIST" and row["rounds"] == 200:
            continue
        printed = 7.84 if row["printed"] == 7.48 else row["printed"]
        assert math.floor(row["epsilon_paper"] * 100) / 100 == pytest.approx(printed)


def test_table_iii_sound(table_iii):
    rows = {(r["data_set"], r["mode"], r["rounds"]): r for r in table_iii}
    cifar = "CIFAR-10/100"
    assert rows[cifar, "cdp", 200]["released_epsilon_pld"] == pytest.approx(
        21.540954, rel=1e-4
    )
    assert rows[cifar, "hdp", 200]["released_epsilon_pld"] == pytest.approx(
        4.080298, rel=1e-4
    )
    assert rows[cifar, "ldp", 200]["released_epsilon_rdp"] == pytest.approx(
        2.9643, rel=5e-4
    )
    assert rows["EMNIST", "cdp", 101]["released_epsilon_rdp"] == pytest.approx(
        2.523051, rel=1e-4
    )
    assert rows[cifar, "cdp", 200]["aggregator_epsilon_rdp"] is None


def test_table_i_has_every_configuration_and_kind():
    rows = tables.table_i(rounds=10, methods=("rdp", "paper"))
    assert {r["configuration"] for r in rows} == {f"C{i}" for i in range(1, 8)}
    epsilon = paper.accountant_epsilon(0.2, 1.0, 10, 1e-5)
    by_name = {r["configuration"]: r["epsilon_paper"] for r in rows}
    assert by_name["C7"] == pytest.approx(
        epsilon * (1 / math.sqrt(30) + 1 / math.sqrt(3) + 1)
    )
    assert by_name["C3"] == pytest.approx(
        epsilon * (1 / math.sqrt(50) + 1 / math.sqrt(5))
    )


@pytest.mark.parametrize(
    ("noises", "reached"), [((1.0, 2.0), False), ((1.0, 0.0), True), ((1.0, 1.0), True)]
)
def test_zones_whose_noises_differ_have_no_formula(noises, reached):
    """The paper's knows of one epsilon of super-nodes alone."""
    plan = NoisePlan(
        zone_sizes=(10, 10),
        sampling=PoissonSampling((0.2, 0.2)),
        zone_noise_multipliers=noises,
    )
    epsilon = paper.paper_epsilon(plan, 10, "aggregator", "hdp", 0, 1e-5)
    assert (epsilon is not None) == reached


@pytest.mark.parametrize("z", [0.05, 0.5, 1.0, 7.0, 300.0])
def test_gaussian_delta_by_integration(z):
    for e in (0.0, 0.3, 1.0 / z):

        def excess(x, e=e):
            return max(
                stats.norm.pdf(x, 1, z) - math.exp(e) * stats.norm.pdf(x, 0, z), 0.0
            )

        cut = 0.5 + e * z * z
        exact, _ = integrate.quad(excess, cut, cut + 40 * z, limit=400, epsabs=1e-15)
        assert float(gaussian_delta(e, z)) == pytest.approx(exact, rel=1e-6, abs=1e-13)


def test_gaussian_epsilon_inverts_delta():
    for z in (0.01, 0.3, 2.0, 50.0):
        e = gaussian_epsilon(z, 1e-5)
        assert float(gaussian_delta(e, z)) == pytest.approx(1e-5, rel=1e-6)
    assert gaussian_epsilon(1e6, 1e-5) == 0.0


def test_hfl_dp_theorem_1():
    shape = {"n": 10, "N": 5, "m": 1000, "C": 15}
    setting = hfl_dp.Setting(
        **shape, eps1=20, eps2=20, delta=1e-5, t=(25, 13, 12, 12, 12)
    )
    first = hfl_dp.theorem_1(setting)
    assert first.sigma_u1 == pytest.approx(0.181680, abs=5e-7)
    assert first.sigma_u2 == pytest.approx(0.0872065, abs=5e-8)
    assert first.sigma_e == pytest.approx(0.00872065, abs=5e-9)
    assert (first.n_e, first.n_c) == (0.0, 0.0)
    second = hfl_dp.theorem_1(dataclasses.replace(setting, t=(1, 13, 1, 1, 12)))
    assert second.sigma_u1 == pytest.approx(0.00726721, abs=5e-9)
    assert second.sigma_e == pytest.approx(0.000726721, abs=5e-10)
    assert second.n_e == pytest.approx(0.00916360, abs=5e-9)
    assert second.n_c == pytest.approx(0.00137117, abs=5e-9)


def test_hfl_dp_is_worth_something_else():
    shape = {"n": 10, "N": 5, "C": 15, "eps1": 20, "eps2": 20, "delta": 1e-5}

    def worth(t, per_client=False):
        setting = hfl_dp.Setting(**shape, m=1000, t=(t, 13, 1, 1, 12))
        noise = hfl_dp.theorem_1(setting)
        return hfl_dp.true_epsilon(
            sigma=noise.sigma_u1,
            sensitivity=30 if per_client else 30 / 1000,
            exposures=t,
            delta=1e-5,
        )

    assert worth(1) == pytest.approx(25.44, abs=0.005)
    assert worth(25) == pytest.approx(3.51, abs=0.005)
    assert worth(25, per_client=True) > 1e5
    with pytest.raises(ValueError, match="m is 0"):
        hfl_dp.theorem_1(hfl_dp.Setting(**shape, m=0, t=(1,) * 5))


def test_gfl_epsilon():
    setting = {"mu": 0.1, "B": 1.0, "sigma_g": 0.2}
    assert gfl.epsilon(i=1, **setting) == pytest.approx(1.414214, abs=5e-7)
    assert gfl.epsilon(i=10, **setting) == pytest.approx(77.781746, abs=5e-7)
    assert gfl.epsilon(i=10, dimension=2, **setting) == pytest.approx(110.0)


def test_gfl_epsilon_by_summing_laplace_losses():
    """Theorem 2: sum over iterations of (L1 sensitivity) / (Laplace scale)."""
    mu, bound, sigma, dimension = 0.1, 0.7, 0.3, 4
    total = sum(
        math.sqrt(dimension) * 2 * mu * bound * j / (sigma / math.sqrt(2))
        for j in range(1, 9)
    )
    found = gfl.epsilon(i=8, mu=mu, B=bound, sigma_g=sigma, dimension=dimension)
    assert found == pytest.approx(total)


def test_udp_alg():
    for q, z in ((0.05, 2.5), (0.1, 5.0), (0.2, 10.0)):
        plan = udp_alg.plan(users=100, q=q, sigma=0.05, S=0.1)
        assert plan.server_noise_multiplier == pytest.approx(z)
        # The plan's noise on the average is the paper's sigma.
        sigma = plan.server_noise_multiplier * plan.released_sensitivities[0]
        assert sigma == pytest.approx(0.05)
    for q, z, rounds in ((0.1, 5, 1430), (0.2, 10, 1467)):
        assert paper.accountant_epsilon(q, z, rounds, 1e-5) <= 4.0
        assert paper.accountant_epsilon(q, z, rounds + 1, 1e-5) > 4.0


def test_fl_top_dp_shares_and_dropouts():
    plan = fl_top_dp.plan(clients=6000, per_round=100, sigma=1.54)
    rng = np.random.default_rng(0)
    total = rng.normal(0, plan.client_noise_multiplier, (50_000, 75)).sum(axis=1)
    assert total.std() == pytest.approx(1.54 * math.sqrt(1 - 25 / 100), rel=0.02)
    with pytest.raises(ArgumentError, match=r"sizes\[0\] is 0"):
        fl_top_dp.plan(clients=10, per_round=0, sigma=1.0)


def test_fl_top_dp_plan_is_accounted_without_replacement():
    plan = fl_top_dp.plan(clients=6000, per_round=100, sigma=1.54)
    rows = account(plan, 200, 1e-5, ("rdp",))
    released = next(r for r in rows if r.observer == "released_model")
    assert released.noise_multiplier == pytest.approx(1.54 / 2)
    # Replacing a client without Poisson luck costs far more than the printed 1.
    assert 4.0 < released.epsilon_rdp < 6.0


def test_every_formula_has_a_verdict():
    assert all(
        "over-state" in verdict or "under-state" in verdict
        for verdict in tables.VERDICTS.values()
    )
