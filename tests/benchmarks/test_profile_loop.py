"""What the loop costs beside its rounds, from seconds that are known."""

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


def test_all_else_is_what_the_clock_has_beyond_the_round():
    """Rounds of 20 ms, tests of 3, every 25 ms by the clock; five rounds to warm up."""
    import profile_loop

    spent = {
        "round": [1.0] * 5 + [0.02] * 4,
        "evaluation": [1.0] * 5 + [0.003] * 4,
        "journal": [1.0] * 5 + [0.001, 0.002, 0.002, 0.1],
        profile_loop._BEGINNINGS: [0.0, 2.0, 4.0, 6.0, 8.0]
        + [10.0 + 0.025 * i for i in range(4)],
    }
    rows = {row["part"]: row for row in profile_loop.medians("digits", spent)}
    assert set(rows) == {"round", "evaluation", "journal", "whole", "all else"}
    found = {part: row["milliseconds"] for part, row in rows.items()}
    assert found["journal"] == pytest.approx(2.0)
    assert found["whole"] == pytest.approx(25.0)
    assert found["all else"] == pytest.approx(5.0)
    assert rows["all else"]["share_of_round"] == pytest.approx(0.25)
    beside = [part for part, row in rows.items() if row["beside_the_next_round"]]
    assert beside == ["evaluation", "journal"]
