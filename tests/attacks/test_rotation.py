"""Who leads its zone again and again, and what it holds besides."""

import functools

import numpy as np
import pytest

from tff_hdp.attacks import figures, run
from tff_hdp.attacks.attacker import Attacker
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.trials import Records
from tff_hdp.privacy.tradeoff import Tradeoff, orthogonal_identification

pytestmark = pytest.mark.usefixtures("loaded_once")
under_ldp = functools.partial(
    AttackConfig,
    **{"attack": "rotation", "privacy": "ldp", "level": "1"},
    secure_aggregation="both",
)


def test_rotation_learns_with_every_aggregate(tmp_path):
    config = under_ldp(
        clients=8,
        rounds=10,
        trials=3000,
    )
    outcome = run.run(config)
    found = [row["identified"] for row in outcome.rows]
    assert [row["aggregates"] for row in outcome.rows] == [1, 2, 5, 10]
    assert found == sorted(found)
    for row in outcome.rows:
        assert row["identified"] <= row["bound"]
        # Five standard errors of a difference of shares of 3,000 trials.
        assert row["identified_others_unknown"] <= row["identified"] + 0.065
    figures.draw(outcome, str(tmp_path / "rotation.png"))


def test_who_leads_once_holds_the_models_of_the_other_rounds(monkeypatch):
    """Canaries, two zones of three: noise of 2 in a led sum, of 5 in a model, z = 1."""
    monkeypatch.setattr(
        Attacker, "records", lambda self, *_: Records(self.clip_norm**2 * np.eye(10))
    )
    config = under_ldp(
        elected=True,
        clients=6,
        rounds=20,
        trials=20_000,
    )
    rows = run.run(config).rows
    alone = rows[:-2]
    assert [row["aggregates"] for row in alone] == [0, 1, 2, 5, 10, 20]
    for row in alone:
        led = row["aggregates"]
        mu = (led / 2 + (20 - led) / 5) ** 0.5
        assert (row["rounds"], row["models"]) == (20, 20 - led)
        assert row["bound"] == pytest.approx(Tradeoff(mu).identification(10))
        expected = orthogonal_identification(mu, 10)
        # Five standard errors.
        assert row["identified"] == pytest.approx(expected, abs=5 * 0.5 / 141)
    names = [row["observer"] for row in rows]
    assert names == [
        "another client",
        *["elected super-node with secure sums"] * 5,
        *["elected super-nodes together, each once"] * 2,
    ]


def test_leaders_together_leave_the_others_of_their_zone():
    """Zones of six, one the victim: m clients are left, each with noise z = 1."""
    config = under_ldp(
        elected=True,
        clients=12,
        rounds=5,
        trials=100,
    )
    rows = run.run(config).rows[-3:]
    assert [row["aggregates"] for row in rows] == [1, 2, 5]
    assert [row["unknown_clients"] for row in rows] == [5, 4, 1]
    nus = [row["noise_multiplier"] for row in rows]
    assert nus == pytest.approx([5**0.5, 2, 1])
