"""Noise in float32 against noise by all bits, in float64 and in fractions."""

import fractions

import numpy as np
import pytest

from tff_hdp.noise import rounded_by_numpy

PAIRS = 300_000
STEP = np.float64(1.0)


def by_all_bits(high, turn, stddev):
    """Noise of radii by 63 bits and signed turns by 64, as floats."""
    radius = stddev * np.sqrt(-2.0 * np.log((high + 0.5) * 2.0**-63))
    angle = 2.0 * np.pi * turn * 2.0**-64
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def drawn(seed, dtype):
    """First bits and values: both ends of radii, all quarters of a turn, any part."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-(2**31), 2**31, (2, PAIRS)).astype(np.int32)
    ends = np.concatenate([np.arange(5000), 2 ** np.arange(31)]).astype(np.int64)
    codes[0, : len(ends)] = ends - 2**31
    codes[0, -len(ends) :] = 2**31 - 1 - ends
    quarters = np.arange(-2, 2)[:, np.newaxis] * 2**30 + np.arange(-500, 500)
    quarters = np.clip(quarters.reshape(-1), -(2**31), 2**31 - 1)
    codes[1, 10_000 : 10_000 + quarters.size] = quarters
    values = rng.random((2, PAIRS)) * rng.choice([1.0, -30.0, 5000.0], (2, PAIRS))
    values[:, ::7] = 0.0
    values[:, 1::7] = 0.5
    values[:, 2::7] = -1e-9
    return codes, values.astype(dtype)


@pytest.mark.parametrize("stddev", [0.3, 32.0, 63.9, 202.0, 3000.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_settled_round_alike_whatever_bits_follow(stddev, dtype):
    codes, values = drawn(0, dtype)
    found = np.empty_like(values)
    unsettled = rounded_by_numpy.settle(
        values, codes, np.float64(stddev), STEP, out=found
    )
    settled = np.ones(PAIRS, bool)
    settled[unsettled] = False
    whole = np.floor(values.astype(np.float64))
    part = values - whole
    rng = np.random.default_rng(1)
    for radius_bits in (0.0, 1e-9, rng.random(PAIRS), 1.0 - 1e-9):
        for turn_bits in (0.0, rng.random(PAIRS), 1.0):
            high = (codes[0] + 2.0**31 + radius_bits) * 2.0**31
            turn = (codes[1] + turn_bits) * 2.0**32
            exact = whole + np.rint(part + by_all_bits(high, turn, stddev))
            np.testing.assert_array_equal(found[:, settled], exact[:, settled])


@pytest.mark.parametrize("stddev", [32.0, 63.9, 202.0])
def test_errors_are_a_third_of_what_is_allowed_for(stddev):
    """Arithmetic of another processor may be a few last places worse."""
    codes, _ = drawn(2, np.float32)
    x, y, error, room = (np.empty(PAIRS, np.float32) for _ in range(4))
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded_by_numpy._draw(codes, stddev, x, y, error, room)
    # What float32 takes for 0 or 1 has no bound.
    has_bound = np.isfinite(error)
    assert has_bound.mean() > 0.99
    for bits in (1e-9, 0.5, 1.0 - 1e-9):
        high = np.minimum((codes[0] + 2.0**31 + bits) * 2.0**31, 2.0**63 - 1)
        exact = by_all_bits(high, (codes[1] + bits) * 2.0**32, stddev)
        moved = np.abs(np.stack([x, y]) - exact).max(0)
        assert (moved[has_bound] < error[has_bound] / 3).all()


@pytest.mark.parametrize(("stddev", "most"), [(63.9, 0.0025), (202.0, 0.008)])
def test_few_pairs_are_left_open(stddev, most):
    rng = np.random.default_rng(3)
    codes = rng.integers(-(2**31), 2**31, (2, PAIRS)).astype(np.int32)
    values = rng.random((2, PAIRS))
    unsettled = rounded_by_numpy.settle(
        values, codes, np.float64(stddev), STEP, out=np.empty_like(values)
    )
    assert 0 < len(unsettled) / PAIRS < most


@pytest.fixture
def asked(monkeypatch):
    """The words that the sampler took, a draw an entry."""
    rng = np.random.default_rng(4)
    asked = []

    def words(count):
        asked.append(rng.integers(-(2**63), 2**63, int(count)))
        return asked[-1]

    monkeypatch.setattr(rounded_by_numpy, "system_words", words)
    return asked


def bits_of(asked, size, at):
    """The radii and turns that words stand for, those of some pairs by all bits."""
    half = (size + 1) // 2
    codes = asked[0].view(np.int32).reshape(2, half)
    high, turn = (codes[0] + 2.0**31 + 0.5) * 2.0**31, (codes[1] + 0.5) * 2.0**32
    rest = asked[1].reshape(2, -1)
    high[at] = (codes[0, at] + 2.0**31) * 2.0**31 + (rest[0] & (2**31 - 1))
    turn[at] = codes[1, at] * 2.0**32 + (rest[1] & (2**32 - 1))
    return high, turn


@pytest.mark.parametrize("size", [1, 2, 7, 200_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sum_is_what_all_bits_give(asked, size, dtype):
    """Whatever the value's size: exactly, by fractions, then rounded to its type."""
    scales = 10.0 ** np.random.default_rng(5).integers(-9, 12, size)
    values = (scales * np.pi).astype(dtype)
    sigma, step = np.float64(5.3 / 0.125), np.float64(0.125)
    found = rounded_by_numpy.system_rounded_sum(values, sigma, step)

    padded = np.append(values, dtype(0))[: size + size % 2].reshape(2, -1)
    codes = asked[0].view(np.int32).reshape(padded.shape)
    unsettled = rounded_by_numpy.settle(
        padded, codes, sigma, step, out=np.empty_like(padded)
    )
    assert (size < 1000) or len(unsettled) > 10
    noise = by_all_bits(*bits_of(asked, size, unsettled), sigma)
    noise = noise.reshape(-1)[:size]
    exact = [
        round(fractions.Fraction(float(v)) / fractions.Fraction(0.125) + part)
        for v, part in zip(values, map(fractions.Fraction, noise), strict=True)
    ]
    exact = np.array([float(number) * 0.125 for number in exact])
    np.testing.assert_array_equal(found, exact.astype(dtype))


def test_every_bit_that_is_drawn_counts(asked, monkeypatch):
    """Too few to be seen in a sum, and what a radius and a turn of 32 bits lack."""
    found, draw = [], rounded_by_numpy.system_box_muller
    monkeypatch.setattr(
        rounded_by_numpy, "system_box_muller", lambda *w: found.append(w) or draw(*w)
    )
    rounded_by_numpy.system_rounded_sum(np.zeros(100_000), np.float64(40.0), STEP)
    ((high, turn),) = found
    more, further = asked[1].reshape(2, -1)
    assert len(high) > 50
    np.testing.assert_array_equal(high % 2**31, more % 2**31)
    np.testing.assert_array_equal(turn % 2**32, further % 2**32)
    known = {
        (a + 2**31, b) for a, b in asked[0].view(np.int32).reshape(2, -1).T.tolist()
    }
    assert set(zip((high >> 31).tolist(), (turn >> 32).tolist(), strict=True)) <= known


def test_the_sum_is_rounded_to_its_type_once(asked):
    values = np.float32([2.0**24 + 2, -(2.0**30), 3e38, 1e-30])
    found = rounded_by_numpy.system_rounded_sum(values, np.float64(40.0), STEP)
    noise = by_all_bits(*bits_of(asked, 4, np.empty(0, int)), 40.0).reshape(-1)
    exact = np.rint(values.astype(np.float64) + noise)
    np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize("stddev", [1e-44, 1e-42, 1e-39, 1e36, 1e39])
def test_what_leaves_float32_is_drawn_by_float64(stddev):
    """Noise of a step's inverse or a value's steps beyond float32's range."""
    step = np.float64(2.0 ** (np.floor(np.log2(stddev)) - 5))
    values = np.zeros(20_000, np.float64)
    found = rounded_by_numpy.system_rounded_sum(values, stddev / step, step)
    assert found.std() / stddev == pytest.approx(1.0, abs=5 / 40_000**0.5)
    values = np.full(1000, 2e38, np.float32)
    with np.errstate(over="ignore"):
        found = rounded_by_numpy.system_rounded_sum(values, stddev / step, step)
    assert not np.isnan(found).any()
    if stddev < 1:
        np.testing.assert_array_equal(found, values)


def test_no_number_stays_none():
    """A client's NaN is not made a number."""
    values = np.float32([np.nan, np.inf, 1.0, -np.inf])
    with np.errstate(invalid="ignore"):
        found = rounded_by_numpy.system_rounded_sum(values, np.float64(40.0), STEP)
    assert np.isfinite(found).tolist() == [False, False, True, False]
