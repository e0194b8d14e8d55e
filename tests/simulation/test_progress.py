"""What is said of a run while it goes on."""

import dataclasses
import itertools
import logging

import pytest

from tff_hdp.privacy import Clipping, Ledger, PoissonSampling
from tff_hdp.privacy.configurations import CONFIGURATIONS
from tff_hdp.simulation import progress

PLAN = CONFIGURATIONS["cdp"](
    zone_sizes=(20, 20),
    sampling=PoissonSampling((0.2, 0.2)),
    clipping=Clipping(clip_norm=1.0),
    noise_multiplier=1.0,
)


class SlowLedger(Ledger):
    """Whose account by PLD takes a while on a clock of its own."""

    def __init__(self, takes):
        super().__init__()
        self.takes, self.now, self.accounts = takes, 0.0, 0

    def account(self, delta, methods=("rdp", "pld"), observer=None):
        if "pld" in methods:
            self.accounts += 1
            self.now += self.takes
        return super().account(delta, methods, observer)


def logged(config, ledger, caplog, monkeypatch, rounds, seconds=1.0, plan=PLAN):
    """What is logged in rounds of so many seconds each."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: ledger.now)
    with (
        caplog.at_level(logging.INFO, progress.__name__),
        progress.Progress(config, "accuracy", ledger, done=0) as told,
    ):
        for number in range(1, rounds + 1):
            ledger.record(plan)
            ledger.now += seconds
            metrics = progress.epsilons(config, ledger, number)
            told.show(number, {"accuracy": 0.5} | metrics)
    return [record.getMessage() for record in caplog.records]


def shown(*given, **settings):
    """What is logged of every round."""
    lines = logged(*given, **settings)
    return [line for line in lines if line.startswith("round ")]


@pytest.fixture
def config(hdp_config, tmp_path):
    return hdp_config(tmp_path / "run", rounds=90, log_every=1, delta=1e-5)


def test_the_final_tables_epsilon_is_shown_as_often_as_it_is_cheap(
    config, caplog, monkeypatch
):
    ledger = SlowLedger(takes=0.4)
    lines = shown(config, ledger, caplog, monkeypatch, rounds=80)
    told = [i for i, line in enumerate(lines) if ", epsilon " in line]
    # After 10 seconds, 0.2 being the first's guess, and then every 20.
    assert told[0] == 9 and len(told) == 4
    assert all(20 <= b - a <= 21 for a, b in itertools.pairwise(told))
    assert ledger.accounts == len(told)
    for i in told:
        of_then = Ledger()
        of_then.record(PLAN, count=i + 1)
        (row,) = (
            row
            for row in of_then.account(1e-5, methods=("rdp", "pld"))
            if row.observer == "released_model"
        )
        assert row.epsilon_pld < row.epsilon_rdp
        assert lines[i].endswith(
            f"epsilon_rdp {row.epsilon_rdp:.3g}, epsilon {row.epsilon_pld:.3g}"
        )


def test_what_is_dear_is_left_to_the_end(config, caplog, monkeypatch):
    ledger = SlowLedger(takes=5.0)
    lines = shown(config, ledger, caplog, monkeypatch, rounds=90, seconds=0.1)
    assert [i for i, line in enumerate(lines) if ", epsilon " in line] == [89]
    assert ledger.accounts == 1


def test_nothing_is_accounted_for_nobody_who_looks(config, caplog, monkeypatch):
    ledger = SlowLedger(takes=0.1)
    quiet = dataclasses.replace(config, log_every=None, quiet=True)
    assert shown(quiet, ledger, caplog, monkeypatch, rounds=80) == []
    assert ledger.accounts == 0


def test_what_an_epsilon_holds_for_is_said_before_it_and_once(
    config, caplog, monkeypatch
):
    lines = logged(config, SlowLedger(takes=0.1), caplog, monkeypatch, rounds=20)
    assert [line.startswith("round ") for line in lines] == [False] + [True] * 20
    ledger = Ledger()
    ledger.record(PLAN)
    (row,) = (r for r in ledger.account(1e-5) if r.observer == "released_model")
    for part in (row.observer, "delta 1e-05", row.neighbours, row.sampling):
        assert part in lines[0]


def test_terms_are_those_of_every_kind_of_client(config, caplog, monkeypatch):
    """They were of whoever was worst off in the first round that was shown."""
    plan = CONFIGURATIONS["c5"](
        zone_sizes=(20, 20),
        sampling=PoissonSampling((0.2, 0.2)),
        noise_multiplier=1.0,
        alpha=0.5,
    )
    given = (config, SlowLedger(takes=0.1), caplog, monkeypatch)
    terms = logged(*given, rounds=2, plan=plan)[0]
    ledger = Ledger()
    ledger.record(plan)
    rows = [r for r in ledger.account(1e-5) if r.observer == "released_model"]
    assert len({(row.neighbours, row.sampling) for row in rows}) == 2
    for row in rows:
        assert f"{row.neighbours} neighbours; {row.sampling}" in terms


def test_without_noise_there_is_no_epsilon_to_explain(config, caplog, monkeypatch):
    plan = CONFIGURATIONS["none"](
        zone_sizes=(20, 20), sampling=PoissonSampling((0.2, 0.2))
    )
    given = (config, SlowLedger(takes=0.1), caplog, monkeypatch)
    lines = logged(*given, rounds=2, plan=plan)
    assert len(lines) == 2 and all("epsilon_rdp none" in line for line in lines)
