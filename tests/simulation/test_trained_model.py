"""Which round's weights are kept as the best, through kills and undone rounds."""

import errno
import json
import math
import shutil
import types

import numpy as np
import pytest

from tff_hdp.errors import FileError
from tff_hdp.simulation.trained_model import ModelKeeper


class Pair:
    """A system whose state is its weights and which saves them as numbers."""

    def __init__(self, falls=False):
        self.headline, self.headline_falls = "score", falls
        self.published = ("score",)
        self.task = types.SimpleNamespace(
            name="none",
            model_name="pair",
            description="two numbers",
            num_classes=2,
            class_names=("less", "more"),
            encoding=None,
            test_features=np.zeros([1, 3], np.uint8),
        )

    def released(self, state):
        return {"a": state[0], "b": [state[1]]}

    def save_model(self, released, path):
        values = [released["a"].tolist(), released["b"][0].tolist()]
        (path / "weights.json").write_text(json.dumps(values))


def state(number):
    return np.float32(number), np.full([2], number, np.int64)


def chosen(path):
    return json.loads((path / "model" / "best" / "card.json").read_text())["chosen"]


def best(path):
    card = json.loads((path / "model" / "best" / "card.json").read_text())
    weights = json.loads((path / "model" / "best" / "weights.json").read_text())
    assert weights == [card["round"], [card["round"]] * 2]
    return card["round"], card["value"]


@pytest.mark.parametrize(("falls", "expected"), [(False, (2, 0.9)), (True, (3, 0.1))])
def test_the_first_of_the_best_rounds_is_kept(tmp_path, falls, expected):
    keeper = ModelKeeper(Pair(falls), tmp_path)
    for number, score in ((1, 0.5), (2, 0.9), (3, 0.1), (4, 0.9), (5, 0.1)):
        keeper(number, {"score": score}, state(number))
    keeper.write({1: 0.5, 2: 0.9, 3: 0.1, 4: 0.9, 5: 0.1}, state(5))
    assert best(tmp_path) == expected
    assert "weights are left" not in chosen(tmp_path)
    last = json.loads((tmp_path / "model" / "last" / "card.json").read_text())
    assert (last["round"], last["value"]) == (5, 0.1)
    assert last["features"] == {"shape": [3], "dtype": "uint8"}
    assert (last["class_names"], last["encoding"]) == (["less", "more"], None)


def test_rounds_that_were_not_evaluated_are_no_candidates(tmp_path):
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(1, {"score": 0.5}, state(1))
    keeper(2, {}, state(2))
    keeper(3, {"score": math.nan}, state(3))
    keeper.write({1: 0.5, 2: math.nan, 3: math.nan}, state(3))
    assert best(tmp_path) == (1, 0.5)
    last = json.loads((tmp_path / "model" / "last" / "card.json").read_text())
    assert (last["round"], last["value"]) == (3, None)


def test_a_resumed_run_knows_the_best_round_of_before(tmp_path):
    ModelKeeper(Pair(), tmp_path)(2, {"score": 0.9}, state(2))
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(3, {"score": 0.8}, state(3))
    keeper.write({2: 0.9, 3: 0.8}, state(3))
    assert best(tmp_path) == (2, 0.9)


@pytest.mark.parametrize("keep", [0.5, 0.0, -0.1])
def test_damage_to_the_best_weights_is_one_line(tmp_path, keep):
    """Cut off, emptied, or with a byte changed in the middle of an array."""
    ModelKeeper(Pair(), tmp_path)(1, {"score": 0.5}, state(1))
    file = tmp_path / "model" / ".best.npz"
    content = bytearray(file.read_bytes())
    if keep < 0:
        content[content.index(b"arr_0.npy") + 150] ^= 8
    file.write_bytes(content if keep < 0 else content[: int(keep * len(content))])
    with pytest.raises(FileError, match=r"best\.npz: is damaged"):
        # At once, not when the last round is over.
        ModelKeeper(Pair(), tmp_path)
    file.unlink()
    ModelKeeper(Pair(), tmp_path).write({1: 0.5, 2: 0.4}, state(2))


def test_the_best_round_is_saved_once_where_it_is_the_last(tmp_path):
    saved = []

    class Counted(Pair):
        def save_model(self, released, path):
            saved.append(released)
            super().save_model(released, path)

    keeper = ModelKeeper(Counted(), tmp_path)
    for number, score in ((1, 0.5), (2, 0.9)):
        keeper(number, {"score": score}, state(number))
    keeper.write({1: 0.5, 2: 0.9}, state(2))
    assert best(tmp_path) == (2, 0.9) and len(saved) == 1
    last = json.loads((tmp_path / "model" / "last" / "card.json").read_text())
    assert (last["round"], last["chosen"]) == (2, "the last round")


@pytest.mark.parametrize("scores", [{1: 0.9, 2: 0.5}, {1: 0.5, 2: 0.9}])
def test_where_the_last_model_is_the_best_one_is_too(tmp_path, monkeypatch, scores):
    """A run with a last model is taken for finished; here it is killed before."""

    class Killed(Pair):
        def save_model(self, released, path):
            if (tmp_path / "model" / "best").exists():
                raise OSError("killed")
            super().save_model(released, path)

    def killed(*folders, **options):
        raise OSError("killed")

    monkeypatch.setattr(shutil, "copytree", killed)
    keeper = ModelKeeper(Killed(), tmp_path)
    for number, score in scores.items():
        keeper(number, {"score": score}, state(number))
    with pytest.raises(OSError, match="killed"):
        keeper.write(scores, state(2))
    assert best(tmp_path)[1] == 0.9
    assert not (tmp_path / "model" / "last").exists()


def test_a_full_disk_is_told_of_in_a_line(tmp_path, monkeypatch):
    """Python's own error of a copied folder lists all of its files."""

    def full(source, target, **options):
        raise OSError(errno.ENOSPC, "No space left", source, None, target)

    monkeypatch.setattr(shutil, "copyfile", full)
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(1, {"score": 0.5}, state(1))
    with pytest.raises(FileError, match=r"\.last: cannot be written: .*No space left"):
        keeper.write({1: 0.5}, state(1))
    monkeypatch.undo()
    keeper.write({1: 0.5}, state(1))
    assert (tmp_path / "model" / "last" / "weights.json").exists()


def test_a_best_round_whose_score_is_no_longer_in_the_table_is_the_best(tmp_path):
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(1, {"score": 0.5}, state(1))
    keeper.write({1: math.nan, 2: 0.25}, state(2))
    assert best(tmp_path) == (1, 0.5) and "weights are left" not in chosen(tmp_path)


def test_an_undone_round_is_forgotten(tmp_path):
    ModelKeeper(Pair(), tmp_path)(4, {"score": 0.9}, state(4))
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(3, {"score": 0.2}, state(3))
    keeper(4, {"score": 0.1}, state(4))
    keeper.write({3: 0.2, 4: 0.1}, state(4))
    assert best(tmp_path) == (3, 0.2)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        *(".best.npz", "best", "last"),
    ]


def test_a_round_that_is_run_again_has_the_score_of_its_last_time(tmp_path):
    ModelKeeper(Pair(), tmp_path)(4, {"score": 0.9}, state(4))
    keeper = ModelKeeper(Pair(), tmp_path)
    keeper(4, {"score": 0.2}, state(4))
    keeper(5, {"score": 0.3}, state(5))
    keeper.write({4: 0.2, 5: 0.3}, state(5))
    assert best(tmp_path) == (5, 0.3)


@pytest.mark.parametrize("falls", [False, True])
def test_a_best_round_whose_weights_are_gone_is_told_of(tmp_path, falls):
    """They made room for a better round's, which was undone."""
    sign = -1 if falls else 1
    keeper = ModelKeeper(Pair(falls), tmp_path)
    for number, score in ((1, 0.7), (2, 0.9), (3, 0.6), (4, 0.95)):
        keeper(number, {"score": sign * score}, state(number))
    keeper = ModelKeeper(Pair(falls), tmp_path)
    scores = {1: sign * 0.7, 2: sign * 0.9, 3: sign * 0.6, 4: sign * 0.8, 5: math.nan}
    for number in (3, 4, 5):
        keeper(number, {"score": scores[number]}, state(number))
    keeper.write(scores, state(5))
    assert best(tmp_path) == (4, scores[4])
    assert f"whose weights are left (round 2 had {scores[2]:g})" in chosen(tmp_path)
    # Rows that were moved away leave what is known.
    keeper.write({5: math.nan}, state(5))
    assert best(tmp_path) == (4, scores[4])
    assert "weights are left" not in chosen(tmp_path)


def test_what_was_left_half_written_is_in_nobodys_way(tmp_path):
    class Broken(Pair):
        def save_model(self, released, path):
            (path / "half").touch()
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        ModelKeeper(Broken(), tmp_path).write({1: 0.5}, state(1))
    ModelKeeper(Pair(), tmp_path).write({1: 0.5}, state(1))
    assert not (tmp_path / "model" / "last" / "half").exists()
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["last"]


def test_a_choice_by_what_carries_no_noise_claims_no_epsilon(tmp_path):
    private = Pair()
    private.published = ()
    for system, said in ((Pair(), False), (private, True)):
        keeper = ModelKeeper(system, tmp_path)
        keeper(1, {"score": 0.5}, state(1))
        keeper.write({1: 0.5, 2: 0.4}, state(2))
        cards = {
            name: json.loads((tmp_path / "model" / name / "card.json").read_text())
            for name in ("last", "best")
        }
        assert ("does not hold" in cards["best"]["privacy"]) == said
        assert ("clients' own data" in cards["best"]["chosen"]) == said
        assert "does not hold" not in cards["last"]["privacy"]
