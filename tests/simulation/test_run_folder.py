"""Checkpoints come back whole, or the one before does; what was released stays."""

import asyncio
import collections
import errno
import hashlib
import json
import logging
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import Ledger, PoissonSampling, configurations
from tff_hdp.simulation.checkpoints import (
    Checkpoint,
    Checkpoints,
    write_checkpoint,
)
from tff_hdp.simulation.files import write_json
from tff_hdp.simulation.rows import CsvRows
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.hdp.config import HdpConfig

State = collections.namedtuple("State", ["weights", "count"])
PLAN = configurations.c4(
    zone_sizes=(8,), sampling=PoissonSampling((0.5,)), noise_multiplier=1.5
)


def config(path, **changes):
    return HdpConfig(**{"noise_multiplier": 1.0, "out": str(path)} | changes)


def checkpoint(number):
    state = collections.OrderedDict(
        model=State(
            [np.full([2, 3], number, np.float32), np.ones([4], np.float64)], number
        ),
        empty=(),
    )
    return Checkpoint(
        number, state, 2**127 + 5, {"seats": [number]}, {"accuracy": number / 7}
    )


LIKE = checkpoint(0).state


def release(folder, *rounds):
    """What the loop does of a round, without training."""
    ledger = Ledger()
    ledger.record(PLAN)
    for number in rounds:
        if number:
            folder.journal.announce(number, ledger.state_dict())
        else:
            folder.begin()
        folder.checkpoints.save(checkpoint(number))


def released(path):
    """How many rounds the folder's ledger counts."""
    ledger = Ledger()
    with RunFolder(config(path)) as folder:
        folder.journal.recall(ledger)
    return ledger.rounds


def load(path):
    with RunFolder(config(path)) as folder:
        return folder.load_latest(like=LIKE)


@pytest.fixture
def run(tmp_path):
    """The folder of a run of five rounds that stopped."""
    with RunFolder(config(tmp_path)) as folder:
        folder.resolve(noise_multiplier=1.0, zones="abc")
        release(folder, 0, 1, 2, 3, 4, 5)
        for number in range(1, 6):
            folder.release_metrics(number, {"accuracy": number / 10})
    return tmp_path


def newest(path, number=5):
    return path / "checkpoints" / f"round_{number:06d}"


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


@pytest.mark.parametrize("left", ["checkpoints", "metrics.csv", "privacy.json"])
def test_a_run_without_its_journal_is_refused(run, left):
    (run / "privacy.json").write_text("{}")
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
        folder.write_privacy(config(run), Ledger(), (), last_round=18)
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
        folder.write_privacy(config(run), Ledger(), (), last_round=15)
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


@pytest.mark.parametrize("where", ["privacy.json", "checkpoint"])
def test_a_claim_of_releases_to_come_is_refused(run, where):
    if where == "privacy.json":
        (run / where).write_text('{"journal": [99, null]}')
    else:
        fields = {"round": 6, "journal": [99, None]}
        write_checkpoint(newest(run, 6), fields, [])
    with pytest.raises(FileError, match="was written with, so what was released"):
        load(run)


@pytest.mark.parametrize(("line", "entry"), [(2, 3), (2, {}), (0, {}), (0, [])])
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


def test_a_full_disk_is_an_error_that_names_the_place(tmp_path):
    with pytest.raises(OSError, match="No space") as error, RunFolder(config(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(error.value) == f"[Errno 28] No space left on device: '{tmp_path}'"


def test_a_file_that_may_not_grow_is_an_error_that_names_the_place(tmp_path):
    """The operating system's own, in a process of its own, as its limit stays."""
    code = """
import resource, signal, sys
from tests.simulation.test_run_folder import config, release
from tff_hdp import cli
from tff_hdp.simulation.run_folder import RunFolder
def main(argv):
    with RunFolder(config(sys.argv[1])) as folder:
        release(folder, 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        release(folder, 1)
sys.exit(cli.run(main))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )
    *_, line = done.stderr.splitlines()
    assert (done.returncode, line) == (
        2,
        f"error: [Errno 27] File too large: '{tmp_path}'",
    )


def test_another_runs_checkpoint_is_refused(run, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    with RunFolder(config(other)) as folder:
        folder.resolve(noise_multiplier=1.0, zones="other")
        release(folder, *range(7))
    shutil.copy(newest(other, 6), newest(run, 6))
    with pytest.raises(FileError, match="round_000006 was written with"):
        load(run)


def test_a_start_that_was_killed_before_its_first_checkpoint_starts(tmp_path):
    with RunFolder(config(tmp_path)) as folder:
        folder.begin()
    for content in (b"", b"half"):
        newest(tmp_path, 0).write_bytes(content)
        assert load(tmp_path) is None


def test_one_run_at_a_time(tmp_path):
    with RunFolder(config(tmp_path)):
        before = (tmp_path / "config.json").read_text()
        with pytest.raises(ArgumentError, match=r"out is .*no other run"):
            RunFolder(config(tmp_path, zones=3))
        assert (tmp_path / "config.json").read_text() == before
    RunFolder(config(tmp_path, zones=3)).close()


def test_nothing_to_load(tmp_path):
    assert load(tmp_path) is None


def test_a_folder_belongs_to_its_settings(run):
    RunFolder(config(run, rounds=300, evaluate_every=2, quiet=True)).close()
    with pytest.raises(ArgumentError, match=r"noise_multiplier is 2.0; allowed: 1.0"):
        RunFolder(config(run, noise_multiplier=2.0))


def test_a_run_that_never_started_binds_nobody(tmp_path):
    with RunFolder(config(tmp_path)) as folder:
        folder.resolve(noise_multiplier=3.0)
    with RunFolder(config(tmp_path, noise_multiplier=2.0)) as folder:
        assert folder.resolved == {}


def test_rounds_beyond_a_target_epsilon_are_refused(tmp_path):
    target = {"noise_multiplier": None, "target_epsilon": 4.0}
    with RunFolder(config(tmp_path, **target)) as folder:
        release(folder, 0)
    with pytest.raises(ArgumentError, match=r"rounds is 300; allowed: 200"):
        RunFolder(config(tmp_path, rounds=300, **target))


def test_config_json_says_what_ran(tmp_path):
    with RunFolder(config(tmp_path, zones=3)) as folder:
        folder.resolve(noise_multiplier=0.75)
        release(folder, 0)
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["flags"]["zones"] == 3
    assert record["resolved"] == {"noise_multiplier": 0.75}
    assert record["versions"]["tensorflow-federated"] == "0.87.0"
    with RunFolder(config(tmp_path, zones=3)) as folder:
        assert folder.resolved == {"noise_multiplier": 0.75}


@pytest.mark.parametrize(
    "resolved",
    [
        {"noise_multiplier": 9.0, "zones": "abc"},
        {"noise_multiplier": 1.0},
        {"noise_multiplier": 1.0, "zones": "abc", "clip_norm": 1.0},
    ],
)
def test_what_was_resolved_is_not_taken_at_config_jsons_word(run, resolved):
    record = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(record | {"resolved": resolved}))
    with pytest.raises(FileError, match="but the run began with") as error:
        RunFolder(config(run))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"resolved": 3}', None])
def test_a_damaged_config_json_comes_back_from_the_journal(run, content):
    before = (run / "config.json").read_text()
    (run / "config.json").unlink()
    if content is not None:
        (run / "config.json").write_text(content)
    with RunFolder(config(run)) as folder:
        assert folder.resolved == {"noise_multiplier": 1.0, "zones": "abc"}
    assert (run / "config.json").read_text() == before


def test_a_run_keeps_to_what_was_resolved(run):
    with RunFolder(config(run)) as folder:
        folder.resolve(zones="abc")
        with pytest.raises(ArgumentError, match=r"began with zones abc, .* now xyz"):
            folder.resolve(zones="xyz")
        with pytest.raises(ArgumentError, match=r"began with clip_norm None"):
            folder.resolve(clip_norm=1.0)


@pytest.mark.parametrize("layout", [{"layout": 2}, {}])
def test_a_run_of_another_layout_is_refused_in_one_line(tmp_path, layout):
    (tmp_path / "config.json").write_text(json.dumps({"system": "hdp", **layout}))
    (tmp_path / "checkpoints" / "program_state_3").mkdir(parents=True)
    with pytest.raises(ArgumentError, match=r"^out is .*another version") as error:
        RunFolder(config(tmp_path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["x", "a,b\n1,2\n", "round,x\none,2\n", '"\n\0"\n'])
def test_a_damaged_metrics_file_is_refused_in_one_line(run, content):
    (run / "metrics.csv").write_text(content + "\n")
    with pytest.raises(FileError, match=r"metrics.csv: .*move it away") as error:
        RunFolder(config(run))
    assert "\n" not in str(error.value)


NAMES = ["config.json", "metrics.csv", "journal.jsonl", ".lock"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_place_of_a_file_is_an_operating_systems_error(run, name):
    (run / name).unlink()
    (run / name).mkdir()
    with pytest.raises(OSError, match=name):
        RunFolder(config(run))


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "."])
def test_a_file_in_place_of_a_folder_is_named(run, name):
    shutil.rmtree(run / name)
    (run / name).resolve().write_text("")
    with pytest.raises((OSError, FileError, ArgumentError), match=run.name):
        RunFolder(config(run))


def test_rows_of_undone_rounds_are_dropped(run):
    with RunFolder(config(run)) as folder:
        folder.release_metrics(2, {"accuracy": 0.9})
    frame = pd.read_csv(run / "metrics.csv")
    assert frame["round"].tolist() == [1, 2]
    assert frame["accuracy"].tolist() == [0.1, 0.9]


def test_columns_may_come_and_go(tmp_path):
    rows = [{"a": 1.5}, {"a": 2.0, "b": float("inf")}, {"c": 0.1 + 0.2}, {"a": 1}]
    for number, row in enumerate(rows, start=1):
        # Half a row that a full disk left is dropped.
        with (tmp_path / "rows.csv").open("a") as file:
            file.write("" if number == 1 else f"{number},")
        asyncio.run(CsvRows(tmp_path / "rows.csv").release(row, number))
    frame = pd.read_csv(tmp_path / "rows.csv")
    expected = pd.DataFrame(rows, index=range(1, 5)).rename_axis("round").reset_index()
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


def test_tensorboard_reads_what_is_written(run):
    from tensorboard.backend.event_processing import event_accumulator

    found = event_accumulator.EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    scalars = [(event.step, event.value) for event in found.Scalars("test/accuracy")]
    assert scalars == [(n, pytest.approx(n / 10)) for n in range(1, 6)]


def test_json_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_a_file_in_place_of_the_run_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(ArgumentError, match=r"out is .*a folder, or none yet"):
            RunFolder(config(pathlib.Path(out)))


@pytest.mark.parametrize(
    "error", [ArgumentError("zones", 9, "2"), FileError("a", "b"), FileNotFoundError()]
)
def test_a_run_that_is_refused_leaves_no_folder(tmp_path, error):
    with pytest.raises(type(error)), RunFolder(config(tmp_path / "new")) as folder:
        folder.resolve(partition_seed=3)
        raise error
    assert not (tmp_path / "new").exists()


def test_what_was_there_before_or_began_is_left(tmp_path):
    """As is what ends by anything but a refusal."""
    (tmp_path / "old").mkdir()
    for name, error in (
        ("old", ArgumentError("zones", 9, "2")),
        ("began", ArgumentError("zones", 9, "2")),
        ("ended", KeyboardInterrupt()),
    ):
        with pytest.raises(type(error)), RunFolder(config(tmp_path / name)) as folder:
            if name == "began":
                folder.begin()
            raise error
        assert (tmp_path / name / "config.json").exists()
