"""What the benchmark of reconstructions tells a peer, and that it is ours it times."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import inversion
from tff_hdp.attacks.attacker import Attacker
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import ArgumentError

LAYERS = tf.keras.layers


def test_a_peer_is_told_the_layers_it_has_to_build():
    model = tf.keras.Sequential(
        [
            LAYERS.Input((8, 8, 3)),
            LAYERS.Rescaling(1 / 255),
            LAYERS.Conv2D(4, 5, strides=2, padding="same", activation="sigmoid"),
            LAYERS.MaxPooling2D(),
            LAYERS.Flatten(),
            LAYERS.Dense(10),
        ]
    )
    assert inversion.layers(model) == [
        {"kind": "conv", "activation": "sigmoid", "stride": 2, "padding": "same"},
        {"kind": "pool"},
        {"kind": "dense", "activation": "linear"},
    ]


@pytest.mark.parametrize("layer", [LAYERS.BatchNormalization(), LAYERS.MaxPooling2D(3)])
def test_a_layer_that_peers_do_not_build_is_refused(layer):
    model = tf.keras.Sequential([LAYERS.Input((8, 8, 3)), layer])
    with pytest.raises(ArgumentError, match="model"):
        inversion.layers(model)


@pytest.mark.parametrize(("attack", "least"), [("dlg", 25.0), ("ig", 12.0)])
def test_victims_are_found_in_what_peers_are_given_too(attack, least):
    config = AttackConfig(
        attack=attack, privacy="none", level="1", victims=2, evaluations=60
    )
    victims = inversion.Victims(Attacker(config), 2)
    gradients = victims.updates / victims.attacker.target.learning_rate
    assert np.isfinite(gradients).all() and victims.labels.shape == (2, 1)
    row = victims.ours()
    assert row["psnr_min"] > least
    assert 0 < row["seconds_min"] <= row["seconds_median"] <= row["seconds_max"]


def test_unknown_attacks_are_one_line(assert_refused):
    assert_refused("benchmarks/inversion.py", ["--attack=lira"], ["--attack", "lira"])
