"""The works themselves: counts against Keras, and the same data everywhere."""

import dataclasses
import math

import numpy as np
import pytest

import tasks

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


@pytest.fixture
def works():
    import works

    return works


def test_parameters_are_those_of_the_papers_models(works):
    assert works.WORKS["A"].num_parameters == 784 * 200 + 200 + 200 * 10 + 10
    assert works.WORKS["B"].num_parameters == 2_156_490


@pytest.mark.parametrize(
    ("name", "model"), [("B", "cnn_large"), ("cnn_small",) * 2, ("lenet",) * 2]
)
def test_images_are_trained_with_the_models_of_the_cifar_tasks(works, name, model):
    work = works.WORKS[name]
    architecture = tasks.TASKS["cifar10"].models[model]
    assert (work.filters, work.units) == (architecture.filters, architecture.units)
    shape = {"input_shape": work.input_shape, "num_classes": work.classes}
    assert work.num_parameters == architecture.num_parameters(**shape)


@pytest.mark.parametrize("name", ["A", "B", "cnn_small", "lenet"])
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


@pytest.fixture
def reference(works):
    """A round of work A in which every weight goes up by 0.01."""
    import measure

    work = works.WORKS["A"]
    weights = [w + 0.01 for w in works.initial_weights(work)]
    norm = 0.01 * math.sqrt(work.num_parameters)
    return measure.Reference(work, weights, norm)


def test_a_wrong_update_fails(works, reference):
    import measure

    start = works.initial_weights(reference.work)

    def gone(step):
        return [w + step for w in start]

    reference.check(gone(0.01 * 1.0005), "right", noisy=False)
    for step, found in (
        (0.01 * 1.002, r"0\.002"),
        (-0.01, "are 2 of"),
        (np.nan, "nan"),
    ):
        with pytest.raises(measure.CheckError, match=found):
            reference.check(gone(step), "wrong", noisy=False)


def test_a_wrong_noise_or_a_wrong_update_under_it_fails(reference):
    import measure

    z = reference.noise_multiplier
    rng = np.random.default_rng(0)
    update = 0.01

    def noised(stddev, off=0.0):
        return [
            w + off * update + rng.normal(0.0, stddev, w.shape)
            for w in reference.weights
        ]

    # z S / k, the standard deviation of the mean of k clients under server noise.
    stddev = z * reference.work.clip_norm / reference.work.clients
    assert stddev == pytest.approx(0.01 * update)
    reference.check(noised(stddev), "right", noisy=True)
    for wrong in (
        noised(stddev * 1.03),
        noised(stddev * 0.97),
        noised(0.0),
        noised(stddev, off=0.003),
    ):
        with pytest.raises(measure.CheckError, match=r"allowed: 0.0098..0.0102"):
            reference.check(wrong, "wrong", noisy=True)
    rough = dataclasses.replace(
        reference, work=dataclasses.replace(reference.work, rounding=0.03)
    )
    rough.check(noised(stddev, off=0.02), "rounded otherwise", noisy=True)
    for wrong in (noised(0.0), noised(stddev, off=0.05)):
        with pytest.raises(measure.CheckError, match="allowed"):
            rough.check(wrong, "wrong", noisy=True)


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
