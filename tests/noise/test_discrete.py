"""The discrete Gaussian against its probabilities, written down."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import special, stats

from tff_hdp.errors import ArgumentError
from tff_hdp.noise import discrete, discrete_gaussian


# The last has cells of two, and of four, integers.
@pytest.mark.parametrize("sigma", [4.0, 10.0, 33.3, 102.0, 103.0, 300.0])
def test_counts_are_those_of_the_law(sigma):
    size = 400_000
    sample = discrete_gaussian(sigma, size).numpy()
    assert sample.dtype == np.int64
    assert sample.shape == (size,)
    whole = np.arange(-int(8 * sigma), int(8 * sigma) + 1)
    probabilities = np.exp(-(whole**2) / (2 * sigma**2))
    probabilities /= probabilities.sum()
    near = np.abs(whole) <= int(3.5 * sigma)
    expected = size * np.append(probabilities[near], probabilities[~near].sum())
    found = np.array([np.sum(sample == k) for k in whole[near]])
    found = np.append(found, size - found.sum())
    # A right sampler fails once in a million runs.
    assert stats.chisquare(found, expected).pvalue > 1e-6


def test_it_is_not_a_rounded_gaussian():
    """At 4 steps the two differ enough in variance to be told apart."""
    size = 4_000_000
    sample = discrete_gaussian(4.0, size).numpy()
    error = 16 * (2 / size) ** 0.5
    assert abs(sample.var() - 16.0) < 5 * error
    assert abs(sample.var() - (16.0 + 1 / 12)) > 2 * error


@pytest.mark.parametrize("sigma", [2.0**11, 2.0**23.7, 2.0**30])
def test_the_last_bits_are_none_of_the_floating_point_numbers(sigma, monkeypatch):
    """At 2^23 steps all products near a half would round to even steps."""
    size = 100_000
    middle = 1.25
    fixed = lambda count: tf.fill([count], tf.constant(middle, tf.float64))  # noqa: E731
    monkeypatch.setattr(discrete, "standard_normal", fixed)
    sample = discrete_gaussian(sigma, size).numpy()
    width = 2 ** int(np.ceil(np.log2(sigma / (2**11 / 20))))
    cell = width * np.round(sigma * middle / width)
    u = (sample - cell) / width
    assert u.min() >= -0.5
    assert u.max() < 0.5
    assert stats.binomtest(int(np.sum(sample % 2)), size).pvalue > 1e-6
    # Within the cell it is the law itself.
    places = np.arange(-width // 2, width // 2)[:: max(1, width // 4096)] / width
    law = np.exp(-places * (2 * middle * sigma / width) / 2 / (sigma / width) ** 2)
    mean = np.sum(places * law) / np.sum(law)
    assert abs(u.mean() - mean) < 5 * u.std() / size**0.5


def test_nothing_within_20_standard_deviations_is_cut_off():
    """The bound by which what is drawn is kept is one: no probability exceeds 1."""
    for sigma in (4.0, 102.0, 103.0, 150.0, 204.0, 300.0, 1e6):
        width, last, edge = discrete._cells(sigma)
        cells = sigma / width
        k = np.arange(0, int(20 * cells) + 1, dtype=np.float64)
        average = discrete._cell_average(tf.constant(k), cells).numpy()
        at_last = discrete._cell_average(tf.constant([last], tf.float64), cells)
        bound = edge / at_last.numpy()[0]
        # Of a cell's w integers the innermost is f's largest.
        u = np.arange(width) / width - (width // 2) / width
        for v in (u.min(), u[width // 2], u.max()):
            found = np.exp(-v * (k + v / 2) / cells**2) / average
            assert (found <= bound * (1 + 1e-12)).all()
        assert 20 * cells <= 2**11


def cell_average(k, sigma):
    """Of f over k +- 1/2, in units of f(k): a difference of error functions."""

    def beyond(x):
        scale = np.exp((k**2 - x**2) / (2 * sigma**2))
        return scale * special.erfcx(x / (sigma * 2**0.5))

    return sigma * (np.pi / 2) ** 0.5 * (beyond(k - 0.5) - beyond(k + 0.5))


@pytest.mark.parametrize("sigma", [4.0, 9.7, 51.2, 102.4])
def test_the_average_over_a_cell_is_its_integral(sigma):
    k = np.arange(int(14 * sigma) + 1, dtype=np.float64)
    found = discrete._cell_average(tf.constant(k), sigma)
    np.testing.assert_allclose(found, cell_average(k, sigma), rtol=2.0**-41)


@pytest.mark.parametrize(
    ("sigma", "uniform"),
    [(4.0, 0.8), (4.0, 1 - 1e-9), (102.0, 0.9995), (300.0, 0.8), (2.0**15, 0.85)],
)
def test_what_is_kept_makes_a_rounded_gaussian_the_law(sigma, uniform, monkeypatch):
    """Of x in cell k, f(x) over the average there, in units of the most it can be."""
    width = {4.0: 1, 102.0: 1, 300.0: 4, 2.0**15: 512}[sigma]
    cells = sigma / width
    last = int(14 * cells)
    k, u = np.mgrid[-last : last + 1, -(width // 2) : (width + 1) // 2]
    k, u = np.ravel(k), np.ravel(u)
    share = np.exp(-(u / width) * (k + u / width / 2) / cells**2)
    share /= cell_average(np.abs(k).astype(np.float64), cells)
    # The same at every try, and one uniform number for all.
    repeated = {
        "standard_normal": lambda n: np.resize(k / cells, n),
        "secure_words": lambda n: np.resize(u + width // 2, n),
        "_uniform": lambda n: np.full(n, uniform),
    }
    for name, made in repeated.items():
        patched = lambda n, made=made: tf.constant(made(n))  # noqa: E731
        monkeypatch.setattr(discrete, name, patched)
    found = discrete_gaussian(sigma, k.size).numpy()
    kept = np.isin(width * k + u, found)
    assert share[kept].min() >= share[~kept].max() * (1 - 1e-12)
    # Or, where a cell has several integers, at the inner edge of the last.
    most, error = share.max(), 1e-9
    if width > 1:
        most, error = np.exp(10 / cells) / cell_average(20 * cells, cells), 2e-3
    assert share[kept].min() >= uniform * most * (1 - error)
    assert share[~kept].max() <= uniform * most * (1 + error)


def test_large_parameters_and_none():
    sample = discrete_gaussian(2.0**30, 100_000).numpy()
    assert abs(sample.std() / 2.0**30 - 1) < 5 / (2 * 100_000) ** 0.5
    assert discrete_gaussian(10.0, 0).shape == (0,)


@pytest.mark.parametrize("sigma", [3.9, 0.0, -1.0, 2.0**41, float("nan")])
def test_parameters_out_of_range_are_refused(sigma):
    with pytest.raises(ArgumentError, match="sigma is"):
        discrete_gaussian(sigma, 3)
