"""Runs that end at any moment, and what their ledgers and accounts then say."""

import collections
import errno
import json
import os
import pathlib
import signal
import threading
import time

import pandas as pd
import pytest

from scripts.parts.interruptions import Interruption, Observer
from tests.simulation.counting import CountingConfig, CountingSystem, Plan, run, stated
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.files import write_text
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.report import read_run
from tff_hdp.simulation.run_folder import RunFolder


class Death(BaseException):
    """Ends a run as a kill would, but for the process."""


def die():
    raise Death


def fill_the_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def all_events(path, rounds):
    with Interruption(path, None, die) as counted:
        run(path, CountingSystem([]), rounds=rounds)
    return counted.events


@pytest.mark.parametrize("act", [die, fill_the_disk])
def test_at_any_write_ledger_and_account_lead_what_was_released(tmp_path, act):
    """Every event of a run of three rounds and of the run that goes on with it."""
    rounds = 3
    events = all_events(tmp_path / "whole", rounds)
    assert events > 8 * rounds
    for at in range(events):
        out = tmp_path / str(at)
        system, observer = CountingSystem([]), Observer(out)
        # Each attempt dies a little later than the one before, and the last ends.
        for death in (at, at // 2 + 5, None):
            with Interruption(out, death, act) as interruption:
                try:
                    _, ledger = run(out, system, rounds=rounds)
                except (Death, OSError):
                    assert interruption.events == death + 1
            assert stated(out) >= observer.look(system.process.ran)
        assert ledger.rounds == stated(out) == len(observer.released) == rounds
        assert pd.read_csv(out / "metrics.csv")["round"].tolist() == [1, 2, 3]
        assert [path.name for path in out.rglob(".*")] == [".lock"]
        # Each holds the run's secret, so that none may stay.
        kept = sorted(path.name for path in (out / "checkpoints").iterdir())
        assert kept == [f"round_{number:06d}" for number in (1, 2, 3)]


def test_what_a_killed_write_left_is_gone_with_the_next(tmp_path, monkeypatch):
    path = tmp_path / "file"
    with monkeypatch.context() as patch, pytest.raises(Death):
        # By another process.
        patch.setattr(os, "getpid", lambda: 1)
        patch.setattr(pathlib.Path, "replace", lambda *_: die())
        write_text(path, "of a run that was killed")
    write_text(path, "whole")
    assert list(tmp_path.iterdir()) == [path]


class Disk:
    """What a machine that loses its power is sure to keep, and no more.

    A file's content as of its last flush, under the names that its folder had at the
    folder's last flush.
    """

    def __init__(self, monkeypatch):
        self._contents, self._names = {}, {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, flush):
        def noting(descriptor):
            flush(descriptor)
            path = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.is_dir():
                self._names[path] = {p.name: p.stat().st_ino for p in path.iterdir()}
            else:
                inode = os.fstat(descriptor).st_ino
                self._contents[inode] = path.read_bytes()

        return noting

    def kept(self, path):
        return self._contents[self._names[path.parent][path.name]]


def test_what_was_released_is_stated_after_a_loss_of_power(tmp_path, monkeypatch):
    disk, out, seen = Disk(monkeypatch), tmp_path / "new" / "run", []
    replace = pathlib.Path.replace

    def look(path, target):
        number = target.name.removeprefix("round_")
        if number.isdigit() and int(number):
            lines = disk.kept(out / "journal.jsonl").splitlines()
            stated = json.loads(disk.kept(out / "privacy.json"))["rounds"]
            seen.append((int(number), len(lines) - 1, stated >= int(number)))
            assert out.name in disk._names[out.parent]
        replace(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", look)
    run(out, Alternating([]), rounds=7)
    assert seen == [(n, n, True) for n in range(1, 8)]
    last = json.loads(disk.kept(out / "privacy.json"))
    assert (last["rounds"], last["last_round"]) == (7, 7)


def test_a_loss_of_power_leaves_the_checkpoint_before_the_last(tmp_path, monkeypatch):
    """Without one what was released could not go on."""
    disk, out, seen = Disk(monkeypatch), tmp_path / "run", []
    replace = pathlib.Path.replace

    def look(path, target):
        number = target.name.removeprefix("round_")
        if path.name == "unfinished" and int(number) > 1:
            before = target.with_name(f"round_{int(number) - 1:06d}")
            seen.append(disk.kept(before) == before.read_bytes())
        replace(path, target)

    monkeypatch.setattr(pathlib.Path, "replace", look)
    run(out, CountingSystem([]), rounds=5)
    assert seen == [True] * 4
    assert f"round_{5:06d}" in disk._names[out / "checkpoints"]


def test_a_run_killed_between_rounds_counts_each_once(tmp_path):
    for after in (1, 2, 4):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, CountingSystem([], fail_after=after))
        assert stated(tmp_path) >= after
    state, ledger = run(tmp_path, CountingSystem([]))
    assert ledger.rounds == stated(tmp_path) == 6
    assert state[1].tolist() == [21.0, 21.0]


def test_privacy_json_is_ahead_by_rounds_alike(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem([], fail_after=13), rounds=40)
    privacy = json.loads((tmp_path / "privacy.json").read_text())
    assert privacy["last_round"] == privacy["rounds"] == 22
    assert privacy["accounts"][0]["epsilon_rdp"] == 220
    assert "in advance" in privacy["notes"][-1]


def test_a_run_that_was_killed_where_privacy_json_ends_is_no_finished_one(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem([], fail_after=11), rounds=40)
    assert stated(tmp_path) == len(pd.read_csv(tmp_path / "metrics.csv")) == 11
    with pytest.raises(FileNotFoundError, match=r"no finished run: .* round 11 of 40"):
        read_run(tmp_path)


def test_a_refused_command_leaves_the_settings_of_the_run(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=3)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(ArgumentError, match="rounds is 2; allowed: at least 3"):
        run(tmp_path, CountingSystem([]), rounds=2)
    assert (tmp_path / "config.json").read_bytes() == before
    run(tmp_path, CountingSystem([]), rounds=4)
    assert (tmp_path / "config.json").read_bytes() != before


class Alternating(CountingSystem):
    """Every third round has other noise."""

    def record(self, ledger, metrics):
        ledger.record(Plan(1.0 + (metrics["round"] % 3 == 0)))


def test_privacy_json_leads_rounds_that_differ(tmp_path, monkeypatch):
    seen = []
    release = RunFolder.release_metrics

    def look(folder, number, metrics):
        privacy = json.loads((tmp_path / "privacy.json").read_text())
        ledger = system.new_ledger()
        ledger.load_state_dict(privacy["ledger"])
        counts = collections.Counter()
        for plan, count in ledger.history:
            counts[plan.sigma] += count
        seen.append(counts[2.0] >= number // 3 and counts[1.0] >= number - number // 3)
        release(folder, number, metrics)

    monkeypatch.setattr(RunFolder, "release_metrics", look)
    system = Alternating([])
    _, ledger = run(tmp_path, system, rounds=12)
    assert seen == [True] * 12
    assert [count for _, count in ledger.history] == [2, 1] * 4
    again = system.new_ledger()
    with RunFolder(CountingConfig(rounds=12, out=str(tmp_path))) as folder:
        folder.journal.recall(again)
    assert again == ledger


def test_a_release_that_nobody_waits_for_keeps_the_folder(tmp_path, monkeypatch):
    """Interrupted twice while a round is released, which goes on: nobody else may run.

    Else that release would write over what a later run has stated.
    """
    stalled, goes_on = threading.Event(), threading.Event()
    write = RunFolder.write_privacy

    def slow(folder, *arguments, **options):
        if not stalled.is_set():
            stalled.set()
            assert goes_on.wait(60)
        return write(folder, *arguments, **options)

    def interrupt():
        assert stalled.wait(60)
        for _ in range(2):
            time.sleep(0.5)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    monkeypatch.setattr(RunFolder, "write_privacy", slow)
    interrupts = threading.Thread(target=interrupt)
    interrupts.start()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem([]), rounds=14)
    interrupts.join()
    with pytest.raises(ArgumentError, match="a folder no other run is using"):
        run(tmp_path, CountingSystem([]), rounds=14)
    goes_on.set()
    for _ in range(600):
        try:
            with RunFolder(CountingConfig(rounds=14, out=str(tmp_path))):
                break
        except ArgumentError:
            time.sleep(0.1)
    _, ledger = run(tmp_path, CountingSystem([]), rounds=14)
    assert ledger.rounds == stated(tmp_path) >= 14


@pytest.mark.parametrize("harm", [lambda text: text[:-20], lambda text: text + b"a\n"])
def test_a_journal_that_somebody_else_wrote_to_is_not_cut(tmp_path, harm):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({"began": True})
    journal.announce(journal.entry(1, {"history": []}))
    harmed = harm(journal.path.read_bytes())
    journal.path.write_bytes(harmed)
    with pytest.raises(FileError, match="somebody else wrote to it"):
        journal.announce(journal.entry(2, {"history": []}))
    assert journal.path.read_bytes() == harmed
