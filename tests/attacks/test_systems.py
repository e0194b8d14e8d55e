"""The neighbour systems: what observers find in rounds of each system's own process."""

import pytest
from scipy import stats

from tff_hdp.attacks import run
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import ArgumentError

TRIALS, CANDIDATES = 16, 5
# By system: of whom its account says "none".
NOTHING_PROMISED = {
    "fl_top": set(),
    "udp_hypernet": {"aggregator", "descriptors"},
    "gfl": {"super_node", "released_model"},
    "hfl_dp": set(),
}


@pytest.mark.parametrize(
    "system",
    [
        "gfl",
        pytest.param("udp_hypernet", marks=pytest.mark.slow),
        pytest.param("fl_top", marks=pytest.mark.slow),
        pytest.param("hfl_dp", marks=pytest.mark.slow),
    ],
)
def test_what_is_found_is_what_the_account_says(system):
    """Of whom nothing is promised, all is found; else no more than the bound allows.

    Under the bound a count above the limit has a probability of 1e-6 or less.
    """
    config = AttackConfig(
        system=system,
        candidates=CANDIDATES,
        victims=TRIALS,
        noise_multiplier=2.0,
        clip_norm="auto" if system in ("gfl", "hfl_dp") else "0.05",
    )
    rows = {row["observer"]: row for row in run.run(config).rows}
    assert {name for name, row in rows.items() if row["epsilon"] is None} == (
        NOTHING_PROMISED[system]
    )
    for name, row in rows.items():
        assert row["trials"] == TRIALS
        if name in NOTHING_PROMISED[system]:
            assert row["identified"] == row["bound"] == 1
        else:
            limit = stats.binom.isf(1e-6, TRIALS, row["bound"])
            assert row["identified"] * TRIALS <= limit
            assert 1 / CANDIDATES < row["bound"] < 1


def test_settings_that_a_system_does_not_take():
    for name, options in (
        ("attack", {"system": "gfl", "attack": "dlg"}),
        ("system", {"system": "other"}),
        ("ratio", {"ratio": 0.0}),
        ("sampling_probability", {"sampling_probability": 0.5}),
    ):
        with pytest.raises(ArgumentError) as refused:
            AttackConfig(**options)
        assert refused.value.name == name
    for name, options in (
        ("clients", {"system": "gfl", "clients": 5}),
        ("local_steps", {"system": "gfl", "local_steps": 2}),
        ("ratio", {"system": "fl_top", "ratio": 1e-9}),
        # Of 359 examples three are the other clients'.
        ("candidates", {"system": "gfl", "candidates": 357}),
    ):
        with pytest.raises(ArgumentError) as refused:
            run.run(AttackConfig(**options))
        assert refused.value.name == name
