"""The noise of the process with a TFF client for a chunk, against the plan."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.client_work import build_optimizer
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.systems.hdp.clients import stacked_clients
from tff_hdp.systems.hdp.process import build_hdp

pytestmark = pytest.mark.usefixtures("in_process_default")
WIDTH, CLASSES = 40, 50
S, Z, ROUNDS = 0.5, 1.4, 3
# 2,050 coordinates over three rounds: the standard error of a measured standard
# deviation is 1 / sqrt(2 * 6150) = 0.9 %; 5 % is over five of those.
TOLERANCE = 0.05
ZONE_SIZES = (5, 3, 4)
CHUNKS = ((0, 0, 0), (0, 2, 2))  # zones of every chunk's clients


def dense_model():
    layers = [tf.keras.layers.InputLayer([WIDTH]), tf.keras.layers.Dense(CLASSES)]
    return tf.keras.Sequential(layers)


def convolutional_model():
    """As many weights, 2,050, trained client by client."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer([WIDTH]),
            layers.Reshape([1, 1, WIDTH]),
            layers.Conv2D(CLASSES, 1),
            layers.Flatten(),
        ]
    )


def noise_of(plan, build_model, epochs, make_clients, as_chunk):
    """What moves the model at rate 0, [rounds, coordinates].

    With one epoch a dense model's weights are trained as they are; with two, in
    the span of the examples.
    """
    data, placed = [], [0] * len(ZONE_SIZES)
    for zones in CHUNKS:
        examples, orders = make_clients(
            (WIDTH,), [4] * len(zones), classes=CLASSES, epochs=epochs
        )
        chunk = as_chunk(examples, orders, zone=zones)
        carries = []
        for zone in zones:
            carries.append(placed[zone] < plan.noising_clients[zone])
            placed[zone] += 1
        chunk["carries_noise"] = tf.constant(carries)
        data.append(tf.data.Dataset.from_tensors(chunk))
    process = build_hdp(
        clients=stacked_clients(
            build_model=build_model,
            data_type=chunk_type((WIDTH,), np.uint8),
            client_learning_rate=0.0,
        ),
        plan=plan,
        server_optimizer=build_optimizer("sgd", 1.0),
    )
    state = process.initialize()
    steps = []
    for _ in range(ROUNDS):
        before = process.get_model_weights(state).trainable
        state = process.next(state, data).state
        after = process.get_model_weights(state).trainable
        pairs = zip(before, after, strict=True)
        steps.append(np.concatenate([np.ravel(b - a) for a, b in pairs]))
    return np.stack(steps)


@pytest.mark.parametrize(
    ("config", "shares", "build_model", "epochs"),
    [
        ("c1", {}, convolutional_model, 1),
        ("c7", {"alpha": 1 / 3, "beta": 1 / 3}, dense_model, 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("c1", {}, dense_model, 2),
                ("c2", {}, dense_model, 2),
                ("c2", {}, dense_model, 1),
                ("c2", {}, convolutional_model, 1),
                ("c3", {"beta": 1 / 3}, dense_model, 2),
                ("c4", {}, dense_model, 2),
                ("c5", {"alpha": 0.5}, dense_model, 1),
                ("c6", {"beta": 2 / 3}, dense_model, 2),
            )
        ),
    ],
)
def test_variances_add_as_the_plan_says(
    make_clients, as_chunk, config, shares, build_model, epochs
):
    """Unequal zones, a chunk of one and one of several, a zone without clients."""
    plan = configurations.CONFIGURATIONS[config](
        zone_sizes=ZONE_SIZES,
        sampling=PoissonSampling((0.5,) * 3),
        noise_multiplier=Z,
        clipping=Clipping(clip_norm=S),
        **shares,
    )
    noise = noise_of(plan, build_model, epochs, make_clients, as_chunk)
    present = np.bincount(np.concatenate(CHUNKS), minlength=len(ZONE_SIZES))
    noising = np.minimum(present, plan.noising_clients)
    # A client's noise is divided by the denominators of all zones together.
    own = S / (0.5 * sum(ZONE_SIZES))
    released = np.array(plan.released_sensitivities)
    variance = (noising * (plan.client_noise_multiplier * own) ** 2).sum()
    variance += ((np.array(plan.zone_noise_multipliers) * released) ** 2).sum()
    variance += (plan.server_noise_multiplier * released.max()) ** 2
    assert noise.std() == pytest.approx(math.sqrt(variance), rel=TOLERANCE)
    assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(noise.size)
    correlation = np.corrcoef(noise)[np.triu_indices(ROUNDS, 1)]
    assert np.abs(correlation).max() < 5 / math.sqrt(noise.shape[1])
