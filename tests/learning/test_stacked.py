"""Clients trained in stacks against each trained alone."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_hdp.learning.stacked import StackedModel, is_supported
from tff_hdp.learning.stacked_work import chunk_size, train_stack

# In float64 what is left of rounding is far below any mistake.
EXACT = {"rtol": 1e-8, "atol": 1e-10}
SIZES = (9, 4, 1, 12)
ARCHITECTURES = {
    (dataset.name, name): (dataset, architecture)
    for dataset in tasks.TASKS.values()
    for name, architecture in dataset.models.items()
    if name != "cnn_large"
}


RULES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "proximal and mask": {"proximal": 0.5, "mask": True},
    "all": {"momentum": 0.5, "proximal": 0.5, "mask": True},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("which", ARCHITECTURES, ids="-".join)
def test_a_stack_trains_like_each_client_alone(
    float64, make_clients, as_chunk, train_alone, which, rule
):
    """In float64: float32 ties in max pooling make any two paths part ways."""
    dataset, architecture = ARCHITECTURES[which]
    shape, classes = dataset.input_shape, dataset.num_classes
    tf.keras.utils.set_random_seed(0)
    model = architecture.build(
        input_shape=shape, num_classes=classes, max_value=dataset.max_value
    )
    initial = [v.numpy() for v in model.trainable_variables]
    examples, order = make_clients(
        shape, SIZES, high=dataset.max_value + 1, classes=classes
    )
    options = dict(RULES[rule])
    if "mask" in options:
        rng = np.random.default_rng(2)
        options["mask"] = [rng.random(w.shape) < 0.3 for w in initial]
        options["mask"][1] = None
    updates, sums = train_stack(
        StackedModel(model),
        [tf.constant(w) for w in initial],
        as_chunk(examples, order),
        learning_rate=0.05,
        **options,
    )
    for i in range(len(SIZES)):
        alone = train_alone(model, initial, examples[i], order[i], rate=0.05, **options)
        for stacked, expected in zip(updates, alone, strict=True):
            assert stacked.dtype == tf.float64
            np.testing.assert_allclose(stacked[i], expected, **EXACT)
    assert float(sums["examples"]) == 2 * sum(SIZES)


def test_what_the_mask_holds_does_not_move_at_all(make_clients, as_chunk):
    """Not even where the gradient is not a number."""
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    initial = [v.numpy() for v in model.trainable_variables]
    initial[0][0, 0] = np.nan
    mask = [np.zeros(w.shape, bool) for w in initial]
    updates, _ = train_stack(
        StackedModel(model),
        [tf.constant(w) for w in initial],
        as_chunk(*make_clients((2,), SIZES, classes=3)),
        learning_rate=0.1,
        momentum=0.9,
        proximal=0.1,
        mask=mask,
    )
    for update in updates[1:]:
        assert not update.numpy().any()


@pytest.mark.parametrize(
    "layer",
    [
        tf.keras.layers.Dropout(0.5),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Conv2D(4, 3, groups=2),
    ],
)
def test_what_cannot_be_stacked_is_named(layer):
    shape = [8, 8, 2]
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(shape), layer])
    assert not is_supported(model)
    with pytest.raises(ValueError, match=layer.name):
        StackedModel(model)


def test_chunks_fit_cache_and_memory():
    assert chunk_size(1_000) == chunk_size(159_010) == 20
    assert 1 <= chunk_size(2_156_490) < 20
    assert chunk_size(10**9) == 1
