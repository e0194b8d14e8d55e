"""Whom an observer is after: the client whom least noise hides from it."""

import pytest

from tff_hdp.attacks import run
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.vantage import most_exposed
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    NoisePlan,
    account,
    configurations,
)

pytestmark = pytest.mark.usefixtures("loaded_once")

# By mode, its shares; with an observer's level, whom it sees without noise.
MIXED = {
    "c3": ({"beta": 0.5}, "1", (1, "hdp")),
    "c5": ({"alpha": 0.5}, "1", (0, "trusting")),
    "c6": ({"beta": 0.5}, "2", (1, "trusting")),
    "c7": ({"alpha": 0.5, "beta": 0.5}, "1", (1, "hdp")),
    "ldp_hdp": ({"alpha": 0.5}, "1", (0, "hdp")),
}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("mode", [*MIXED, "ldp", "hdp", "cdp"])
@pytest.mark.parametrize("sizes", [(2, 2), (2, 4), (4, 2), (2, 6, 2, 4)])
def test_the_victim_has_the_least_noise_of_the_account(mode, sizes, secure):
    """Of all rows against the observer; none at all is least."""
    plan = configurations.CONFIGURATIONS[mode](
        zone_sizes=sizes,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=1.0),
        noise_multiplier=1.3,
        secure_aggregation=secure,
        secure_server=secure,
        **MIXED.get(mode, ({},))[0],
    )
    rows = account(plan, 1, 1e-5, ())
    for observer, level in (
        ("super_node", 1),
        ("aggregator", 2),
        ("released_model", "outside"),
    ):
        of = [row for row in rows if row.observer == observer]
        least = min(row.noise_multiplier or 0.0 for row in of)
        seen = most_exposed(plan, level)
        assert seen.noise_multiplier == pytest.approx(least)
        assert any(
            (row.noise_multiplier or 0.0) == pytest.approx(least)
            and row.client_kind == seen.client_kind
            and row.zone in (None, seen.zone)
            for row in of
        )


@pytest.mark.parametrize("mode", MIXED)
def test_a_row_says_whom_it_is_about(mode):
    """Without noise each of them is found; who noises first was met, with epsilon."""
    shares, level, victim = MIXED[mode]
    config = AttackConfig(privacy=mode, level=level, trials=200, **shares)
    (row,) = run.run(config).rows
    assert (row["zone"], row["client_kind"]) == victim
    assert row["noise_multiplier"] == 0 and row["epsilon"] is None
    assert row["identified"] == row["bound"] == 1


@pytest.mark.parametrize("mode", ["c3", "c5"])
def test_an_image_is_that_of_the_victim(mode):
    """An exact copy of what the client without noise has, not of the first one's."""
    shares, level, _ = MIXED[mode]
    config = AttackConfig(
        attack="analytic", privacy=mode, level=level, victims=3, **shares
    )
    assert run.run(config).rows[0]["psnr_low"] > 60


def test_super_nodes_that_collude_leave_another_victim():
    """What is left of the zone whose super-node has no noise is the server's alone."""
    config = AttackConfig(
        attack="rotation", privacy="c6", beta=0.5, level="outside", trials=100
    )
    alone, told = run.run(config).rows
    assert (alone["zone"], alone["client_kind"]) == (0, "hdp")
    assert (told["zone"], told["client_kind"]) == (1, "trusting")
    nus = [row["noise_multiplier"] for row in (alone, told)]
    assert nus == pytest.approx([2**0.5, 1.0])


def test_zones_without_such_an_observer_have_no_victim():
    config = AttackConfig(
        privacy="ldp", level="1", clients=3, elected=True, secure_aggregation="both"
    )
    assert config.noise_plan(1.0).zone_sizes == (2, 1)
    assert config.vantage(1.0).zone == 0
    weighed = NoisePlan(
        zone_sizes=(2, 2), sampling=FullParticipation(), mixing=(0.0, 1.0)
    )
    assert most_exposed(weighed, 0).zone == 1
    with pytest.raises(ArgumentError, match=r"^elected is True; allowed: False but"):
        most_exposed(weighed, 2, elected=True)
