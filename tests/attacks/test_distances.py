"""Distances against their definitions, written out in NumPy."""

import numpy as np
import pytest
from scipy import signal, stats

import tasks
from tff_hdp.attacks import distances
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.errors import FileError

SIDES = ((11, 64), (5, 192), (3, 384), (3, 256), (3, 256))


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    a = rng.uniform(size=(3, 32, 32, 1))
    return a, np.clip(a + 0.1 * rng.normal(size=a.shape), 0, 1)


@pytest.fixture
def weights(tmp_path):
    rng, channels, parts = np.random.default_rng(1), 3, {}
    for i, (side, out) in enumerate(SIDES):
        scale = np.sqrt(2 / (side * side * channels))
        parts[f"kernel{i}"] = scale * rng.normal(size=(side, side, channels, out))
        parts[f"bias{i}"] = 0.1 * rng.normal(size=out)
        parts[f"head{i}"] = rng.uniform(size=out)
        channels = out
    path = tmp_path / "lpips.npz"
    np.savez(path, **parts)
    return path, parts


def test_psnr(images):
    a, b = images
    expected = 10 * np.log10(1 / np.mean((a - b) ** 2, axis=(1, 2, 3)))
    np.testing.assert_allclose(distances.psnr(a, b), expected)
    assert distances.psnr(a, a).tolist() == [distances.MAX_PSNR] * 3


def test_ssim_of_like_and_unlike(images):
    a, b = images
    for measure in (distances.ssim, distances.ms_ssim):
        np.testing.assert_allclose(measure(a, a), 1.0, rtol=1e-5)
        assert np.all(measure(a, b) < 1) and np.all(measure(a, 1 - a) < measure(a, b))
    assert np.isnan(distances.ms_ssim(a[:, :8, :8], b[:, :8, :8])).all()
    assert np.all(distances.ssim(a[:, :8, :8], b[:, :8, :8]) < 1)


def by_hand(image, parts, layers):
    """AlexNet's five layers on one image of 64 pixels, by correlation.

    Eight channels of each, of what the layer before is said to have given.
    """
    x = 2 * np.repeat(image, 3, -1) - 1
    x = (x - [-0.030, -0.088, -0.188]) / [0.458, 0.448, 0.450]
    found = []
    for i, (stride, pad) in enumerate(((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))):
        if i in (1, 2):
            n = (x.shape[0] - 3) // 2 + 1
            x = np.array(
                [
                    [
                        x[2 * r : 2 * r + 3, 2 * c : 2 * c + 3].max((0, 1))
                        for c in range(n)
                    ]
                    for r in range(n)
                ]
            )
        x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
        kernel = parts[f"kernel{i}"]
        out = np.stack(
            [
                sum(
                    signal.correlate2d(x[..., c], kernel[..., c, o], "valid")
                    for c in range(x.shape[-1])
                )[::stride, ::stride]
                for o in range(8)
            ],
            -1,
        )
        found.append(np.maximum(out + parts[f"bias{i}"][:8], 0))
        x = layers[i]
    return found


def test_lpips_layers_against_numpy(weights, images):
    """Eight channels of every layer by correlation; the form on what they gave."""
    path, parts = weights
    lpips = distances.Lpips.read(str(path))
    rng = np.random.default_rng(5)
    a = rng.uniform(size=(1, 64, 64, 1))
    b = rng.uniform(size=(1, 64, 64, 1))
    features = [lpips._features(image) for image in (a, b)]
    layers = [np.asarray(layer[0], np.float64) for layer in features[0]]
    for layer, expected in zip(layers, by_hand(a[0], parts, layers), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(layer[..., :8], expected, atol=1e-4 * scale)
    total = 0.0
    for i, (x, y) in enumerate(zip(*features, strict=True)):
        x, y = (z / np.sqrt(np.sum(z**2, -1, keepdims=True)) for z in (x, y))
        total += np.mean(np.sum(parts[f"head{i}"] * (x - y) ** 2, -1))
    assert lpips(a, b)[0] == pytest.approx(total, rel=1e-4)
    small, other = images
    assert np.all(lpips(small, other) > 0)
    np.testing.assert_allclose(lpips(small, small), 0, atol=1e-12)


def test_weights_that_do_not_fit_are_refused(weights, tmp_path):
    _, parts = weights
    with pytest.raises(FileNotFoundError):
        distances.Lpips.read(str(tmp_path / "nothing.npz"))
    np.savez(tmp_path / "whole.npz", **parts)
    whole = (tmp_path / "whole.npz").read_bytes()
    for content in (b"no archive", whole[: len(whole) // 2]):
        (tmp_path / "harmed.npz").write_bytes(content)
        with pytest.raises(FileError, match="is damaged, or no"):
            distances.Lpips.read(str(tmp_path / "harmed.npz"))
    np.savez(tmp_path / "other.npz", **parts | {"kernel2": np.zeros((3, 3, 1, 384))})
    with pytest.raises(FileError, match="kernel2"):
        distances.Lpips.read(str(tmp_path / "other.npz"))
    np.savez(tmp_path / "text.npz", **parts | {"head1": np.full((192,), "a")})
    with pytest.raises(FileError, match="head1 has what is no finite real number"):
        distances.Lpips.read(str(tmp_path / "text.npz"))


def test_task_features(target, images):
    a = np.random.default_rng(2).uniform(size=(3, 8, 8, 1))
    near, far = np.clip(a + 0.02, 0, 1), 1 - a
    distance = distances.task_feature_distance
    # As a process does that is built between making the target and looking at it.
    StackedModel.built_by(tasks.load("digits").build_model)
    np.testing.assert_allclose(distance(target(), a, a), 0, atol=1e-12)
    assert np.all(distance(target(), a, near) < distance(target(), a, far))


def test_a_share_has_an_exact_interval():
    assert distances.proportion([True] * 200) == pytest.approx(
        (1.0, 0.025 ** (1 / 200), 1.0)
    )
    share, low, high = distances.proportion([True] * 3 + [False] * 97)
    assert share == 0.03
    # Three hits or more, and three or fewer, have 2.5 % at the ends.
    assert stats.binom.sf(2, 100, low) == pytest.approx(0.025)
    assert stats.binom.cdf(3, 100, high) == pytest.approx(0.025)


def test_interval_is_students():
    mean, low, high = distances.interval([1.0, 2.0, 3.0])
    assert (mean, low) == pytest.approx((2.0, 2 - 4.302653 / np.sqrt(3)))
    assert high - mean == pytest.approx(mean - low)
