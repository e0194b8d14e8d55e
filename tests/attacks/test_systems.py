"""The neighbour systems: what observers find in rounds of each system's own process."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from tff_hdp.attacks import run, systems
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("loaded_once")

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


def test_what_other_servers_of_gfl_find_is_what_the_likelihood_finds(monkeypatch):
    """GFL's own rounds, and Laplace noise that is seeded: by SciPy's density of it.

    Least squares, which suit Gaussian noise, find fewer in the same 300 rounds.
    """
    rng, build, scale = np.random.default_rng(1), systems.SYSTEMS["gfl"], 0.01
    likeliest, nearest = [], []

    def seeded(setting, candidates):
        system, known = build(setting, candidates), []

        def quiet(clients):
            known.append(system.quiet(clients))
            return known[-1]

        def noisy(clients):
            (truth,) = (i for i, one in enumerate(candidates) if one is clients[0])
            each = np.array([it["other_servers"] for it in known], np.float64)
            held = each[truth] + rng.laplace(scale=scale, size=each[truth].shape)
            density = stats.laplace.logpdf(held, each, scale).sum(1)
            likeliest.append(density.argmax() == truth)
            nearest.append(np.square(held - each).sum(1).argmin() == truth)
            return known[truth] | {"other_servers": held}

        return dataclasses.replace(system, round=noisy, quiet=quiet)

    monkeypatch.setitem(systems.SYSTEMS, "gfl", seeded)
    config = AttackConfig(system="gfl", candidates=CANDIDATES, victims=300)
    rows = {row["observer"]: row for row in run.run(config).rows}
    assert rows["other_servers"]["identified"] == pytest.approx(np.mean(likeliest))
    assert np.mean(nearest) + 0.05 < np.mean(likeliest) < 1


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
        ("clip_norm", {"system": "hfl_dp", "clip_norm": "1e-30"}),
        # Of 359 examples three are the other clients'.
        ("candidates", {"system": "gfl", "candidates": 357}),
    ):
        with pytest.raises(ArgumentError) as refused:
            run.run(AttackConfig(**options))
        assert refused.value.name == name


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_a_rate_at_which_every_client_diverges_is_refused(system):
    """The system would leave all of them out, and any candidate be as likely."""
    config = AttackConfig(system=system, learning_rate=1e39, clip_norm="15")
    with pytest.raises(ArgumentError, match=r"^learning_rate is 1e\+39; .* finite"):
        run.run(config)


@pytest.mark.parametrize("rate", [1e-14, 1e17])
def test_a_rate_that_leaves_gfl_no_bound_on_gradients_is_named(rate):
    config = AttackConfig(system="gfl", learning_rate=rate, clip_norm="1")
    said = r"^learning_rate is 1e.*clip_norm / learning_rate at least 1e-12 and at most"
    with pytest.raises(ArgumentError, match=said):
        run.run(config)
