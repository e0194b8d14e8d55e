"""Run folders without training, for tests of what they keep."""

import collections

import numpy as np

from tff_hdp.privacy import Ledger, PoissonSampling, configurations
from tff_hdp.simulation.checkpoints import (
    Checkpoint,
)
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
            folder.checkpoints.save(checkpoint(number), ledger.state_dict())
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


def newest(path, number=5):
    return path / "checkpoints" / f"round_{number:06d}"
