"""The works themselves: counts against Keras, and the same data everywhere."""

import dataclasses
import math
import pathlib
import sys

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_path():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture
def works():
    import works

    return works


def test_parameters_are_those_of_the_papers_models(works):
    assert works.WORKS["A"].num_parameters == 784 * 200 + 200 + 200 * 10 + 10
    assert works.WORKS["B"].num_parameters == 2_156_490


@pytest.mark.parametrize("name", ["A", "B"])
def test_shapes_are_keras_own(works, name):
    from programs.tensorflow_model import build_model

    model = build_model(works.WORKS[name])
    assert [w.shape for w in model.get_weights()] == works.WORKS[name].weight_shapes


def test_flops_by_hand(works):
    # 2 operations a weight and output position; forward, gradients of weights,
    # and, but for the first layer, of inputs.
    examples = 100 * 500
    assert works.WORKS["A"].flops == examples * (2 * 2 * 784 * 200 + 3 * 2 * 2000)
    conv1 = 2 * 2 * (32 * 32) * (5 * 5 * 3 * 32)
    conv2 = 3 * 2 * (16 * 16) * (5 * 5 * 32 * 64)
    dense = 3 * 2 * (8 * 8 * 64 * 512 + 512 * 10)
    assert works.WORKS["B"].flops == 20 * 500 * (conv1 + conv2 + dense)


def test_clients_differ_and_are_the_same_each_time(works):
    work = works.WORKS["A"]
    x, y = works.client_examples(work, 3)
    again, labels = works.client_examples(work, 3)
    other, _ = works.client_examples(work, 4)
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(y, labels)
    assert x.shape == (100, 784)
    assert x.dtype == np.float32
    assert not np.array_equal(x, other)
    assert len(set(y.tolist())) > 3


def test_noise_is_the_gaussian_mechanisms(works):
    work = dataclasses.replace(works.WORKS["A"], clip_norm=3.0, clients=50)
    assert math.isclose(work.noise_stddev(2.0), 2.0 * 3.0 / 50)


def test_a_wrong_update_or_noise_fails(works):
    import measure

    work = works.WORKS["A"]
    start = works.initial_weights(work)
    expected = [w + 0.01 for w in start]
    rng = np.random.default_rng(0)

    class Child:
        def __init__(self, found):
            self.found = found

        def build(self, **options):
            return 0.0

        def round(self):
            return 0.0

        def weights(self):
            return self.found

    off = [w + 0.01 * 1.002 for w in start]
    measure.check_round(Child(expected), "right", work, expected)
    with pytest.raises(measure.CheckError, match=r"off by 0\.002"):
        measure.check_round(Child(off), "wrong", work, expected)
    with pytest.raises(measure.CheckError, match="off by nan"):
        measure.check_round(Child([w * np.nan for w in start]), "nan", work, expected)

    def noisy(stddev):
        return Child([w + rng.normal(0, stddev, w.shape) for w in expected])

    measure.check_noise(noisy(0.5), "right", expected, 0.5)
    with pytest.raises(measure.CheckError, match=r"standard deviation 0\.52"):
        measure.check_noise(noisy(0.525), "wrong", expected, 0.5)


def test_ratios_are_taken_turn_by_turn(works):
    import rows

    row = rows.Row(
        work="A",
        runtime="in_process",
        program="stacked",
        clients=1,
        peak_rss_mb=1.0,
        **rows.summary([1.0, 2.0, 4.0]),
    )
    rows.compare(row, [1.0, 2.0, 4.0], [8.0, 10.0, 12.0])
    assert (row.seconds_median, row.seconds_min, row.seconds_max) == (2.0, 1.0, 4.0)
    assert row.ratio_to_native == 5.0
    assert (row.ratio_to_native_min, row.ratio_to_native_max) == (3.0, 8.0)
    rows.compare(row, [1.0], None)
    assert row.ratio_to_native == 5.0
