"""Whose weights are attacked: fresh ones, a file's, a run's."""

import dataclasses
import json

import numpy as np
import pytest

import tasks
from tff_hdp.attacks.attacker import Attacker
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.victims import load_target
from tff_hdp.errors import ArgumentError, FileError

pytestmark = pytest.mark.usefixtures("loaded_once")


def test_what_does_not_fit_the_model_is_refused(tmp_path, target):
    path = tmp_path / "weights.npz"
    np.savez(path, *[np.zeros([2, 2], np.float32)])
    with pytest.raises(FileError, match="shapes"):
        Attacker(AttackConfig(weights=str(path)))
    with pytest.raises(FileError, match="no finished run"):
        Attacker(AttackConfig(weights=str(tmp_path)))
    with pytest.raises(ArgumentError, match="weights is nowhere"):
        Attacker(AttackConfig(weights="nowhere"))


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, 1j, "a"])
def test_weights_that_are_no_finite_numbers_are_refused(tmp_path, target, spoilt):
    path, task = tmp_path / "weights.npz", tasks.load("digits")
    first, *others = target().weights
    np.savez(path, np.full(first.shape, spoilt), *others)
    with pytest.raises(FileError, match="array 0 has what is no finite real number"):
        load_target(task, weights=str(path), seed=9)


def test_weights_of_a_file_are_taken(tmp_path, target):
    path, task = tmp_path / "weights.npz", tasks.load("digits")
    np.savez(path, *target().weights)
    found = load_target(task, weights=str(path), seed=9)
    for a, b in zip(found.weights, target().weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_of_a_run_are_taken(tmp_path, target):
    task = tasks.load("digits")
    model = task.build_model()
    model.set_weights(target().weights)
    folder = tmp_path / "model" / "last"
    folder.mkdir(parents=True)
    model.save(folder / "model.keras")
    with pytest.raises(FileError, match="no config"):
        load_target(task, weights=str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"flags": {"task": "pages"}}))
    with pytest.raises(FileError, match="is a run of task pages, not digits"):
        load_target(task, weights=str(tmp_path))
    for harmed in ([], {"flags": []}):
        config.write_text(json.dumps(harmed))
        with pytest.raises(FileError, match="is a run of task None"):
            load_target(task, weights=str(tmp_path))
    config.write_text(json.dumps({"flags": {"task": "digits"}}))
    found = load_target(task, weights=str(tmp_path), seed=9)
    for a, b in zip(found.weights, target().weights, strict=True):
        np.testing.assert_array_equal(a, b)
    (folder / "model.keras").write_bytes(b"")
    with pytest.raises(FileError, match=r"model\.keras: is damaged"):
        load_target(task, weights=str(tmp_path), seed=9)


@pytest.mark.parametrize("changes", [{"max_value": (16.0,)}, {"min_value": -8.0}])
def test_pixels_of_another_range_are_refused(monkeypatch, changes):
    """What is reconstructed is told of as if they were from 0 to 1."""
    task, given = tasks.load("digits"), tasks.TASKS["digits"]
    assert np.ndim(task.test_features) == 4
    odd = dataclasses.replace(given, **changes)
    monkeypatch.setitem(tasks.TASKS, "digits", odd)
    with pytest.raises(ArgumentError, match=r"task is digits; .* from 0 to one number"):
        load_target(task)
