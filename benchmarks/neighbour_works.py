"""The works of the neighbour systems: each in a setting of its own paper.

What is run is what the system's script builds of the preset; the examples alone are
made up, so that no files are needed. Imports no TensorFlow, since who measures asks
for the arithmetic too.
"""

import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import works
from absl import flags

import tasks
from tasks import personal
from tasks.dataset import Examples
from tff_hdp import cli, systems
from tff_hdp.simulation.config import RunConfig

# Decides examples, who has which of them, initial weights and batches; never noise.
SEED = 1
_PRESETS = pathlib.Path(__file__).parents[1] / "scripts" / "papers"
# Training and test examples of the sets that are made up.
_SIZES = {
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
}


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A round of a neighbour system.

    Attributes:
      name: As in --work.
      system: As in `tff_hdp.systems.config_class`.
      preset: scripts/papers/<preset>.flags.
      changes: Settings to have instead of the preset's.
      without_noise: Settings that take its noise away, besides.
      rounding: See `works.Work`.
    """

    name: str
    system: str
    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    without_noise: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rounding: float = 0.0

    def config(self, *, noisy: bool, **others: Any) -> RunConfig:
        """The settings of a run.

        Args:
          noisy: With the preset's noise, or none.
          **others: Settings to have besides.
        """
        config_class = systems.config_class(self.system)
        values = flags.FlagValues()
        cli.define_flags(config_class, values)
        flags.DEFINE_string("flagfile", "", "", flag_values=values)
        values([self.preset, f"--flagfile={_PRESETS / self.preset}.flags"])
        preset = cli.config_from_flags(config_class, values)
        quiet = {} if noisy else self.without_noise
        settings = {"seed": SEED, **self.changes, **quiet, **others}
        return dataclasses.replace(preset, **settings)

    @property
    def round(self) -> "Round":
        """Who takes part in a round, and what it costs at least."""
        return _ROUNDS[self.system](self.name, self.config(noisy=True))


class Round(NamedTuple):
    """What is done in a round.

    Attributes:
      name: Of the work.
      clients: Cohort.
      flops: Multiplications and additions of its matrix products, by direct float32
        arithmetic on each client's examples: see `works.Work.example_flops`.
    """

    name: str
    clients: int
    flops: float


NEIGHBOURS = {
    work.name: work
    for work in (
        Neighbour(
            name="gfl",
            system="gfl",
            preset="gfl/figure2_hybrid",
            without_noise={"scheme": "none", "sigma_g": None},
        ),
        Neighbour(
            name="hfl_dp",
            system="hfl_dp",
            preset="hfl_dp/figure2_noisy",
            without_noise={"noise": "none", "clip_norm": None},
            rounding=0.03,
        ),
        Neighbour(
            name="fl_top",
            system="fl_top",
            preset="fl_top/table1_full",
            without_noise={"scheme": "fl_top", "noise_multiplier": None},
            rounding=0.03,
        ),
        Neighbour(
            name="udp_alg",
            system="udp_hypernet",
            preset="udp_alg/2a",
            changes={"privacy": "udp_alg", "sigma": 0.05, "clip_norm": 0.1},
            without_noise={"privacy": "none", "sigma": None},
            rounding=0.03,
        ),
    )
}


def use_made_up_examples() -> None:
    """Has tasks of this process read random pixels of their data sets' shapes."""
    for name, sizes in _SIZES.items():
        dataset = tasks.TASKS[name]
        read = functools.partial(_examples, sizes, dataset)
        tasks.TASKS[name] = dataclasses.replace(
            dataset, files=None, read=lambda _, read=read: read()
        )


def _examples(sizes: tuple[int, int], dataset: tasks.Dataset) -> Examples:
    rng = np.random.default_rng(SEED)
    train, test = (
        rng.integers(256, size=(size, *dataset.input_shape), dtype=np.uint8)
        for size in sizes
    )
    # Classes of equal size.
    labels, test_labels = (
        np.arange(size, dtype=np.int32) % dataset.num_classes for size in sizes
    )
    return Examples(
        features=train,
        labels=labels,
        test_features=test,
        test_labels=test_labels,
        source="random pixels",
        split="by their place",
    )


def _gfl(name: str, config: Any) -> Round:
    clients = config.repetitions * config.servers * config.per_round
    # One matrix, and no gradient of its inputs.
    return Round(name, clients, clients * config.batch_size * 4.0 * config.dimension)


def _hfl_dp(name: str, config: Any) -> Round:
    sizes = config.load_task(SEED).train.sizes
    steps = [config.k1 * config.local_steps] * len(sizes)
    return _trained(name, config, sizes, steps)


def _fl_top(name: str, config: Any) -> Round:
    sizes = config.load_task(SEED).train.sizes[: config.clients_per_round]
    steps = config.local_epochs * np.ceil(sizes / config.batch_size)
    return _trained(name, config, sizes, steps)


def _udp_alg(name: str, config: Any) -> Round:
    train, _ = personal.split(config.load_task(SEED), seed=SEED)
    sizes = train.sizes[: round(config.sampling_rate * len(train.sizes))]
    made = _trained(name, config, sizes, [config.local_steps] * len(sizes))
    # The hypernetwork, there and back: to three hidden layers, and to all weights.
    width, target = config.hidden_width, _model(config).num_parameters
    kernels = width * (config.descriptor_dim + 2 * width + target)
    return made._replace(flops=made.flops + len(sizes) * 6.0 * kernels)


_ROUNDS = {
    "gfl": _gfl,
    "hfl_dp": _hfl_dp,
    "fl_top": _fl_top,
    "udp_hypernet": _udp_alg,
}


def _trained(name: str, config: Any, sizes: Any, steps: Any) -> Round:
    """SGD of clients with so many examples for so many steps each."""
    examples = itertools.starmap(
        functools.partial(_seen, batch_size=config.batch_size),
        zip(map(int, sizes), map(int, steps), strict=True),
    )
    flops = float(sum(examples) * _model(config).example_flops)
    return Round(name, len(sizes), flops)


def _seen(size: int, steps: int, batch_size: int) -> int:
    """Examples in the first batches of passes over so many; a pass's last is short."""
    passes, others = divmod(steps, math.ceil(size / batch_size))
    return passes * size + others * batch_size


def _model(config: Any) -> works.Work:
    """The model, as a work of one client."""
    dataset = tasks.TASKS[config.task]
    built = dataset.models[config.model]
    return works.Work("", dataset.input_shape, built.filters, built.units, clients=1)
