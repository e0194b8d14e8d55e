"""A finished run's model, tested by class, zone and client."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tff_hdp import systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation.evaluation import Evaluation, evaluate_run
from tff_hdp.systems.hdp.config import HdpConfig


def test_a_finished_run_is_evaluated_by_class_zone_and_client(finished):
    before = (finished.path / "config.json").read_bytes()
    found = evaluate_run(systems.config_of(finished.path), "last")
    task = finished.config.load_task(5)
    assert found.accuracy == pytest.approx(finished.accuracy)
    assert found.confusion.sum(1).tolist() == np.bincount(task.test_labels).tolist()
    assert np.trace(found.confusion) / found.confusion.sum() == found.accuracy
    model = tf.keras.models.load_model(finished.path / "model/last/model.keras")
    right = model.predict(task.train.features, verbose=0).argmax(-1)
    right = right == task.train.labels
    own = [
        right[task.train.offsets[i] : task.train.offsets[i + 1]].mean()
        for i in range(len(task.train.client_ids))
    ]
    assert found.clients["accuracy"].tolist() == pytest.approx(own)
    assert found.worst_decile == pytest.approx(np.sort(own)[: len(own) // 10].mean())
    zones = found.zones
    assert zones["clients"].tolist() == [50] * 4
    overall = np.average(zones["accuracy"], weights=zones["examples"])
    assert overall == pytest.approx(right.mean())
    assert "training examples" in found.clients_on
    assert (finished.path / "config.json").read_bytes() == before


@pytest.mark.parametrize("resolved", [None, 3, {}])
def test_a_config_json_without_what_was_resolved_is_refused(
    finished, tmp_path, resolved
):
    shutil.copytree(finished.path / "model" / "last", tmp_path / "model" / "last")
    record = json.loads((finished.path / "config.json").read_text())
    del record["resolved"]
    if resolved is not None:
        record["resolved"] = resolved
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(FileError, match=r"config\.json: is not of a run of this"):
        evaluate_run(systems.config_of(tmp_path))


def write_network(path, inputs, classes, most=1.0):
    """One that takes everything for its last class, whose logit is `most`."""
    bias = tf.keras.initializers.Constant(np.r_[np.zeros(classes - 1), most])
    last = tf.keras.layers.Dense(
        classes, kernel_initializer="zeros", bias_initializer=bias
    )
    layers = [tf.keras.layers.InputLayer(inputs), tf.keras.layers.Flatten(), last]
    tf.keras.Sequential(layers).save(path)


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [
        ("card.json", "[]", "is no card of a model of 10 classes"),
        ("card.json", '{"chosen": "by lot"}', "is no card"),
        ("card.json", '{"round": 1, "chosen": "", "class_names": ["a"]}', "is no card"),
        ("card.json", '{"round": 1, "chosen": "", "class_names": [1]}', "is no card"),
        ("model.keras", ([5], 10), "holds no model of digits's examples"),
        (
            "model.keras",
            ([8, 8, 1], 13),
            r"logits of shape \(\d+, 13\), where .*, 10\)",
        ),
        ("model.keras", ([8, 8, 1], 9), r"logits of shape \(\d+, 9\), where .*, 10\)"),
        ("model.keras", ([8, 8, 1], 10, math.nan), "logits that are not all finite"),
    ],
)
def test_a_model_of_something_else_is_one_line(finished, tmp_path, name, write, words):
    shutil.copytree(finished.path / "model" / "last", tmp_path / "model" / "last")
    shutil.copy(finished.path / "config.json", tmp_path)
    file = tmp_path / "model" / "last" / name
    if isinstance(write, str):
        file.write_text(write)
    else:
        write_network(file, *write)
    with pytest.raises(FileError, match=words) as caught:
        evaluate_run(systems.config_of(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_program_believes_no_settings_that_an_editor_wrote(
    finished, tmp_path, run_program
):
    copied = tmp_path / "run"
    shutil.copytree(finished.path, copied)
    record = json.loads((copied / "config.json").read_text())
    record["resolved"]["partition_seed"] += 1
    (copied / "config.json").write_text(json.dumps(record))
    result = run_program("scripts/evaluate.py", f"--run={copied}")
    assert result.returncode == 2
    assert "resolved says partition_seed is" in result.stderr


def test_what_was_trained_in_bfloat16_is_tested_without(finished):
    """It could not be built again: no convolution, or no machine that can do it."""
    config = systems.config_of(finished.path)
    asked = dataclasses.replace(config, compute_dtype="bfloat16")
    with pytest.raises(ArgumentError, match="compute_dtype is bfloat16"):
        asked.training_model(finished.config.load_task(5))
    assert evaluate_run(asked).accuracy == evaluate_run(config).accuracy


def test_clients_without_tests_of_their_own_are_left_out(finished, monkeypatch):
    load = HdpConfig.load_task
    count = len(load(finished.config, 5).test_labels)
    # Three in four have some; the first and the last have none.
    owners = np.random.default_rng(4).integers(150, size=count) * 4 // 3 + 1
    owners[owners == 199], owners[:9] = 7, -1
    config = systems.config_of(finished.path)
    zone_of = evaluate_run(config).clients.set_index("client")["zone"]
    monkeypatch.setattr(
        HdpConfig,
        "load_task",
        lambda self, seed: dataclasses.replace(load(self, seed), test_owners=owners),
    )
    found = evaluate_run(config)
    task = finished.config.load_task(5)
    model = tf.keras.models.load_model(finished.path / "model/last/model.keras")
    right = model.predict(task.test_features, verbose=0).argmax(-1) == task.test_labels
    assert found.accuracy == pytest.approx(right.mean())
    who = sorted(set(owners) - {-1})
    assert 0 not in who and 199 not in who and len(who) > 50
    ids = np.array(task.train.client_ids)
    assert found.clients["client"].tolist() == ids[who].tolist()
    assert found.clients["examples"].tolist() == [sum(owners == i) for i in who]
    own = [right[owners == i].mean() for i in who]
    assert found.clients["accuracy"].tolist() == pytest.approx(own)
    assert found.worst_decile == pytest.approx(np.sort(own)[: len(own) // 10].mean())
    assert found.clients["zone"].tolist() == zone_of[ids[who]].tolist()
    assert "own test examples" in found.clients_on


@pytest.mark.parametrize(
    ("count", "worst"), [(1, [0]), (9, [0]), (10, [0]), (29, [0, 1])]
)
def test_the_worst_decile_is_a_tenth_rounded_down_and_one_at_least(count, worst):
    accuracies = np.random.default_rng(2).permutation(np.arange(count) ** 2 / 1000)
    found = Evaluation(
        card={},
        accuracy=0.5,
        confusion=np.zeros([2, 2], np.int64),
        clients=pd.DataFrame({"accuracy": accuracies}),
        clients_on="their own test examples",
    )
    assert found.worst_decile == pytest.approx(np.mean(np.square(worst)) / 1000)
