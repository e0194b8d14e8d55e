"""Checkpoints come back whole, or the one before does; what was released stays."""

import hashlib
import json
import logging
import os
import pathlib
import shutil
import stat

import numpy as np
import pytest

from tests.simulation.run_folders import (
    LIKE,
    State,
    checkpoint,
    config,
    load,
    newest,
    release,
    released,
)
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import Ledger
from tff_hdp.simulation.checkpoints import (
    Checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.run_folder import RunFolder


def test_a_checkpoint_comes_back_exactly(run):
    found = load(run)
    assert found.round_number == 5
    assert found.entropy == 2**127 + 5
    assert found.carried == {"seats": [5]}
    assert found.metrics == {"accuracy": 5 / 7}
    model = found.state["model"]
    assert isinstance(model, State)
    assert model.weights[0].dtype == np.float32
    assert model.weights[1].dtype == np.float64
    assert model.count == 5
    np.testing.assert_array_equal(model.weights[0], np.full([2, 3], 5.0))
    kept = sorted((run / "checkpoints").iterdir())
    assert kept == [newest(run, i) for i in (3, 4, 5)]


def test_a_checkpoint_is_plain(tmp_path):
    write_checkpoint(tmp_path / "one", {"round": 3}, [np.float32([1, 2]), True])
    first, _, rest = (tmp_path / "one").read_bytes().partition(b"\n")
    assert json.loads(first) == {"round": 3, "tensors": [["<f4", [2]], ["|b1", []]]}
    assert rest[:9] == np.float32([1, 2]).tobytes() + b"\1"
    assert len(rest) == 9 + 32
    with pytest.raises(TypeError, match="cannot be kept"):
        write_checkpoint(tmp_path / "one", {}, [np.array([{}])])


def test_all_checkpoints_that_were_left_over_are_forgotten(run):
    for number in (0, 1):
        shutil.copy(newest(run, 3), newest(run, number))
    with RunFolder(config(run)) as folder:
        release(folder, 6)
    kept = sorted((run / "checkpoints").iterdir())
    assert kept == [newest(run, i) for i in (4, 5, 6)]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_runs_secret_is_for_its_owners_eyes_only(tmp_path, umask):
    with RunFolder(config(tmp_path)) as folder:
        half = newest(tmp_path, 1)
        half.write_bytes(b"of a start that was killed")
        half.chmod(0o666)
        before = os.umask(umask)
        try:
            release(folder, 0, 1)
        finally:
            os.umask(before)
    files = sorted((tmp_path / "checkpoints").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 2
    assert stat.S_IMODE((tmp_path / "checkpoints").stat().st_mode) == 0o700
    assert load(tmp_path).round_number == 1
    # It is nowhere else.
    secret = str(checkpoint(0).entropy).encode()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert (secret in file.read_bytes()) == (file in files)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_folder_of_checkpoints_is_made_closed(tmp_path, umask):
    before = os.umask(umask)
    try:
        Checkpoints(tmp_path / "new", None).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_the_newest_checkpoint_is_so_beyond_six_digits(tmp_path, caplog):
    with RunFolder(config(tmp_path)) as folder:
        release(folder, 0, 999_998, 999_999, 1_000_000)
    assert load(tmp_path).round_number == 1_000_000
    assert "rounds that are run again" not in caplog.text


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "delete", "older"])
def test_a_round_whose_checkpoint_is_gone_is_counted_again(run, caplog, damage):
    file = newest(run)
    content = file.read_bytes()
    if damage == "flip":
        file.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])
    elif damage == "truncate":
        file.write_bytes(content[:-1])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "delete":
        file.unlink()
    else:
        shutil.copy(newest(run, 4), file)
    with caplog.at_level(logging.WARNING), RunFolder(config(run)) as folder:
        assert folder.load_latest(like=LIKE).round_number == 4
        assert "1 rounds were released after" in caplog.text
        release(folder, 5)
    assert released(run) == 6
    assert load(run).round_number == 5


def test_a_checkpoint_that_breaks_twice_was_released_three_times(run):
    for _ in range(2):
        newest(run).write_bytes(b"")
        with RunFolder(config(run)) as folder:
            assert folder.load_latest(like=LIKE).round_number == 4
            release(folder, 5)
    assert released(run) == 7


def die(*_):
    raise KeyboardInterrupt


def kill_in_round_six(run, monkeypatch, before):
    """Leaves what is there when a run dies before a step of the sixth release."""
    with (
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
        RunFolder(config(run)) as folder,
    ):
        patch.setattr(*before, die)
        release(folder, 6)
    return run / "checkpoints" / "unfinished"


@pytest.mark.parametrize("before", [(Journal, "announce"), (pathlib.Path, "replace")])
def test_a_whole_checkpoint_is_taken_up_and_its_round_counts_once(
    run, monkeypatch, before
):
    unfinished = kill_in_round_six(run, monkeypatch, before)
    assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
    found = load(run)
    assert (found.round_number, found.metrics) == (6, {"accuracy": 6 / 7})
    assert not unfinished.exists()
    assert released(run) == 6


def test_what_is_there_of_a_checkpoint_that_is_not_whole_is_removed(run, monkeypatch):
    unfinished = kill_in_round_six(run, monkeypatch, (Journal, "announce"))
    whole = unfinished.read_bytes()
    for size in range(0, len(whole), 20):
        unfinished.write_bytes(whole[:size])
        assert load(run).round_number == 5
        assert not unfinished.exists()
        assert released(run) == 5


def test_an_unfinished_checkpoint_of_another_journal_is_refused(run, monkeypatch):
    unfinished = kill_in_round_six(run, monkeypatch, (Journal, "announce"))
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    (run / "metrics.csv").unlink()
    with pytest.raises(FileError, match="not the journal that unfinished was written"):
        load(run)
    assert unfinished.exists()
    assert len(journal.read_bytes().splitlines()) == len(lines) - 1


@pytest.mark.parametrize("also", ["", "metrics.csv"])
def test_a_run_without_checkpoints_is_not_started_over(run, also):
    shutil.rmtree(run / "checkpoints")
    if also:
        (run / also).unlink()
    with pytest.raises(ArgumentError, match=r"out is .*checkpoints none can be read"):
        load(run)
    assert released(run) == 5


@pytest.mark.parametrize("keep", range(6))
def test_a_journal_that_lacks_lines_is_refused(run, keep):
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:keep]))
    with pytest.raises((ArgumentError, FileError), match="new folder") as error:
        load(run)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "left", ["checkpoints", "metrics.csv", "privacy.json", "model"]
)
def test_a_run_without_its_journal_is_refused(run, left):
    (run / "privacy.json").write_text("{}")
    (run / "model").mkdir()
    for path in run.iterdir():
        if path.name not in (left, "config.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ArgumentError, match=r"out is .*journal is gone"):
        RunFolder(config(run))


def put_back(run, copy, *, keep):
    """What a backup of journal and checkpoints leaves, beside newer files."""
    for path in (run / "journal.jsonl", run / "checkpoints"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(copy, run, dirs_exist_ok=True)
    for name in {"metrics.csv", "privacy.json"} - {keep}:
        (run / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("metrics.csv", "ends at round 5, but metrics.csv has round 8"),
        ("privacy.json", "is not the journal that privacy.json was written with"),
    ],
)
def test_a_journal_older_than_what_was_released_is_refused(
    run, tmp_path_factory, keep, message
):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copy(run / "journal.jsonl", copy)
    shutil.copytree(run / "checkpoints", copy / "checkpoints")
    with RunFolder(config(run)) as folder:
        release(folder, 6, 7, 8)
        folder.write_privacy(Ledger(), (), last_round=18)
        folder.release_metrics(8, {"accuracy": 0.8})
    assert load(run).round_number == 8
    put_back(run, copy, keep=keep)
    with pytest.raises(FileError, match=message) as error:
        RunFolder(config(run))
    assert "journal.jsonl" in str(error.value)
    assert "start in a new folder" in str(error.value)
    assert "\n" not in str(error.value)
    (run / keep).unlink()
    assert load(run).round_number == 5


def test_a_statement_made_in_advance_is_no_release(run):
    """It speaks of rounds to come; a kill right after it leaves a sound folder."""
    with RunFolder(config(run)) as folder:
        folder.write_privacy(Ledger(), (), last_round=15)
        newest(run).unlink()
    assert load(run).round_number == 4


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"journal": 3}', '{"journal": [1e400, "x"]}', None],
)
def test_a_damaged_privacy_json_tells_nothing_and_the_log_says_so(run, caplog, content):
    if content is not None:
        (run / "privacy.json").write_text(content)
    with caplog.at_level(logging.WARNING):
        assert load(run).round_number == 5
    assert "5 rounds were released, but privacy.json cannot be read" in caplog.text


def test_a_checkpoint_of_nothing_but_its_digest_is_passed_over(run):
    newest(run, 6).write_bytes(hashlib.sha256(b"").digest())
    assert load(run).round_number == 5


@pytest.mark.parametrize(
    "forged",
    [
        *({"journal": 3}, {"journal": [5]}, {"journal": ["x", "y"]}, {"round": None}),
        *({"entropy": "x"}, {"entropy": None}, {"carried": 3}, {"metrics": [1]}),
        "no fields",
        "fewer tensors",
    ],
)
def test_a_checkpoint_of_other_fields_is_passed_over(run, caplog, forged):
    record, tensors = read_checkpoint(newest(run))
    if forged == "fewer tensors":
        tensors = tensors[1:]
    elif forged == "no fields":
        record = {}
    else:
        record |= forged
    write_checkpoint(newest(run), record, tensors)
    with caplog.at_level(logging.WARNING):
        assert load(run).round_number == 4
    assert "holds no checkpoint of this run" in caplog.text


def test_an_unfinished_checkpoint_of_other_fields_is_removed(run):
    unfinished = run / "checkpoints" / "unfinished"
    write_checkpoint(unfinished, {"round": 6}, [])
    assert load(run).round_number == 5
    assert not unfinished.exists()


@pytest.mark.parametrize("where", ["privacy.json", "checkpoint"])
def test_a_claim_of_releases_to_come_is_refused(run, where):
    if where == "privacy.json":
        (run / where).write_text('{"journal": [99, null]}')
    else:
        record, tensors = read_checkpoint(newest(run))
        write_checkpoint(newest(run, 6), {**record, "journal": [99, None]}, tensors)
    with pytest.raises(FileError, match="was written with, so what was released"):
        load(run)


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        *((2, 3), (2, {}), (0, {}), (0, []), (0, {"layout": 5})),
        (0, {"layout": 5, "system": "x", "flags": [], "resolved": {}}),
        *((1, {"round": 1}), (1, {"round": 1, "ran": 5}), (1, {"round": 1, "ran": {}})),
        (2, {"round": 2, "ran": {"history": 3}}),
    ],
)
def test_a_forged_journal_is_refused_in_one_line(run, line, entry):
    path = run / "journal.jsonl"
    entries = [json.loads(each.partition(b" ")[2]) for each in path.open("rb")]
    entries[line] = entry
    digest, lines = "", []
    for each in entries:
        text = json.dumps(each, separators=(",", ":"))
        digest = hashlib.sha256((digest + text).encode()).hexdigest()[:32]
        lines.append(f"{digest} {text}\n")
    path.write_text("".join(lines))
    with pytest.raises((ArgumentError, FileError), match="new folder") as error:
        load(run)
    assert "\n" not in str(error.value)
