"""The ledger of systems whose noise is no NoisePlan."""

import dataclasses
import json

import pytest

from tff_hdp.privacy import RoundLedger


@dataclasses.dataclass(frozen=True)
class Plan:
    sigma: float
    counts: tuple[int, ...] = ()


def make():
    return RoundLedger(
        plan_type=Plan, account=lambda history, delta, *_: [history, delta]
    )


def test_equal_rounds_are_counted_together_and_come_back_from_json():
    ledger = make()
    for plan in (Plan(1.0, (1, 2)), Plan(1.0, (1, 2)), Plan(2.0), Plan(1.0, (1, 2))):
        ledger.record(plan)
    ledger.record(Plan(3.0), 0)
    assert ledger.rounds == 4
    assert [count for _, count in ledger.history] == [2, 1, 1]
    again = make()
    again.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert again.history == ledger.history
    assert again.account(1e-5)[0] == list(ledger.history)


def test_what_it_refuses_changes_nothing():
    ledger = make()
    ledger.record(Plan(1.0))
    with pytest.raises(TypeError, match="plan is a float; allowed is Plan"):
        ledger.record(1.0)
    with pytest.raises(ValueError, match="count"):
        ledger.record(Plan(1.0), -1)
    with pytest.raises(ValueError, match=r"state\['format'\] is None"):
        ledger.load_state_dict({})
    assert ledger.rounds == 1


def test_no_rounds_no_account():
    with pytest.raises(ValueError, match="0 rounds"):
        make().account(1e-5)
