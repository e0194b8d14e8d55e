"""What reconstructions reach, with and without noise."""

import numpy as np
import pytest

from tff_hdp.attacks import analytic, inversion
from tff_hdp.attacks.distances import psnr
from tff_hdp.attacks.forward import Forward


def test_analytic_without_noise_is_exact(target, victims):
    """Also for several local steps on the one example."""
    for steps in (1, 5):
        images, _, updates = victims(target("dnn", steps), 10)
        found = analytic.dense_inputs(target("dnn", steps), updates)
        assert psnr(images, found.reshape(images.shape)).min() > 60


def test_analytic_under_noise(mnist, victims):
    """Measured once on 50 victims; the floor of guessing the mean image is 11.9."""
    images, _, updates = victims(mnist, 20)
    norm = mnist.median_norm(50)
    shorter = np.minimum(1, norm / np.linalg.norm(updates, axis=1, keepdims=True))
    noise = norm * np.random.default_rng(0).normal(size=updates.shape)
    prior = mnist.features[-2000:].reshape(2000, -1) / 255
    mean, variance = prior.mean(0), prior.var(0)
    floor = psnr(images, np.broadcast_to(mean.reshape(28, 28, 1), images.shape)).mean()
    for nu, expected in ((1e-3, 41.5), (0.1, floor)):
        found = analytic.dense_inputs(
            mnist,
            updates * shorter + nu * noise,
            stddev=nu * norm,
            mean=mean,
            variance=variance,
        )
        found = np.clip(found.reshape(images.shape), 0, 1)
        assert psnr(images, found).mean() == pytest.approx(expected, abs=1.0)


def test_deep_leakage(target, victims):
    images, _, updates = victims(target(), 4)
    labels = analytic.infer_labels(target(), updates)
    found = inversion.deep_leakage(
        Forward(target(), None), updates, labels, evaluations=80, restarts=2
    )
    assert np.median(psnr(images, found[:, 0])) > 35


@pytest.mark.slow
def test_deep_leakage_of_several_local_steps(target, victims):
    """Matching one step to the update of five is worse than unrolling them."""
    images, _, updates = victims(target("dnn", 5, 0.2), 3)
    labels = analytic.infer_labels(target(), updates)
    reached = [
        np.median(
            psnr(
                images,
                inversion.deep_leakage(
                    Forward(target("dnn", steps, 0.2), None),
                    updates,
                    labels,
                    evaluations=60,
                )[:, 0],
            )
        )
        for steps in (5, 1)
    ]
    assert reached[0] > 30 > reached[1]


def test_inverting_gradients_and_features(target, victims):
    images, _, updates = victims(target("cnn"), 2)
    labels = analytic.infer_labels(target("cnn"), updates)
    said = []
    found = inversion.inverting_gradients(
        Forward(target("cnn"), None),
        updates,
        labels,
        steps=60,
        progress=lambda done, of: said.append(done / of),
    )
    # A guess of the mean image has 11.9 here, another client's update gave 12.2.
    assert psnr(images, found[:, 0]).mean() > 17
    assert said == sorted(said) and said[-1] >= 1
    found = inversion.feature_guided(target("cnn"), updates, steps=400)
    assert psnr(images, found[:, 0]).min() > 30


def test_progress_is_for_terminals(capsys):
    said = inversion.bar("dlg")
    said(1, 2)
    said(2, 2)
    assert capsys.readouterr() == ("", "")
