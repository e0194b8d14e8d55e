"""Noise against scipy's distributions, to its tails, and its grid."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from tff_hdp.errors import ArgumentError
from tff_hdp.noise import (
    STEPS,
    add_gaussian,
    add_laplace,
    grid_step,
    normals,
    rounded_by_numpy,
    samplers,
)
from tff_hdp.privacy import composition
from tff_hdp.runtime import in_process


def gaussian(shape, stddev):
    return add_gaussian(tf.zeros(shape), stddev)


def laplace(shape, stddev):
    return add_laplace(tf.zeros(shape), stddev)


def in_numpy(shape, stddev):
    """`gaussian` as the in-process runtime computes it."""
    step = np.float64(grid_step(stddev))
    bits = samplers.system_add_gaussian(
        np.zeros(shape, np.float32), stddev / step, step
    )
    return tf.constant(bits.view(np.float32))


LAWS = [
    (gaussian, stats.norm()),
    (in_numpy, stats.norm()),
    (laplace, stats.laplace(scale=0.5**0.5)),
]
SAMPLES = 4_000_000
# Steps of standard deviations 1 and 3, in them.
STEP_OF_1, STEP_OF_3 = 1 / 32, 1 / 48


def cells(law, edges, step=STEP_OF_1):
    """Probabilities between edges, and beyond them, of a law rounded to the grid."""
    # A number rounds up at half a step.
    edges = np.asarray(edges) - 0.5 * step
    inner = np.diff(law.cdf(edges))
    return np.concatenate([[law.cdf(edges[0])], inner, [law.sf(edges[-1])]])


@pytest.mark.parametrize("stddev", [1.0, 3.0, 0.7, 1e-9, 5e8, 0.9999999999])
def test_steps_are_powers_of_two_and_many_to_a_standard_deviation(stddev):
    step = grid_step(stddev)
    assert np.frexp(step)[0] == 0.5
    assert STEPS / 2 <= stddev / step < STEPS
    exact = tf.constant(stddev, tf.float64)
    assert float(samplers._step(exact)) == step
    assert grid_step(0.0) == 0.0


@pytest.mark.parametrize("stddev", [float("nan"), -1.0, float("inf")])
def test_noise_that_is_no_number_is_refused(stddev):
    with pytest.raises(ArgumentError, match="stddev"):
        add_gaussian(tf.zeros([3]), stddev)
    for add in (add_gaussian, add_laplace):
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
            add(tf.zeros([3]), tf.constant(stddev))


BOTH = pytest.mark.parametrize("add", [add_gaussian, add_laplace])
RANGES = [(tf.float32, 2.0**-121, 2.0**122), (tf.float64, 2.0**-507, 2.0**1018)]


@BOTH
@pytest.mark.parametrize(("dtype", "least", "most"), RANGES)
def test_noise_that_floats_do_not_hold_is_refused(add, dtype, least, most):
    """It came as none, as NaN or as infinities, with an event that called it noise."""
    for stddev in (5e-324, 1e-310, 0.99 * least, 1.01 * most):
        words = f"stddev is {stddev}; allowed: 0, or {least:.3g}..{most:.3g} for "
        with pytest.raises(ArgumentError, match=re.escape(words + dtype.name)):
            add(tf.zeros([3], dtype), stddev)
        with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
            add(tf.zeros([3], dtype), tf.constant(stddev, tf.float64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
        add(tf.zeros([3], dtype), tf.constant(1e-40, tf.float32))


def test_noise_of_each_party_has_the_same_range():
    with pytest.raises(
        ArgumentError, match=r"^each is 1e-40; allowed: 0, or 3\.76e-37"
    ):
        add_gaussian(tf.zeros([3]), 1.0, each=1e-40)


@BOTH
@pytest.mark.parametrize("number", [0.0, -0.0])
def test_no_noise_is_in_range(add, number):
    for stddev in (number, tf.constant(number), tf.constant(number, tf.float64)):
        np.testing.assert_array_equal(add(tf.ones([3]), stddev), np.ones(3))


@BOTH
@pytest.mark.parametrize("runtime", ["graphs", "in process"])
@pytest.mark.parametrize(("dtype", "least", "most"), RANGES)
def test_the_least_and_the_most_noise_are_drawn(add, runtime, dtype, least, most):
    """A standard error is below 1 %. Values are as large as they can be squared."""
    numbers = tff.TensorType(dtype.as_numpy_dtype, [20_000])
    draw, context = add, in_process.create_in_process_context()
    if runtime == "in process":
        draw = tff.tensorflow.computation(lambda v, s: add(v, s), numbers, np.float64)
    largest = np.full([20_000], dtype.max**0.5, dtype.as_numpy_dtype)
    with tff.framework.get_context_stack().install(context):
        for stddev in (np.float64(least), np.float64(most)):
            noise = np.asarray(draw(np.zeros_like(largest), stddev)) / stddev
            assert noise.std() == pytest.approx(1.0, rel=0.07)
            assert np.isfinite(draw(largest, stddev)).all()


def test_no_partys_noise_is_none_or_more_than_that_of_all():
    """Rounded to its grid, the sum's noise would be little or nothing."""
    value = tf.fill([3], 0.3)
    draw = tf.function(lambda own, one: add_gaussian(value, own, each=one))
    none, one = tf.constant(0.0, tf.float64), tf.constant(1.0, tf.float64)
    for each in (0.0, 1.01, 100.0, 1e6):
        with pytest.raises(ArgumentError, match=rf"^each is {each}; allowed: above 0"):
            add_gaussian(value, 1.0, each=each)
        told = tf.constant(each, tf.float64)
        with pytest.raises(tf.errors.InvalidArgumentError, match="each is out of ran"):
            draw(one, told)
        # Of nobody's noise there is none, whatever each one's would be.
        np.testing.assert_array_equal(draw(none, told), value)
    assert (draw(one, one).numpy() != value.numpy()).all()


def test_one_draw_for_several_is_on_the_grid_of_each():
    together = 2.5 * 50**0.5
    noised = add_gaussian(tf.fill([20_000], 0.3), together, each=2.5).numpy()
    steps = noised.astype(np.float64) / grid_step(2.5)
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(np.exp(2j * np.pi * noised / grid_step(together)).mean()) < 0.1
    assert noised.std() == pytest.approx(together, rel=5 / 40_000**0.5)


@pytest.mark.parametrize(("draw", "law"), LAWS)
def test_counts_in_bins_are_those_of_the_law(draw, law):
    sample = draw([SAMPLES], 1.0).numpy().astype(np.float64)
    edges = np.arange(-128, 129, 4) * STEP_OF_1
    found = np.histogram(sample, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    test = stats.chisquare(found, SAMPLES * cells(law, edges))
    # A right sampler fails once in a million runs.
    assert test.pvalue > 1e-6


@pytest.mark.parametrize(("draw", "law"), LAWS)
def test_every_step_near_the_middle_has_its_share(draw, law):
    sample = draw([SAMPLES], 3.0).numpy().astype(np.float64) / 3.0 / STEP_OF_3
    whole = np.rint(sample).astype(int)
    np.testing.assert_allclose(sample, whole, atol=1e-4)
    edges = np.arange(-20, 21) * STEP_OF_3
    found = np.histogram(whole, np.arange(-20, 21) - 0.5)[0]
    expected = SAMPLES * cells(law, edges, STEP_OF_3)[1:-1]
    assert np.abs(found - expected).max() < 5.5 * expected.max() ** 0.5


@pytest.mark.parametrize("draw", [gaussian, in_numpy])
@pytest.mark.parametrize("sigmas", [3.0, 4.0, 4.7])
def test_tails_are_as_heavy_as_they_should(sigmas, draw):
    sample = np.abs(draw([8_000_000], 1.0).numpy())
    bound = np.ceil(sigmas / STEP_OF_1) * STEP_OF_1
    expected = 8e6 * 2 * stats.norm.sf(bound - 0.5 * STEP_OF_1)
    found = int(np.sum(sample >= bound - 1e-6))
    assert stats.poisson.cdf(found, expected) > 1e-6
    assert stats.poisson.sf(found - 1, expected) > 1e-6


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tails_to_seven_sigma():
    """2e10 draws; TensorFlow's own generator never passes 5.68."""
    bounds = np.arange(3.0, 7.1, 0.5)
    counts = np.zeros(len(bounds))
    largest, draws, size = 0.0, 10_000, 2_000_000
    for _ in range(draws):
        sample = np.abs(in_numpy([size], 1.0).numpy())
        far = sample[sample > 2.9]
        largest = max(largest, float(far.max()))
        counts += [np.sum(far >= b - 1e-6) for b in bounds]
    expected = draws * size * 2 * stats.norm.sf(bounds - 0.5 * STEP_OF_1)
    for bound, found, mean in zip(bounds, counts, expected, strict=True):
        assert stats.poisson.cdf(found, mean) > 1e-5, (bound, found, mean)
        assert stats.poisson.sf(found - 1, mean) > 1e-5, (bound, found, mean)
    assert largest > 5.68


IN_GRAPHS = "graphs"
IMPLEMENTATIONS = (IN_GRAPHS, "numpy")


@pytest.fixture
def given_words(monkeypatch):
    """Has the sampler of an implementation find `draws`, a list of words a call."""

    def give(implementation, draws):
        source = iter(draws)
        if implementation == IN_GRAPHS:
            monkeypatch.setattr(
                normals, "secure_words", lambda count: tf.constant(next(source))
            )
            # Not traced, as it would be once for all.
            sampler = normals._standard_normal_bits.python_function
            return lambda count: sampler(tf.constant(count)).numpy().view(np.float64)
        monkeypatch.setattr(normals, "system_words", lambda count: next(source))
        return lambda count: normals.system_normals(count).view(np.float64)

    return give


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_tails_have_no_end(implementation, given_words):
    """Words of zeros lead on: n times 63 bits, then what the next words say."""
    draws = [[0, 0], [0], [0], [0], [0], [0], [5], [5]]
    sample = given_words(implementation, [np.array(d, np.int64) for d in draws])
    bits = 3 * 63 * np.log(2.0) - np.log((5 + 5.5 * 2.0**-63) * 2.0**-63)
    np.testing.assert_allclose(
        sample(2), [np.sqrt(2 * bits), 0.0], rtol=1e-14, atol=1e-12
    )


def exponentials_in_graphs(count):
    return normals.exponential(normals.secure_words(tf.constant(count))).numpy()


def exponentials_in_numpy(count):
    return normals._exponentials(normals.system_words(count))


@pytest.mark.parametrize("draw", [exponentials_in_graphs, exponentials_in_numpy])
def test_tails_lead_on_as_often_as_they_should(draw, monkeypatch):
    """Where 62 of 63 bits are zero always, every second number is drawn again."""
    rng = np.random.default_rng(0)
    calls = []

    def words(count):
        drawn = rng.integers(0, 2**63, int(count))
        calls.append(int(count))
        if len(calls) % 2:  # first bits, then the few's last bits
            drawn &= 1
        return drawn

    monkeypatch.setattr(normals, "system_words", words)
    monkeypatch.setattr(normals, "secure_words", lambda n: tf.constant(words(n)))
    count = 100_000
    turns = draw(count) / np.log(2.0)
    # What is left of a number 1.low between 62 and 63 bits.
    again = np.floor(turns / 63)
    assert stats.kstest(63 - turns + 63 * again, _log2_of_one_to_two).pvalue > 1e-6
    found = np.bincount(again.astype(int), minlength=3)[:3]
    assert (
        stats.chisquare(
            [*found, count - found.sum()], count * np.array([0.5, 0.25, 0.125, 0.125])
        ).pvalue
        > 1e-6
    )


def _log2_of_one_to_two(x):
    """Distribution function of log2(1 + u), u uniform."""
    return np.clip(2.0**x - 1.0, 0.0, 1.0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_arithmetic_is_as_precise_as_the_error_says(
    implementation, given_words, monkeypatch
):
    """Against 80-bit arithmetic, to 20 standard deviations as errors grow with them.

    A number's probability is that between two bounds, which both may have moved.
    """
    count = 200_000
    monkeypatch.setattr(normals, "BLOCK", count)
    rng = np.random.default_rng(0)
    first, low, turn = rng.integers(-(2**63), 2**63, [3, count])
    first[::2] = np.abs(first[::2]) >> 40  # half of them far out in the tail
    exact = np.longdouble
    high = (first & (2**63 - 1)).astype(exact)
    last = ((low & (2**63 - 1)).astype(exact) + 0.5) / exact(2.0**63)
    few = high < 2**45
    last = np.where(few, last, 0.5)
    draws = [np.concatenate([first, turn]), low[few]]
    sample = given_words(implementation, draws)
    # The angle's own rounding moves no bound: it is uniform to 2^-53 of a turn.
    angle = (turn.astype(np.float64) * (np.pi * 2.0**-63)).astype(exact)
    radius = np.sqrt(-2 * np.log((high + last) / exact(2.0**63)))
    wanted = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    found = sample(2 * count)
    assert np.abs(wanted).max() > 8
    further = 20.0 / np.abs(wanted).max()
    moved = np.abs(found - wanted).max() * STEPS * further
    assert 2.0 * moved < normals.RELATIVE_ERROR


def test_numpy_draws_normal_numbers_that_are_independent():
    numbers = normals.system_normals(2 * SAMPLES + 1).view(np.float64)
    assert numbers.shape == (2 * SAMPLES + 1,)
    assert stats.kstest(numbers[:200_000], stats.norm.cdf).pvalue > 1e-6
    pairs = np.abs(numbers[:-1].reshape(2, -1)[:, :-1])
    for first, second in ((numbers[:-1], numbers[1:]), pairs, pairs**2):
        bound = 5 / len(first) ** 0.5
        assert abs(np.corrcoef(first, second)[0, 1]) < bound
    tails = np.abs(numbers) > 4.0
    assert (
        stats.binomtest(int(tails.sum()), len(numbers), 2 * stats.norm.sf(4.0)).pvalue
        > 1e-6
    )


@pytest.mark.parametrize("blocks", [3, 20])
def test_blocks_share_no_noise(blocks):
    """One after the other, and side by side where there are many."""
    size = 2 * rounded_by_numpy.PAIRS
    sample = in_numpy([blocks * size + 1], 1.0).numpy()[:-1]
    found = np.corrcoef(sample.reshape(2 * blocks, -1))
    found = found[np.triu_indices(2 * blocks, 1)]
    assert np.abs(found).max() < 6 / (size // 2) ** 0.5


def test_in_process_numpy_computes_it(monkeypatch):
    context = in_process.create_in_process_context()
    monkeypatch.setattr(
        samplers,
        "system_rounded_sum",
        lambda values, sigma, step: values + sigma * step,
    )
    with tff.framework.get_context_stack().install(context):
        add = tff.tensorflow.computation(
            lambda a, b: add_gaussian([a, b], 2.0),
            [(np.float32, [3]), (np.float64, [])],
        )
        first, second = add(np.float32([0.0, 1.0, 2.0]), np.float64(3.0))
    np.testing.assert_array_equal(first, np.float32([2.0, 3.0, 4.0]))
    assert second == 5.0 and second.dtype == np.float64


def test_other_numbers_are_refused():
    with pytest.raises(TypeError, match="not float16"):
        add_gaussian(tf.zeros([3], tf.float16), 1.0)


@pytest.mark.parametrize("add", [add_gaussian, add_laplace])
def test_sums_lie_on_a_grid_whatever_the_value(add):
    """So the low bits of a noised value say nothing of it (Mironov 2012)."""
    stddev = 0.37
    values = tf.constant([0.0, 1e-3, 1.0 / 3, 17.123456, -5.5e3], tf.float64)
    for _ in range(20):
        steps = add(values, stddev).numpy() / grid_step(stddev)
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)


def test_rounding_moves_no_mean():
    """A value between two grid points is met in the mean."""
    step = grid_step(0.01)
    sample = add_gaussian(tf.fill([SAMPLES], tf.constant(0.3 * step, tf.float64)), 0.01)
    assert abs(sample.numpy().mean() - 0.3 * step) < 5 * 0.01 / SAMPLES**0.5


def test_structures_keep_their_form_and_every_number_its_own_noise():
    values = {"a": tf.zeros([200, 3]), "b": [tf.zeros([]), tf.zeros([0, 4])]}
    noised = add_gaussian(values, 1.0)
    tf.nest.assert_same_structure(noised, values)
    assert noised["a"].shape == (200, 3)
    assert noised["b"][1].shape == (0, 4)
    columns = noised["a"].numpy().T
    assert np.abs(np.corrcoef(columns)[np.triu_indices(3, 1)]).max() < 0.4
    assert not np.array_equal(noised["a"], add_gaussian(values, 1.0)["a"])


def test_no_noise_changes_nothing():
    value = tf.constant([1.0, 1.0 / 3])
    np.testing.assert_array_equal(add_gaussian(value, 0.0), value)


def test_numbers_of_one_draw_are_independent():
    pairs = gaussian([2, SAMPLES // 2], 1.0).numpy()
    radius = np.sqrt((pairs**2).sum(0))
    # Rayleigh: one minus exp(-r^2/2) is uniform.
    assert stats.kstest(radius[:200_000], stats.rayleigh.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(pairs)[0, 1]) < 5 / (SAMPLES // 2) ** 0.5


def test_the_account_knows_of_the_precision():
    assert normals.RELATIVE_ERROR == composition.RELATIVE_ERROR
