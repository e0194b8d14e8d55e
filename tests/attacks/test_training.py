"""Attacks on runs of HDP's own process: shadow models, and successive differences."""

import numpy as np
import pytest
from scipy import stats

from tff_hdp.attacks import run
from tff_hdp.attacks.attacker import Attacker
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.lira import area_over_shadows, likelihood_ratios, trained
from tff_hdp.attacks.training import Training
from tff_hdp.errors import ArgumentError

OVERFITTED = {
    "attack": "lira",
    "privacy": "none",
    "level": "outside",
    "clients": 24,
    "victims": 10,
    "rounds": 6,
    "learning_rate": 0.3,
    "local_steps": 5,
}


def test_likelihood_ratios_by_another_library():
    rng = np.random.default_rng(0)
    inside = rng.permuted(np.arange(8)[:, None] % 2 == np.zeros(5), axis=0)
    said = rng.normal(size=(8, 5)) + 2 * inside
    found = likelihood_ratios(said, inside)
    for shadow in range(8):
        x, here = np.delete(said, shadow, 0), np.delete(inside, shadow, 0)
        means = [[x[here[:, c] == k, c].mean() for c in range(5)] for k in (0, 1)]
        spread = np.sqrt(np.mean((x - np.where(here, means[1], means[0])) ** 2))
        out, here = (stats.norm(mean, spread).logpdf(said[shadow]) for mean in means)
        np.testing.assert_allclose(found[shadow], here - out)


@pytest.mark.parametrize(("apart", "shared"), [(1.0, 1.0), (3.0, 1.0)])
def test_interval_of_the_area_is_of_the_area(apart, shared):
    """Shadows whose noise all their clients share: 95 % intervals of 60 attacks.

    Student's over the areas of single shadows held the area in 35 % and in none.
    """
    rng, shadows, clients = np.random.default_rng(0), 32, 24
    found = []
    for _ in range(60):
        inside = rng.permuted(
            np.arange(shadows)[:, None] % 2 == np.zeros(clients), axis=0
        )
        said = rng.normal(size=inside.shape) + apart * inside
        said += shared * rng.normal(size=(shadows, 1))
        found.append(area_over_shadows(said, inside))
        assert found[-1][1] < found[-1][0] < found[-1][2]
    area, low, high = np.transpose(found)
    assert np.mean((low < area.mean()) & (area.mean() < high)) >= 0.88


def test_shadows_find_members_of_an_overfitted_model():
    """Without noise 0.9 was found; scores of noise alone have an area of 0.5.

    Ten shadows of 24 clients: 0.65 is 3.5 standard errors above that, taking a
    shadow's area as one draw of deviation 0.12; training without noise is seeded.
    """
    (row,) = run.run(AttackConfig(**OVERFITTED)).rows
    assert row["auc"] > 0.65 and row["auc_bound"] == 1 and row["epsilon"] is None
    assert row["shadows"] == 10 and row["auc_low"] < row["auc"] < row["auc_high"]


@pytest.mark.parametrize("probability", [1.0, 0.1])
def test_a_round_without_members_has_its_noise(probability):
    """z S over expected clients, whether those that send zero come or nobody does."""
    clients, z, clip_norm, rounds = 4, 1.0, 0.5, 3
    config = AttackConfig(
        attack="lira",
        privacy="cdp",
        level="outside",
        clients=clients,
        noise_multiplier=z,
        clip_norm=str(clip_norm),
        sampling_probability=probability,
        rounds=rounds,
    )
    attacker = Attacker(config)
    vantage = config.vantage(clip_norm)
    training = Training(attacker.target, vantage.plan)
    nobody, rng = np.zeros(clients, bool), np.random.default_rng(0)
    weights = trained(attacker, training, vantage, nobody, rng)
    pairs = zip(weights, attacker.target.weights, strict=True)
    moved = np.concatenate([np.ravel(a - b) for a, b in pairs])
    expected = np.sqrt(rounds) * z * clip_norm / (clients * probability)
    # Six standard errors of a deviation of 2,410 draws.
    assert moved.std() == pytest.approx(expected, rel=6 / np.sqrt(2 * 2410))


def test_lira_is_of_the_released_model():
    for name, changes in (
        ("level", {"level": "1"}),
        ("victims", {"victims": 7}),
        ("clients", {"clients": 400}),
    ):
        with pytest.raises(ArgumentError) as refused:
            run.run(AttackConfig(**OVERFITTED | changes))
        assert refused.value.name == name


@pytest.fixture(scope="module")
def handwriting(tmp_path_factory):
    """A pack of MNIST's form in which students' digits are brighter; needs no data."""
    rng, writers, each = np.random.default_rng(0), 180, 64
    student = np.arange(writers) % 2 == 0
    brightness = np.where(student, 1.0, 0.6).repeat(each)
    digits = rng.uniform(0, 255, size=(10, 28, 28))
    labels = np.tile(np.arange(each) % 10, writers).astype(np.uint8)
    images = digits[labels] * brightness[:, None, None]
    folder = tmp_path_factory.mktemp("data")
    np.savez(
        folder / "mnist_qmnist_writers.npz",
        x_train=images.astype(np.uint8),
        y_train=labels,
        x_test=images[:200].astype(np.uint8),
        y_test=labels[:200],
        writer_train=np.arange(writers).repeat(each),
        hsf_train=np.where(student, 4, 0).repeat(each),
    )
    return str(folder)


def test_kinds_of_writers(handwriting):
    options = {"task": "mnist", "model": "dnn", "data_dir": handwriting}
    seen = AttackConfig(attack="property", privacy="none", level="1", **options)
    assert run.run(seen).rows[0]["auc"] > 0.9
    with pytest.raises(ArgumentError, match="level is 2"):
        run.run(AttackConfig(attack="update_difference", level="2", **options))
    with pytest.raises(ArgumentError, match="victims is 1; allowed: 2 runs"):
        run.run(AttackConfig(attack="update_difference", victims=1, **options))


@pytest.mark.slow
def test_differences_of_models_tell_kinds_of_writers(handwriting):
    options = {"task": "mnist", "model": "dnn", "data_dir": handwriting}
    # With one client besides the observer, the difference is its update.
    alone = options | {"clients": 2, "victims": 6, "rounds": 2}
    differences = AttackConfig(
        attack="update_difference", privacy="none", level="0", **alone
    )
    (row,) = run.run(differences).rows
    assert row["auc"] > 0.85 and row["auc_bound"] == 1
