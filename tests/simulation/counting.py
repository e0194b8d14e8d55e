"""A system without learning, for tests of the loop."""

import collections
import dataclasses
import json
import threading
import types

import numpy as np

from scripts.parts.interruptions import sample
from tff_hdp.privacy import AccountRow, RoundLedger
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.simulation.training import train

Output = collections.namedtuple("Output", ["state", "metrics"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountingConfig(RunConfig):
    system = "counting"


@dataclasses.dataclass(frozen=True)
class Plan:
    sigma: float
    is_noisy = True


def account(history, delta, methods, observer=None):
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
    task = types.SimpleNamespace(tests_are_public=True)

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


def stated(path):
    file = path / "privacy.json"
    return json.loads(file.read_text())["rounds"] if file.exists() else 0
