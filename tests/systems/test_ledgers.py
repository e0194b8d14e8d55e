"""What ledgers of all systems have in common."""

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Ledger, NoisePlan, PoissonSampling, RoundLedger
from tff_hdp.systems.fl_top import plan as fl_top
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.hfl_dp import account as hfl_dp_account
from tff_hdp.systems.hfl_dp.plan import HflDpRound
from tff_hdp.systems.udp_hypernet import plan as udp_alg

DELTA = 1e-5


def hdp(**noise):
    return NoisePlan(
        zone_sizes=(20, 20), sampling=PoissonSampling((0.3, 0.3)), size=100, **noise
    )


GFL = {"mu": 0.1, "B": 1.0, "sigma_g": 0.2, "dimension": 2, "per_round": 10}
CASES = {
    "hdp": (
        Ledger,
        hdp(zone_noise_multipliers=(2.0, 3.0)),
        # Clients of a plan that has them carry noise know their own.
        hdp(client_noise_multiplier=1.0, secure_aggregation=True),
    ),
    "hfl_dp": (
        lambda: RoundLedger(plan_type=HflDpRound, account=hfl_dp_account.account),
        HflDpRound(cloud=False, n=4, N=2, C=1.0, sigma_u=1.0),
        HflDpRound(cloud=True, n=4, N=2, C=1.0, sigma_u=1.0),
    ),
    "gfl": (
        lambda: RoundLedger(plan_type=GflPlan, account=gfl_account.account),
        GflPlan(scheme="iid", clients=50, **GFL),
    ),
    "fl_top": (fl_top.FlTopLedger, fl_top.plan(clients=60, per_round=10, sigma=1.0)),
    "udp_alg": (udp_alg.UdpLedger, udp_alg.plan(users=20, q=0.5, sigma=0.2, S=0.1)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_account_against_one_observer_is_its_part_of_the_whole(name):
    make, *plans = CASES[name]
    ledger = make()
    for plan in plans:
        ledger.record(plan, 3)
    rows = ledger.account(DELTA)
    seen = {row.observer for row in rows}
    assert len(seen) > 1
    for observer in seen:
        own = [row for row in rows if row.observer == observer]
        assert ledger.account(DELTA, observer=observer) == own
    # No rows would read as nobody to fear.
    for wrong in ("nobody", "", 5):
        with pytest.raises(ArgumentError, match=r"^observer is .*; allowed: \w+, "):
            ledger.account(DELTA, observer=wrong)


@pytest.mark.parametrize("name", CASES)
def test_a_ledger_goes_on_with_the_rounds_of_another(name):
    make, *plans = CASES[name]
    whole, parts = make(), make()
    for plan in (*plans, plans[0]):
        one = make()
        one.record(plan, 2)
        whole.record(plan, 2)
        parts.extend(one)
    assert parts == whole


@pytest.mark.parametrize("name", CASES)
def test_a_ledger_goes_on_with_nothing_else(name):
    make, *_ = CASES[name]
    with pytest.raises(ArgumentError, match=r"^other is None; allowed: a .*Ledger$"):
        make().extend(None)


def test_a_ledger_does_not_go_on_with_rounds_over_other_zones():
    ledger, other = Ledger(), Ledger()
    ledger.record(hdp(zone_noise_multipliers=(2.0, 3.0)), 2)
    other.record(NoisePlan(zone_sizes=(40,), sampling=PoissonSampling((0.3,))))
    with pytest.raises(ArgumentError, match=r"^plan.zone_sizes is 40; allowed: "):
        ledger.extend(other)
    assert ledger.rounds == 2
