import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg.errors import BadInputError
from tff_hdp.protocols.secagg.fixed_point import (
    FixedPoint,
    from_ring,
    ring_dtype,
    to_ring,
)
from tff_hdp.protocols.secagg.messages import pack, unpack

CASES = st.tuples(
    st.floats(1e-6, 1e6), st.integers(12, 32), st.integers(1, 300), st.integers(0, 999)
)


def modular_sum(encoded, bits):
    total = np.zeros(len(encoded[0]), np.uint64)
    for values in encoded:
        total += values
    return (total % 2**bits).astype(encoded[0].dtype)


@settings(deadline=None)
@given(CASES)
def test_sums_are_within_the_error_bound(case):
    clip, bits, k, seed = case
    encoding = FixedPoint.for_sum(clip=clip, bits=bits, max_clients=k)
    values = np.random.default_rng(seed).uniform(-clip, clip, size=(k, 7))
    # The extremes too: everybody at the same edge of the range.
    values[:, 0], values[:, 1] = clip, -clip
    encoded = [encoding.encode(v) for v in values]
    found = encoding.decode(modular_sum(encoded, bits))
    slack = 1e-9 * k * clip
    assert np.abs(found - values.sum(axis=0)).max() <= encoding.max_error(k) + slack
    assert encoded[0].dtype == ring_dtype(bits)


def test_the_step_is_the_finest_that_fits():
    encoding = FixedPoint.for_sum(clip=1.0, bits=16, max_clients=10)
    with pytest.raises(ArgumentError, match=r"bits is 16; .* of 10 clients"):
        FixedPoint(1.0, encoding.step * 0.999, 16, 10)
    # One client more than there is room for does wrap around.
    finer = FixedPoint.for_sum(clip=1.0, bits=16, max_clients=1)
    total = modular_sum([finer.encode(np.array([1.0]))] * 2, 16)
    assert finer.decode(total)[0] < 0


def test_values_are_clipped_and_rounded_to_nearest():
    encoding = FixedPoint(clip=1.0, step=0.25, bits=8, max_clients=3)
    values = np.array([5.0, -5.0, 0.3, -0.3, 0.4])
    found = encoding.decode(encoding.encode(values))
    np.testing.assert_array_equal(found, [1.0, -1.0, 0.25, -0.25, 0.5])
    np.testing.assert_array_equal(
        encoding.encode(np.array([-0.25])), np.array([255], np.uint8)
    )


@settings(deadline=None)
@given(CASES)
def test_rounding_moves_norms_no_more_than_said(case):
    clip, bits, k, seed = case
    encoding = FixedPoint.for_sum(clip=clip, bits=bits, max_clients=k)
    values = np.random.default_rng(seed).normal(size=50)
    values *= clip / np.linalg.norm(values)
    rounded = encoding.decode(encoding.encode(values))
    bound = encoding.rounded_norm(clip, 50) * (1 + 1e-12)
    assert np.linalg.norm(rounded) <= bound


def test_room_for_noise_is_left():
    quiet = FixedPoint.for_sum(clip=1.0, bits=20, max_clients=10)
    noisy = FixedPoint.for_sum(clip=1.0, bits=20, max_clients=10, stddev=2.0, size=1000)
    assert noisy.step > quiet.step
    # P(|N(0, 4)| > room) for any of 1000 coordinates is below 2^-40.
    room = (2**19 - 1) * noisy.step - 10 * (1.0 + noisy.step / 2)
    assert 2 * 1000 * np.exp(-((room / 2.0) ** 2) / 2) <= 2.0**-40 * 1.001


@settings(deadline=None)
@given(st.integers(1, 32), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_ring_representatives(bits, integers):
    integers = np.array(integers, np.int64)
    reduced = (integers + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    np.testing.assert_array_equal(from_ring(to_ring(integers, bits), bits), reduced)


@pytest.mark.parametrize("bits", [4, 8, 9, 16, 17, 24, 25, 32])
def test_packing_uses_whole_bytes_and_loses_nothing(bits):
    values = to_ring(np.random.default_rng(0).integers(0, 2**bits, 1001), bits)
    packed = pack(values, bits)
    assert packed.nbytes == 1001 * ((bits + 7) // 8)
    np.testing.assert_array_equal(unpack(packed, bits), values)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ({"clip": 0.0}, "clip is 0.0"),
        ({"clip": float("inf")}, "clip is inf"),
        ({"bits": 33}, "bits is 33; allowed: 4..32"),
        ({"bits": 3}, "bits is 3"),
        ({"bits": 16.5}, "bits is 16.5; allowed: a whole number"),
        ({"bits": "16"}, "bits is '16'; allowed: a whole number"),
        ({"max_clients": 2.5}, "max_clients is 2.5"),
        ({"max_clients": 0}, "max_clients is 0"),
        ({"bits": 8, "max_clients": 300}, "bits is 8; allowed: enough for sums of 300"),
        ({"stddev": -1.0}, "stddev is -1.0"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_bad_encodings_are_refused(build, message):
    options = {"clip": 1.0, "bits": 16, "max_clients": 4} | build
    with pytest.raises(ArgumentError, match=message):
        FixedPoint.for_sum(**options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0.0, np.nan]), r"values\[1\] is nan"),
        (np.array([-np.inf]), r"values\[0\] is -inf"),
        (np.zeros((2, 2)), r"values have shape \(2, 2\)"),
    ],
)
def test_bad_values_are_refused(values, message):
    encoding = FixedPoint.for_sum(clip=1.0, bits=16, max_clients=4)
    with pytest.raises(BadInputError, match=message):
        encoding.encode(values)


@pytest.mark.parametrize("values", [np.full(3, 1j), np.array(["x"]), [None], [{}]])
def test_what_is_no_real_number_is_refused(values):
    with pytest.raises(BadInputError, match=r"^values(\[0\] is nan| are )"):
        FixedPoint.for_sum(clip=1.0, bits=16, max_clients=4).encode(values)


def test_numbers_of_an_encoding_are_whole_and_bounds_of_numbers():
    encoding = FixedPoint.for_sum(clip=1.0, bits=12.0, max_clients=4.0)
    ones = encoding.encode(np.ones(2))
    np.testing.assert_allclose(encoding.decode(ones), 1.0, atol=encoding.step)
    for bound, name in (
        (lambda: encoding.check_room(5, np.nan, 4), "stddev"),
        (lambda: encoding.check_room(2.5, 0.1, 4), "num_clients"),
        (lambda: encoding.rounded_norm(np.nan, 4), "norm"),
        (lambda: encoding.rounded_norm(-1.0, 4), "norm"),
        (lambda: encoding.rounded_norm(1.0, 0), "size"),
    ):
        with pytest.raises(ArgumentError, match=f"^{name} is "):
            bound()


def test_bad_step_is_refused():
    with pytest.raises(ArgumentError, match="step is 0"):
        FixedPoint(1.0, 0.0, 16, 1)
