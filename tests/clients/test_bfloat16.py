"""Convolutions in bfloat16, against Keras' own mixed precision and against float32."""

import pathlib
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tasks.models import CNN_SMALL, DNN, with_convolutions_in
from tff_hdp.clients import stacked_model
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_clients
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime.environment import multiplies_bfloat16
from tff_hdp.simulation import config as configs
from tff_hdp.simulation import experiment
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

SHAPE = {"input_shape": (12, 12, 1), "num_classes": 10}
# bfloat16 keeps 8 bits of a factor.
CLOSE = 2.0**-8


needs_bfloat16 = pytest.mark.skipif(
    not multiplies_bfloat16(), reason="a CPU without bfloat16"
)


@pytest.fixture
def whole():
    tf.keras.utils.set_random_seed(0)
    return CNN_SMALL.build(max_value=255.0, **SHAPE)


@pytest.fixture
def mixed(whole):
    found = with_convolutions_in("bfloat16", whole)
    found.set_weights(whole.get_weights())
    return found


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (3, 4, 12, 12, 1)).astype(np.uint8)


def test_only_convolutions_are_mixed(mixed):
    for layer in mixed.layers:
        kind = isinstance(layer, tf.keras.layers.Conv2D)
        assert layer.compute_dtype == ("bfloat16" if kind else "float32")
    assert {w.dtype for w in mixed.trainable_weights} == {tf.float32}
    assert mixed.output.dtype == tf.float32


def test_a_model_without_convolutions_is_refused():
    with pytest.raises(ValueError, match="no convolution"):
        with_convolutions_in("bfloat16", DNN.build(max_value=255.0, **SHAPE))


@needs_bfloat16
def test_a_stack_computes_what_keras_does(whole, mixed, images):
    """Nearer to Keras' mixed model, whose bias is rounded too, than to the other."""
    weights = [tf.stack([w] * 3) for w in mixed.trainable_weights]
    found = StackedModel(mixed)(weights, tf.constant(images)).numpy()
    theirs = np.stack([mixed(part).numpy() for part in images])
    exact = np.stack([whole(part).numpy() for part in images])
    scale = np.abs(exact).max()
    assert 0 < np.abs(found - exact).max() < 4 * CLOSE * scale
    np.testing.assert_allclose(found, theirs, atol=2 * CLOSE * scale)
    again = StackedModel(whole)(weights, tf.constant(images)).numpy()
    np.testing.assert_allclose(again, exact, atol=1e-5 * scale)


@needs_bfloat16
def test_updates_are_those_of_keras_mixed_precision(whole, mixed, images):
    """And not far from float32's, of whose poolings some choose another pixel."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 10, (3, 4)).astype(np.int32)
    chunk = {
        "features": tf.constant(images),
        "labels": tf.constant(labels),
        "order": tf.constant([[[0, 1], [2, 3]]] * 3, tf.int32),
        "zone": tf.zeros([3], tf.int32),
    }
    initial = [tf.constant(w) for w in whole.get_weights()]
    rule = SgdRule(learning_rate=0.1)
    found, _ = train_clients(StackedModel(mixed), initial, chunk, rule)
    exact, _ = train_clients(StackedModel(whole), initial, chunk, rule)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    mixed.compile(tf.keras.optimizers.experimental.SGD(0.1), loss)
    for client in range(3):
        mixed.set_weights(initial)
        mixed.fit(
            images[client], labels[client], batch_size=2, shuffle=False, verbose=0
        )
        for ours, old, new, other in zip(
            found, initial, mixed.get_weights(), exact, strict=True
        ):
            assert ours.dtype == tf.float32
            assert _apart(ours[client], old - new) < 0.1
            assert 0 < _apart(ours[client], other[client]) < 0.4


def _apart(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("gpus", "cpuinfo", "found"),
    [
        ([], "flags : avx2 fma", False),
        ([], "flags : avx512f avx512_bf16", True),
        ([], "flags : avx2 amx_bf16 amx_tile", True),
        ([(9, 0)], "flags : avx2", True),
        ([(9, 0), (7, 5)], "flags : amx_bf16", False),
        ([None], "flags : amx_bf16", False),
    ],
)
def test_machines_that_multiply_bfloat16(gpus, cpuinfo, found, monkeypatch):
    details = [{"compute_capability": gpu} if gpu else {} for gpu in gpus]
    config, read = tf.config, pathlib.Path.read_text
    monkeypatch.setattr(config, "get_visible_devices", lambda _: range(len(gpus)))
    monkeypatch.setattr(config.experimental, "get_device_details", details.__getitem__)
    monkeypatch.setattr(
        pathlib.Path,
        "read_text",
        lambda path: cpuinfo if str(path) == "/proc/cpuinfo" else read(path),
    )
    assert multiplies_bfloat16() == found


class _Config(RunConfig):
    system = "none"


def test_what_cannot_be_computed_so_is_refused(monkeypatch):
    task = tasks.load("digits", seed=0)
    asked = _Config(compute_dtype="bfloat16")
    monkeypatch.setattr(configs, "multiplies_bfloat16", lambda: True)
    with pytest.raises(ArgumentError, match=r"compute_dtype is bfloat16.*dnn.*no conv"):
        asked.training_model(task)
    monkeypatch.setattr(configs, "multiplies_bfloat16", lambda: False)
    with pytest.raises(ArgumentError, match="float32 on a machine that"):
        asked.training_model(task)
    assert _Config().training_model(task) is task.build_model
    with pytest.raises(ArgumentError, match="compute_dtype is float16"):
        _Config(compute_dtype="float16")


@pytest.mark.parametrize("policy", ["float64", "mixed_float16", "mixed_bfloat16"])
def test_a_policy_of_keras_is_refused(policy, request):
    """Layers that follow it would train in another precision than settings say."""
    request.addfinalizer(lambda: tf.keras.mixed_precision.set_global_policy(None))
    tf.keras.mixed_precision.set_global_policy(policy)
    with pytest.raises(ArgumentError, match=f"policy is {policy}; allowed: float32"):
        _Config().training_model(tasks.load("digits", seed=0))


def test_another_float_of_keras_is_refused(float64):
    with pytest.raises(ArgumentError, match="policy is float64; allowed: float32"):
        _Config().training_model(tasks.load("digits", seed=0))


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    """scikit-learn's digits with a convolution."""
    (tmp_path / "digits_by_convolution.py").write_text(
        "import dataclasses\n"
        "from tasks.digits import DIGITS\n"
        "from tasks.models import Architecture\n"
        "models = {'conv': Architecture(filters=(4,), units=8)}\n"
        "CONV = dataclasses.replace(DIGITS, name='conv', models=models)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return {
        "task": "digits_by_convolution:CONV",
        "compute_dtype": "bfloat16",
        "rounds": 1,
        "seed": 0,
        "quiet": True,
        "out": str(tmp_path / "run"),
    }


SYSTEMS = [
    (HdpConfig, {"noise_multiplier": 1.0, "clients_per_round": 20}),
    (HflDpConfig, {"edges": 5, "local_steps": 2}),
    (FlTopConfig, {"scheme": "fl_std", "num_clients": 20, "clients_per_round": 5}),
    (UdpHypernetConfig, {"privacy": "none"}),
]


@pytest.mark.parametrize(("config", "settings"), SYSTEMS)
def test_every_system_trains_the_model_of_its_settings(
    own_task, config, settings, monkeypatch
):
    def training_model(self, task):
        raise RuntimeError(f"asked for {self.compute_dtype}")

    monkeypatch.setattr(RunConfig, "training_model", training_model)
    with pytest.raises(RuntimeError, match="asked for bfloat16"):
        experiment.run(config(**own_task, **settings))


@pytest.fixture
def multiplied(monkeypatch):
    """The types of what stacks' convolutions multiply."""
    seen = set()

    def conv2d(x, kernel, **options):
        seen.update({x.dtype, kernel.dtype})
        return tf.nn.conv2d(x, kernel, **options)

    watched = types.SimpleNamespace(**{**vars(tf.nn), "conv2d": conv2d})
    ours = types.SimpleNamespace(**{**vars(tf), "nn": watched})
    monkeypatch.setattr(stacked_model, "tf", ours)
    return seen


# All systems' clients train by the same code, the model being what is asked for; HDP's
# do so below too.
@pytest.mark.slow
@needs_bfloat16
@pytest.mark.parametrize(("config", "settings"), SYSTEMS)
def test_every_system_trains_so(own_task, config, settings, multiplied):
    result = experiment.run(config(**own_task, **settings))
    # FL-TOP's server trains by itself first, on public examples.
    also = {tf.float32} if config is FlTopConfig else set()
    assert multiplied == {tf.bfloat16} | also
    assert 0 <= result.accuracy <= 1


@needs_bfloat16
def test_clients_train_so_alone_and_in_stacks(own_task, tmp_path, multiplied):
    kept = {}
    for dtype, chunk in (("bfloat16", 0), ("bfloat16", 20), ("float32", 0)):
        out = str(tmp_path / f"{dtype}{chunk}")
        settings = {**own_task, "compute_dtype": dtype, "out": out}
        settings |= {"clients_per_round": 20, "local_epochs": 2}
        experiment.run(HdpConfig(privacy="none", cohort_chunk=chunk, **settings))
        model = tf.keras.models.load_model(f"{out}/model/last/model.keras")
        kept[dtype, chunk] = np.concatenate([w.ravel() for w in model.get_weights()])
        moved = pd.read_csv(f"{out}/metrics.csv")["update_norm"].iloc[-1]
    assert multiplied == {tf.bfloat16}
    alone, stacked, exact = kept.values()
    assert np.linalg.norm(alone - stacked) < 0.02 * moved
    assert 0.001 * moved < np.linalg.norm(alone - exact) < 0.05 * moved
