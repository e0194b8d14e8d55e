"""The loop itself, on a system without learning: order, deaths, refusals."""

import collections
import contextlib
import dataclasses
import errno
import json
import logging
import math
import os
import pathlib
import threading
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scripts.interruptions import Interruption, Observer, sample
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.simulation import checkpoints
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.report import read_run
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.simulation.trackers import Tracking
from tff_hdp.simulation.training import train

Output = collections.namedtuple("Output", ["state", "metrics"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountingConfig(RunConfig):
    system = "counting"


@dataclasses.dataclass(frozen=True)
class Plan:
    sigma: float
    is_noisy = True


def account(history, delta, methods):
    """Ten a round by RDP, nine by PLD."""
    rounds = sum(count for _, count in history)
    row = AccountRow(
        **{"observer": "released_model", "client_kind": "trusting", "zone": None},
        **{"noise_multiplier": 1.0, "delta": delta, "neighbours": "", "sampling": ""},
        **{"epsilon_rdp": 10.0 * rounds, "epsilon_paper": None, "assumptions": ""},
        epsilon_pld=9.0 * rounds if "pld" in methods else None,
    )
    return [row]


class Counting:
    """Adds each round's number to a total, and draws what tells attempts apart."""

    def __init__(self):
        self.ran = []

    def initialize(self):
        return [np.zeros([8], np.float64), np.zeros([2], np.float64)]

    def next(self, state, data):
        state = [np.random.default_rng().random(8), state[1] + data]
        self.ran.append(sample(state))
        return Output(state, {"round": data})


class CountingSystem(System):
    """Notes what it is asked to prepare; stops after a round, if told to."""

    headline = "total"
    plan = Plan(1.0)
    published = ("accuracy", "loss")
    task = types.SimpleNamespace(test_owners=None)

    def __init__(self, seen, fail_after=None, value=None):
        self.process = Counting()
        self.seen, self.fail_after, self.value = seen, fail_after, value

    def initial_state(self, seed):
        return self.process.initialize()

    def prepare(self, entropy, number, carried, *, earlier=0):
        self.seen.append((entropy, number, carried.get("last"), threading.get_ident()))
        data = float(number) if self.value is None else self.value
        return RoundInput(data, {"last": number}, {"prepared": float(number)})

    def weights_of(self, state):
        return state

    def evaluate(self, state):
        return {"total": float(state[1][0])}

    def measure(self, metrics):
        return {"ran": float(metrics["round"])}

    def new_ledger(self):
        return RoundLedger(plan_type=Plan, account=account)

    def record(self, ledger, metrics):
        if self.fail_after is not None and metrics["round"] > self.fail_after:
            raise KeyboardInterrupt
        ledger.record(self.plan)

    def notes_on_noise(self):
        return ("of a test",)


def run(path, system, watchers=(), **changes):
    config = CountingConfig(**{"rounds": 6, "out": str(path)} | changes)
    with RunFolder(config) as folder:
        return train(config=config, system=system, folder=folder, watchers=watchers)


def test_rounds_are_prepared_in_order_one_ahead_and_never_beyond_the_last(tmp_path):
    seen = []
    state, ledger = run(tmp_path, CountingSystem(seen))
    assert state[1].tolist() == [21.0, 21.0]
    assert ledger.history == ((Plan(1.0), 6),)
    assert [number for _, number, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert [last for _, _, last, _ in seen] == [None, 1, 2, 3, 4, 5]
    assert threading.get_ident() not in {thread for *_, thread in seen}
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["prepared"].tolist() == frame["ran"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_round_that_is_released_again_is_prepared_as_such(tmp_path):
    """It has a cohort of its own each time; one nobody saw has the same again."""

    class Noting(CountingSystem):
        def prepare(self, entropy, number, carried, *, earlier=0):
            self.asked.append((number, earlier))
            return super().prepare(entropy, number, carried, earlier=earlier)

    def go(lost=(), **options):
        for number in lost:
            next((tmp_path / "checkpoints").glob(f"*{number}")).unlink()
        system = Noting([], **options)
        system.asked = []
        with contextlib.suppress(KeyboardInterrupt):
            run(tmp_path, system)
        return system.asked

    # Stopped in round 4 before its line.
    assert go(fail_after=3)[:4] == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert go(lost=(2, 3)) == [(2, 1), (3, 1), (4, 0), (5, 0), (6, 0)]
    assert go(lost=(5, 6)) == [(5, 1), (6, 1)]
    assert go(lost=(6,)) == [(6, 2)]


def test_a_stopped_run_goes_on_with_what_it_carried(tmp_path):
    first, second = [], []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem(first, fail_after=3))
    state, ledger = run(tmp_path, CountingSystem(second))
    assert state[1].tolist() == [21.0, 21.0]
    assert ledger.rounds == 6
    assert [(number, last) for _, number, last, _ in second] == [(4, 3), (5, 4), (6, 5)]
    assert {entropy for entropy, *_ in first + second} == {first[0][0]}


def test_secrets_are_the_operating_systems_unless_seeded(tmp_path):
    entropies = []
    for name, changes in (("a", {}), ("b", {}), ("c", {"seed": 7}), ("d", {"seed": 7})):
        seen = []
        run(tmp_path / name, CountingSystem(seen), rounds=1, **changes)
        entropies.append(seen[0][0])
    assert entropies[0] != entropies[1]
    assert entropies[2] == entropies[3] == 7


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_stops_before_anything_is_written(tmp_path, value):
    out = tmp_path / "run"
    with pytest.raises(FloatingPointError, match="round 1"):
        run(out, CountingSystem([], value=value))
    # What it asks for are other settings, which a run that began would refuse.
    assert not out.exists()
    state, _ = run(out, CountingSystem([]), delta=1e-6)
    assert state[1].tolist() == [21.0, 21.0]


def test_that_most_updates_are_rejected_is_said_once(tmp_path, caplog):
    class Rejecting(CountingSystem):
        def measure(self, metrics):
            rejected = 10 * (metrics["round"] - 1)
            return {"clients": 40, "rejected": rejected}

    with caplog.at_level(logging.WARNING, logger="tff_hdp"):
        run(tmp_path, Rejecting([]))
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.startswith("round 4: 30 of 40 updates were rejected")


def test_what_released_a_round_stays_however_it_ends(tmp_path):
    class Breaking(CountingSystem):
        def prepare(self, entropy, number, carried, *, earlier=0):
            if number == 3:
                raise ConnectionError("no worker")
            return super().prepare(entropy, number, carried, earlier=earlier)

    with pytest.raises(ConnectionError):
        run(tmp_path / "run", Breaking([]))
    state, ledger = run(tmp_path / "run", CountingSystem([]))
    assert state[1].tolist() == [21.0, 21.0] and ledger.rounds == 6


def test_a_folder_belongs_to_one_system(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=1)

    class OtherConfig(CountingConfig):
        system = "other"

    with pytest.raises(ArgumentError, match="without a run of counting"):
        RunFolder(OtherConfig(out=str(tmp_path)))


def test_trackers_get_every_released_round_by_group(tmp_path):
    released = {}

    class Tracker(tff.program.ReleaseManager):
        async def release(self, value, key):
            rows = pd.read_csv(tmp_path / "metrics.csv")["round"]
            released[key] = value, rows.iloc[-1]

    seen = []
    watchers = [Tracking(Tracker(), ()), lambda number, _, state: seen.append(number)]
    run(tmp_path, CountingSystem([]), watchers, rounds=2)
    run(tmp_path, CountingSystem([]), watchers, rounds=3)
    assert seen == [1, 2, 2, 3]  # the second run resumes after round 2
    for key, (metrics, newest) in released.items():
        assert newest == key  # released before anybody hears of it
        assert metrics["privacy"].keys() >= {"epsilon_rdp"}
        assert metrics["time"].keys() == {"round_seconds"}
        assert metrics["operator"]["total"] == sum(range(key + 1))


def test_the_board_has_the_groups_as_tags(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=1)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert {tag.partition("/")[0] for tag in board.Tags()["scalars"]} == {
        *("operator", "privacy", "time"),
    }


# Deaths ----------------------------------------------------------------------


class Death(BaseException):
    """Ends a run as a kill would, but for the process."""


def die():
    raise Death


def fill_the_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def stated(path):
    file = path / "privacy.json"
    return json.loads(file.read_text())["rounds"] if file.exists() else 0


def all_events(path, rounds):
    with Interruption(path, None, die) as counted:
        run(path, CountingSystem([]), rounds=rounds)
    return counted.events


@pytest.mark.parametrize("act", [die, fill_the_disk])
def test_at_any_write_ledger_and_account_lead_what_was_released(tmp_path, act):
    """Every event of a run of three rounds and of the run that goes on with it."""
    rounds = 3
    exact = 0
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
        assert ledger.rounds == stated(out) >= len(observer.released) >= rounds
        assert pd.read_csv(out / "metrics.csv")["round"].tolist() == [1, 2, 3]
        # At most one round for each death counts more than once.
        assert ledger.rounds <= rounds + 2
        exact += ledger.rounds == rounds
    assert exact > events / 3


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
    write = checkpoints.write_checkpoint

    def look(path, record, tensors):
        if record["round"]:
            lines = disk.kept(out / "journal.jsonl").splitlines()
            stated = json.loads(disk.kept(out / "privacy.json"))["rounds"]
            seen.append((len(lines) - 1, stated >= record["round"]))
            assert out.name in disk._names[out.parent]
        write(path, record, tensors)

    monkeypatch.setattr(checkpoints, "write_checkpoint", look)
    run(out, Alternating([]), rounds=7)
    assert seen == [(n, True) for n in range(1, 8)]
    last = json.loads(disk.kept(out / "privacy.json"))
    assert (last["rounds"], last["last_round"]) == (7, 7)


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


# What is said meanwhile ------------------------------------------------------


def test_epsilon_is_the_reports_wherever_it_is_computed(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=103)
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["epsilon_rdp"].tolist() == [10.0 * n for n in range(1, 104)]
    given = frame.dropna(subset="epsilon")
    assert given["round"].tolist() == [100, 103]
    assert given["epsilon"].tolist() == [900, 927]


def test_the_model_is_tested_every_nth_round_and_after_the_last(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=8, evaluate_every=3)
    frame = pd.read_csv(tmp_path / "metrics.csv")
    tested = frame.dropna(subset="total")
    assert tested["round"].tolist() == [3, 6, 8]
    assert tested["total"].tolist() == [6, 21, 36]
    assert frame["ran"].tolist() == list(range(1, 9))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [({}, 14), ({"log_every": 10}, 4), ({"quiet": True}, 0)],
)
def test_a_log_is_not_flooded(tmp_path, caplog, capsys, changes, lines):
    with caplog.at_level(logging.INFO, logger="tff_hdp"):
        run(tmp_path, CountingSystem([]), rounds=40 if changes else 27, **changes)
    said = [r.message for r in caplog.records if r.message.startswith("round ")]
    assert len(said) == lines
    assert capsys.readouterr().err == ""
    if said:
        assert said[-1].endswith(f"epsilon {9 * (40 if changes else 27):.3g}")


def test_without_noise_no_epsilon_is_finite(tmp_path):
    class Silent(CountingSystem):
        def record(self, ledger, metrics):
            pass

    run(tmp_path, Silent([]), rounds=2)
    assert (pd.read_csv(tmp_path / "metrics.csv")["epsilon"] == math.inf).all()
    assert stated(tmp_path) == 0
