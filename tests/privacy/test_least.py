"""Searches that the planner rests on, for functions whose answer is known."""

import math

import pytest

from tff_hdp.privacy.least import aimed, least_below


def searched(value_of, start, wanted, attempts=24, near=1e-4):
    """The argument found, and after how many values."""
    tried, at = [], start
    for attempt in range(attempts):
        tried.append((at, value_of(at)))
        new = aimed(tried, wanted)
        if abs(new / at - 1.0) <= near:
            return new, attempt
        at = new
    return math.nan, attempts


@pytest.mark.parametrize("steepness", [0.3, 0.7, 1.0, 1.7, 2.0, 5.0, 40.0])
@pytest.mark.parametrize("start", [1e-2, 0.9, 1.3, 30.0])
def test_a_power_is_met_however_steep(steepness, start):
    found, _ = searched(lambda x: x**steepness, start, 2.0)
    assert found == pytest.approx(2.0 ** (1.0 / steepness), rel=1e-3)


def test_what_is_nothing_at_first_and_infinite_in_the_end_is_met():
    def value_of(x):
        return max(0.0, x - 5.0) ** 2 if x < 7.0 else math.inf

    for start in (0.1, 6.5, 100.0):
        assert searched(value_of, start, 2.0)[0] == pytest.approx(
            5.0 + math.sqrt(2.0), rel=1e-3
        )


def test_what_contradicts_later_values_is_forgotten():
    """As of plans whose noise is another party's."""
    tried = [(1.0, 3.0), (2.0, 1.0)]
    assert aimed(tried, 2.0) == 4.0
    assert tried == [(2.0, 1.0)]


@pytest.mark.parametrize("needed", [1e-3, 0.1, 30.0, 1e5])
@pytest.mark.parametrize("beside", [0.0, 1.0, 100.0, 1e6])
def test_the_least_noise_is_found_in_few_tries_however_much_is_beside_it(
    beside, needed
):
    """Where epsilon hardly falls with it, hundreds of steps once crept there."""
    tried = []

    def epsilon(variance):
        tried.append(variance)
        return (beside + variance) ** -0.5

    target = (beside + needed) ** -0.5
    found = least_below(epsilon, target)
    assert epsilon(found) == pytest.approx(target, rel=5e-5)
    assert epsilon(found) <= target and len(tried) <= 18
