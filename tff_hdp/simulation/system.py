"""What a system is to the training loop, and what most systems do alike."""

import abc
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import personal
from tff_hdp.privacy import NoisePlan, RoundLedger
from tff_hdp.simulation.classifier import (
    Classify,
    evaluation_of,
    load_classifier,
    save_classifier,
    seeded,
)
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.config import RunConfig
from tff_hdp.topology import Zoning

# From a client's index to its own generator.
RngOf = Callable[[int], np.random.Generator]
_TESTS = ("accuracy", "user_accuracy", "loss", "balanced_accuracy", "auroc")
NO_NOISE = "No noise was added: no observer is promised anything."


class Process(Protocol):
    """A `tff.learning.templates.LearningProcess`, or what looks like one."""

    def initialize(self) -> Any:
        """The state before the first round."""

    def next(self, state: Any, data: Any) -> Any:
        """One round; the output has `state` and `metrics`."""

    def set_model_weights(self, state: Any, weights: Any) -> Any:
        """The state with other model weights."""


@dataclasses.dataclass(frozen=True)
class RoundInput:
    """What goes into one round.

    Attributes:
      data: The clients' data, as the process's `next` takes it.
      carried: JSON, handed to the next round's `prepare` and kept in checkpoints.
      metrics: Columns of metrics.csv known before the round is run.
    """

    data: Any
    carried: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)


class System(abc.ABC):
    """A system ready to train: what the loop asks of it.

    What is written here is federated averaging of a Keras classifier. A system's
    `__init__` sets the attributes; it must say what a round's data are (`round_data`,
    or `prepare` whole), what of a round is accounted (`accounted`, or `record` whole),
    and what its epsilons rest on. Which ledger keeps its rounds, its config says.
    Everything else it overrides where it differs.

    Attributes:
      config: The run's settings.
      task: The clients' data, the test set and the model.
      process: What runs a round; best built when first asked for, as whoever only
        tests a finished run's model has no use for it.
      plan: What is put into the ledger for a round; any value with `is_noisy`.
      sampling: How each zone of `zoning` draws its cohort.
      zoning: Who belongs where, in the order of `task.train.client_ids`.
      headline: The test metric that progress bar and figure show.
      headline_falls: Whether less of it is better.
      is_personal: Whether every client has a model of its own.
    """

    config: RunConfig
    task: tasks.Task
    process: Process
    plan: Any
    sampling: NoisePlan
    zoning: Zoning
    headline: str = "accuracy"
    headline_falls: bool = False
    is_personal: bool = False

    # Before the first round --------------------------------------------------

    @property
    def most_rounds(self) -> float:
        """Most rounds that may be released; a round run again counts again."""
        return math.inf

    def initial_state(self, seed: int | None) -> Any:
        """The state before round 1.

        Args:
          seed: Fixes the initial weights, for tests; it does not reach any noise.
        """
        with seeded(seed):
            weights = tf.nest.map_structure(np.asarray, self.initial_weights())
        return self.process.set_model_weights(self.process.initialize(), weights)

    def initial_weights(self) -> Any:
        """The process's model weights before round 1: those of a new model."""
        return tff.learning.models.ModelWeights.from_model(self.task.build_model())

    # A round -----------------------------------------------------------------

    def prepare(
        self, entropy: int, number: int, carried: dict[str, Any], *, earlier: int = 0
    ) -> RoundInput:
        """A round's input: its cohort's data.

        What comes of it depends on the arguments alone, so a resumed run goes on as an
        uninterrupted one. It runs in a thread of its own while the round before trains.

        Args:
          entropy: The run's secret.
          number: The round's, from 1.
          carried: What the round before carried; {} before round 1.
          earlier: How often this round was released before, by this run when it still
            had a checkpoint that is gone. It has a cohort of its own each time.
        """
        sampler = CohortSampler(plan=self.sampling, zoning=self.zoning, entropy=entropy)
        rng_of = sampler.batch_generators(number)
        cohort = sampler.draw(number, earlier=earlier)
        data = self.round_data(number, cohort, rng_of)
        return RoundInput(data, carried)

    def round_data(self, number: int, cohort: np.ndarray, rng_of: RngOf) -> Any:
        """What `process.next` takes for a cohort.

        Args:
          number: The round's.
          cohort: [k] int64, indices into `zoning.client_ids`, zone by zone.
          rng_of: From a client's index to what decides the order of its examples.
        """
        raise NotImplementedError(f"{type(self).__name__} prepares rounds another way")

    def weights_of(self, state: Any) -> Sequence[np.ndarray]:
        """The released parameters, which must stay finite."""
        return state.global_model_weights.trainable

    def measure(self, metrics: Any) -> dict[str, float]:
        """Columns of metrics.csv, from the process's metrics."""
        train = metrics["client_work"]["train"]
        return {
            "train_loss": float(train["loss"]),
            "train_accuracy": float(train["accuracy"]),
            **aggregate_columns(metrics["aggregator"]),
        }

    def evaluate(self, state: Any) -> dict[str, float]:
        """Test metrics of a state."""
        return self.test(self.released(state))

    @functools.cached_property
    def test(self) -> Any:
        """From model weights to test metrics."""
        return evaluation_of(self.task)

    # The model -------------------------------------------------------------------

    def released(self, state: Any) -> Any:
        """What makes the model of a state, as arrays: what is tested and saved."""
        return state.global_model_weights

    def save_model(self, released: Any, path: pathlib.Path) -> None:
        """Writes the model, with its preprocessing, for use without this library.

        Args:
          released: Of `released`.
          path: An empty folder.
        """
        model = self.task.build_model()
        released.assign_weights_to(model)
        save_classifier(model, self.task.test_features, path)

    def load_model(self, path: pathlib.Path) -> Classify:
        """What `save_model` wrote, as a function from examples to classes.

        Returns:
          A function from features [N, ...] and each example's client, int [N], to
          classes [N], which raises ValueError where it is no model of the task's
          classes. Most systems have one model for all clients.

        Raises:
          FileError: If a file is damaged or missing.
        """
        return load_classifier(path, self.task.num_classes)

    @property
    def published(self) -> tuple[str, ...]:
        """Columns of metrics.csv that tell no more of clients than the model does.

        None where test examples are clients' own, which no epsilon covers.
        """
        return _TESTS if self.task.tests_are_public else ()

    @property
    def own_tests(self) -> tasks.ClientData | None:
        """The clients' own test examples, of those that have any."""
        return personal.own_tests(self.task)

    # The account -------------------------------------------------------------

    def new_ledger(self) -> RoundLedger[Any]:
        """An empty ledger."""
        return self.config.new_ledger()

    def record(self, ledger: Any, metrics: Any) -> None:
        """Puts a round into a ledger, unless it was without noise.

        Args:
          ledger: Of `new_ledger`.
          metrics: The process's.
        """
        if self.plan.is_noisy:
            ledger.record(**self.accounted(metrics))

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """What a ledger's `record` takes of a round with noise, by argument.

        Args:
          metrics: The process's, with the events that the noise emitted.

        Raises:
          NoiseError: If it is not the noise of the account.
        """
        raise NotImplementedError(f"{type(self).__name__} records rounds another way")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the epsilons must know."""
        said = self.notes_on_noise() if self.plan.is_noisy else (NO_NOISE,)
        if self.plan.is_noisy and not self.task.tests_are_public:
            said += (TESTS_OF_CLIENTS,)
        return (*said, *self.other_notes())

    @abc.abstractmethod
    def notes_on_noise(self) -> tuple[str, ...]:
        """What the epsilons of a run with noise rest on."""

    def other_notes(self) -> tuple[str, ...]:
        """What is to be said of a run with noise or without."""
        return ()

    def promises(self, ledger: Any) -> list[dict[str, Any]]:
        """What clients were promised before the run, and what it came to.

        Args:
          ledger: Of `new_ledger`, with the rounds run.

        Returns:
          For each its words `promise`, the `epsilon` reached (None without a
          guarantee), `delta`, `method`, and whether it was `kept`.
        """
        del ledger
        return []

    # After the last round ----------------------------------------------------

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Writes what the system alone has to show into the run folder.

        Args:
          path: The run folder.
          state: After the last round.

        Returns:
          It as text, or nothing.
        """
        del path, state
        return ""


def aggregate_columns(measured: Any) -> dict[str, float]:
    """Columns of metrics.csv, from the measurements of a zoned mean."""
    return {
        "clients": int(np.sum(measured["clients"])),
        "rejected": int(measured["rejected"]),
        "update_norm": float(measured["update_norm"]),
        "clip_norm": float(measured["clip_norm"]),
    }


TESTS_OF_CLIENTS = (
    "The test examples are clients' own, and no epsilon covers them: what is measured "
    "on them, in metrics.csv and run.log, is for the operator of the simulation."
)


def for_the_operator(columns: str, also: str = "") -> str:
    """The note that some columns of metrics.csv, and what else, carry no noise."""
    return (
        f"{columns} in metrics.csv{also} carry no noise: they are for the operator of "
        "the simulation, and releasing them would void the epsilons, as would columns "
        "of seconds or bytes, which tell how many came."
    )
