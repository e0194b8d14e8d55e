"""The loop itself, on a system without learning: order, resumption, refusals."""

import collections
import dataclasses
import json
import threading

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import RoundLedger
from tff_hdp.simulation.config import RunConfig
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


class Counting:
    """Adds each round's number to a total."""

    def initialize(self):
        return [np.zeros([2], np.float64)]

    def next(self, state, data):
        return Output([state[0] + data], {"round": data})


class CountingSystem(System):
    """Notes what it is asked to prepare; stops after a round, if told to."""

    headline = "total"
    plan = Plan(1.0)

    def __init__(self, seen, fail_after=None, value=None):
        self.process = Counting()
        self.seen, self.fail_after, self.value = seen, fail_after, value

    def initial_state(self, seed):
        return self.process.initialize()

    def prepare(self, entropy, number, carried):
        self.seen.append((entropy, number, carried.get("last"), threading.get_ident()))
        data = float(number) if self.value is None else self.value
        return RoundInput(data, {"last": number}, {"prepared": float(number)})

    def weights_of(self, state):
        return state

    def evaluate(self, state):
        return {"total": float(state[0][0])}

    def measure(self, metrics):
        return {"ran": float(metrics["round"])}

    def new_ledger(self):
        return RoundLedger(plan_type=Plan, account=lambda *_: [])

    def record(self, ledger, metrics, count):
        if self.fail_after is not None and metrics["round"] > self.fail_after:
            raise KeyboardInterrupt
        ledger.record(self.plan, count)

    def notes_on_noise(self):
        return ("of a test",)


def run(path, system, watchers=(), **changes):
    config = CountingConfig(**{"rounds": 6, "out": str(path)} | changes)
    folder = RunFolder(config)
    return train(config=config, system=system, folder=folder, watchers=watchers)


def test_rounds_are_prepared_in_order_one_ahead_and_never_beyond_the_last(tmp_path):
    seen = []
    state, ledger = run(tmp_path, CountingSystem(seen))
    assert state[0].tolist() == [21.0, 21.0]
    assert ledger.history == ((Plan(1.0), 6),)
    assert [number for _, number, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert [last for _, _, last, _ in seen] == [None, 1, 2, 3, 4, 5]
    assert threading.get_ident() not in {thread for *_, thread in seen}
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert frame["prepared"].tolist() == frame["ran"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_stopped_run_goes_on_with_what_it_carried(tmp_path):
    first, second = [], []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CountingSystem(first, fail_after=3))
    state, ledger = run(tmp_path, CountingSystem(second))
    assert state[0].tolist() == [21.0, 21.0]
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
    with pytest.raises(FloatingPointError, match="round 1"):
        run(tmp_path, CountingSystem([], value=value))
    assert not (tmp_path / "privacy.json").exists()
    state, _ = run(tmp_path, CountingSystem([]))
    assert state[0].tolist() == [21.0, 21.0]


def test_a_folder_belongs_to_one_system(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=1)
    record = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(record | {"system": "other"}))
    with pytest.raises(ArgumentError, match="without a run of other"):
        run(tmp_path, CountingSystem([]), rounds=1)


def test_a_run_of_another_layout_is_refused_in_one_line(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=1)
    record = json.loads((tmp_path / "config.json").read_text())
    del record["layout"]
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(ArgumentError, match=r"^out is .*another version") as error:
        run(tmp_path, CountingSystem([]), rounds=1)
    assert "\n" not in str(error.value)


def test_trackers_get_every_released_round_by_group(tmp_path):
    released = {}

    class Tracker(tff.program.ReleaseManager):
        async def release(self, value, key):
            rows = pd.read_csv(tmp_path / "metrics.csv")["round"]
            released[key] = value, rows.iloc[-1]

    seen = []
    watchers = [Tracking(Tracker()), lambda number, _, state: seen.append(number)]
    run(tmp_path, CountingSystem([]), watchers, rounds=2)
    run(tmp_path, CountingSystem([]), watchers, rounds=3)
    assert seen == [1, 2, 2, 3]  # the second run resumes after round 2
    for key, (metrics, newest) in released.items():
        assert newest == key  # released before anybody hears of it
        assert metrics["privacy"].keys() == {"epsilon"}
        assert metrics["time"].keys() == {"round_seconds"}
        assert metrics["operator"]["total"] == sum(range(key + 1))


def test_the_board_has_the_groups_as_tags(tmp_path):
    run(tmp_path, CountingSystem([]), rounds=1)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert {tag.partition("/")[0] for tag in board.Tags()["tensors"]} == {
        *("operator", "privacy", "time"),
    }
