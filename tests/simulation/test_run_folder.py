"""A folder is one run's, and says in one line what is wrong with it."""

import asyncio
import errno
import json
import pathlib
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from tests.simulation.run_folders import (
    config,
    load,
    newest,
    release,
)
from tff_hdp.errors import ArgumentError, FileError, NoiseError
from tff_hdp.files import write_json
from tff_hdp.simulation import run_folder
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.trackers import CsvRows


def test_a_full_disk_is_an_error_that_names_the_place(tmp_path):
    with pytest.raises(OSError, match="No space") as error, RunFolder(config(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(error.value) == f"[Errno 28] No space left on device: '{tmp_path}'"


def test_a_disk_that_is_full_before_the_run_is_named_too(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_folder, "write_json", full)
    with pytest.raises(OSError, match="No space") as error:
        RunFolder(config(tmp_path))
    assert str(error.value) == f"[Errno 28] No space left on device: '{tmp_path}'"


def test_a_file_that_may_not_grow_is_an_error_that_names_the_place(tmp_path):
    """The operating system's own, in a process of its own, as its limit stays."""
    code = """
import resource, signal, sys
from tests.simulation.test_run_folder import config, release
from tff_hdp import cli
from tff_hdp.simulation.run_folder import RunFolder
def main(words):
    with RunFolder(config(words[0])) as folder:
        release(folder, 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        release(folder, 1)
sys.exit(cli.run(main, takes_words=True))
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
    with RunFolder(config(tmp_path, zones=3)):
        pass


def test_nothing_to_load(tmp_path):
    assert load(tmp_path) is None


def test_a_folder_belongs_to_its_settings(run):
    with RunFolder(config(run, rounds=300, evaluate_every=2, quiet=True)):
        pass
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
    with pytest.raises(ArgumentError, match="rounds is 300; allowed: at most 200"):
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


@pytest.mark.parametrize(
    "content",
    ["x", "a,b\n1,2\n", "round,x\none,2\n", '"\n\0"\n', "round,x\n1,.039v\n2,.5\n"],
)
def test_a_damaged_metrics_file_is_refused_in_one_line(run, content):
    (run / "metrics.csv").write_text(content + "\n")
    with pytest.raises(FileError, match=r"metrics.csv: .*move it away") as error:
        RunFolder(config(run))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "error",
    [NoiseError("no entropy"), OSError(28, "full"), KeyboardInterrupt()],
    ids=repr,
)
def test_what_did_not_run_is_not_in_config_json(run, error):
    before = (run / "config.json").read_bytes()
    with pytest.raises(type(error)), RunFolder(config(run, rounds=300)):
        raise error
    assert (run / "config.json").read_bytes() == before


def test_what_cannot_be_opened_is_not_in_config_json(run):
    before = (run / "config.json").read_bytes()
    (run / "metrics.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match=r"metrics\.csv"):
        RunFolder(config(run, rounds=300))
    assert (run / "config.json").read_bytes() == before


def test_a_round_under_new_settings_keeps_them(run):
    with (
        pytest.raises(OSError, match="full"),
        RunFolder(config(run, rounds=300)) as folder,
    ):
        last = folder.journal.releases
        release(folder, last)
        raise OSError(28, "full")
    assert json.loads((run / "config.json").read_text())["flags"]["rounds"] == 300


def test_a_config_json_that_is_no_text_comes_back(run):
    before = (run / "config.json").read_bytes()
    (run / "config.json").write_bytes(b"\xff" + before[1:])
    with RunFolder(config(run)):
        pass
    assert (run / "config.json").read_bytes() == before


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
    "error",
    [
        *(ArgumentError("zones", 9, "2"), FileError("a", "b"), FileNotFoundError()),
        *(ConnectionError("no worker"), FloatingPointError("not finite")),
    ],
)
@pytest.mark.parametrize("began", [True, False])
def test_a_run_that_is_refused_leaves_no_folder(tmp_path, error, began):
    with pytest.raises(type(error)), RunFolder(config(tmp_path / "new")) as folder:
        folder.resolve(partition_seed=3)
        if began:
            folder.begin()
        raise error
    assert not (tmp_path / "new").exists()


def test_what_was_there_before_or_was_released_is_left(tmp_path):
    """As is what ends by anything but a refusal."""
    (tmp_path / "old").mkdir()
    for name, error in (
        ("old", ArgumentError("zones", 9, "2")),
        ("released", ConnectionError("no worker")),
        ("ended", KeyboardInterrupt()),
    ):
        with pytest.raises(type(error)), RunFolder(config(tmp_path / name)) as folder:
            if name == "released":
                folder.begin()
                folder.journal.announce({"round": 1, "ran": {}})
            raise error
        assert (tmp_path / name / "config.json").exists()


def content(folder):
    """Every file's bytes and every folder's mode."""
    return {
        path: path.stat().st_mode if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("config.json", text) for text in ('{"lr": 0.1}', "[]", "{lr: 0.1}", "")),
        *(("model/best/weights.bin", "abc"), ("model", "a file")),
        ("checkpoints/step_10.pt", "abc"),
    ],
)
def test_a_folder_of_something_else_is_left_as_it_is(tmp_path, name, text):
    """Its config.json became a run's, and its model would have been removed."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
    before = content(tmp_path)
    with pytest.raises(ArgumentError, match=r"^out is .*are no run's") as error:
        RunFolder(config(tmp_path))
    assert "\n" not in str(error.value)
    assert content(tmp_path) == before


def test_a_folder_with_other_files_takes_a_run(tmp_path):
    for name in ("README.md", "data/config.json", "data/model/weights.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = content(tmp_path)
    # A start that was killed before config.json was there.
    (tmp_path / "checkpoints").mkdir(mode=0o700)
    for _ in range(2):
        with RunFolder(config(tmp_path)) as folder:
            release(folder, 0)
    assert before.items() <= content(tmp_path).items()
