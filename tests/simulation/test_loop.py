"""The loop itself, on a system without learning: order, what it says, refusals."""

import contextlib
import errno
import logging
import math
import threading

import pandas as pd
import pytest
import tensorflow_federated as tff
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.simulation.counting import CountingConfig, CountingSystem, Plan, run, stated
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime.in_process.context import InProcessContext
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.trackers import Tracking


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


def test_a_round_is_released_while_the_next_is_computed(tmp_path, monkeypatch):
    begun = [threading.Event() for _ in range(8)]
    release = RunFolder.release_metrics

    def slow(folder, number, metrics):
        # Without end, would the next round wait for this.
        assert number == 6 or begun[number + 1].wait(60)
        release(folder, number, metrics)

    monkeypatch.setattr(RunFolder, "release_metrics", slow)
    order = []

    class Noting(CountingSystem):
        def measure(self, metrics):
            order.append(("measured", metrics["round"]))
            return super().measure(metrics)

    system = Noting([])
    compute = system.process.next

    def noting_next(state, data):
        begun[int(data)].set()
        return compute(state, data)

    system.process.next = noting_next
    run(tmp_path, system, [lambda number, *_: order.append(("told", number))])
    assert order == [(what, n) for n in range(1, 7) for what in ("measured", "told")]


def test_a_round_is_tested_while_the_next_is_computed(tmp_path):
    begun = [threading.Event() for _ in range(8)]

    class Waiting(CountingSystem):
        def evaluate(self, state):
            number = len(told) + 1
            # Without end, would the next round wait for this.
            assert number == 6 or begun[number + 1].wait(30)
            return super().evaluate(state)

    system, told = Waiting([]), []
    compute = system.process.next

    def noting_next(state, data):
        begun[int(data)].set()
        return compute(state, data)

    system.process.next = noting_next
    _, ledger = run(tmp_path, system, [lambda _, row, __: told.append(row)])
    assert ledger.history == ((Plan(1.0), 6),)
    assert [row["epsilon_rdp"] for row in told] == [10, 20, 30, 40, 50, 60]
    assert [row["total"] for row in told] == [1, 3, 6, 10, 15, 21]


def test_a_round_that_is_refused_ends_the_run_before_the_next_is_released(tmp_path):
    class Refusing(CountingSystem):
        def record(self, ledger, metrics):
            if metrics["round"] == 3:
                raise ArgumentError("events", "none", "noise as planned")
            super().record(ledger, metrics)

    system, told = Refusing([]), []
    with pytest.raises(ArgumentError, match="noise as planned"):
        run(tmp_path, system, [lambda number, *_: told.append(number)])
    # The fourth was computed, and nobody is told of it.
    assert len(system.process.ran) == 4
    assert told == [1, 2]
    assert pd.read_csv(tmp_path / "metrics.csv")["round"].tolist() == [1, 2]
    with RunFolder(CountingConfig(rounds=6, out=str(tmp_path))) as folder:
        assert folder.journal.releases_by_round == {1: 1, 2: 1}


def test_a_round_is_tested_in_the_context_of_who_runs_it(tmp_path):
    class InContext(CountingSystem):
        def evaluate(self, state):
            seen.add(tff.framework.get_context_stack().current)
            return super().evaluate(state)

    seen, context = set(), InProcessContext()
    with tff.framework.get_context_stack().install(context):
        run(tmp_path, InContext([]))
    assert seen == {context}


def test_a_round_that_cannot_be_written_ends_the_run_before_the_next(
    tmp_path, monkeypatch
):
    def full(folder, number, metrics):
        if number == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        release(folder, number, metrics)

    release = RunFolder.release_metrics
    monkeypatch.setattr(RunFolder, "release_metrics", full)
    told = []
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, CountingSystem([]), [lambda number, *_: told.append(number)])
    assert told == [1]
    with RunFolder(CountingConfig(rounds=6, out=str(tmp_path))) as folder:
        assert folder.journal.releases_by_round == {1: 1, 2: 1}


def test_a_run_stopped_in_a_round_has_told_of_the_one_before(tmp_path):
    system, told = CountingSystem([]), []
    compute = system.process.next

    def stopped(state, data):
        if data == 3:
            raise KeyboardInterrupt
        return compute(state, data)

    system.process.next = stopped
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, system, [lambda number, *_: told.append(number)])
    assert told == pd.read_csv(tmp_path / "metrics.csv")["round"].tolist() == [1, 2]


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


def test_a_run_that_is_ended_where_it_stands_has_a_last_round(tmp_path):
    """It was to go on, so the round it stopped after had no test and no epsilon."""
    changes, told = {"evaluate_every": 4}, []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem([], fail_after=3), **changes)
    assert "total" not in pd.read_csv(tmp_path / "metrics.csv")
    changes["rounds"] = 3

    def note(number, metrics, _):
        told.append((number, metrics["total"], metrics["epsilon"]))

    for _ in range(2):
        seen = []
        run(tmp_path, CountingSystem(seen), [note], **changes)
        assert not seen
        frame = pd.read_csv(tmp_path / "metrics.csv")
        assert frame["round"].tolist() == [1, 2, 3]
        last = frame.iloc[-1]
        assert (last["total"], last["epsilon"], last["ran"]) == (6.0, 27.0, 3.0)
    assert told == [(3, 6.0, 27.0)] * 2
    # It goes on after all.
    run(tmp_path, CountingSystem([]), **changes | {"rounds": 5})
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["total"].dropna().tolist() == [6.0, 10.0, 15.0]
    assert frame["epsilon"].dropna().tolist() == [27.0, 45.0]


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
    assert said.startswith("round 4: most updates were rejected")


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
