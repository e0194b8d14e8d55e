"""What the training loop needs of a system, and nothing about any one of them."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.accountant import Method


class Process(Protocol):
    """A `tff.learning.templates.LearningProcess`, or what looks like one."""

    def initialize(self) -> Any:
        """The state before the first round."""

    def next(self, state: Any, data: Any) -> Any:
        """One round; the output has `state` and `metrics`."""


class RoundBook(Protocol):
    """The rounds that were run and their account: a `Ledger` or `RoundLedger`."""

    @property
    def rounds(self) -> int:
        """Rounds recorded."""

    def account(self, delta: float, methods: Sequence[Method]) -> list[AccountRow]:
        """Epsilon per observer and kind of client."""

    def state_dict(self) -> dict[str, Any]:
        """The content as JSON types."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces the content."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """One of the five systems, ready to train.

    Attributes:
      process: What runs a round.
      initial_state: From the test seed, or None, to the state before round 1.
      prepare: From the run's secret, a round's number and what the round before
        carried, to the round's input. It depends on these alone, so a resumed run
        goes on as an uninterrupted one, and runs in a thread of its own while the
        round before trains.
      new_ledger: Makes an empty ledger.
      record: Puts a round into the ledger: the ledger, the round's metrics as the
        process gave them (None for rounds that were released, lost and run
        again) and how many rounds.
      weights_of: The released parameters, which must stay finite.
      evaluate: Test metrics of a state.
      measure: More columns of metrics.csv, from the process's metrics.
      notes: What a reader of the epsilons must know.
      headline: The test metric that progress bar and figure show.
      finish: Writes what the system alone has to show into the run folder after
        the last round and returns it as text.
    """

    process: Process
    initial_state: Callable[[int | None], Any]
    prepare: Callable[[int, int, dict[str, Any]], RoundInput]
    new_ledger: Callable[[], RoundBook]
    record: Callable[[Any, Any, int], None]
    weights_of: Callable[[Any], Sequence[np.ndarray]]
    evaluate: Callable[[Any], dict[str, float]]
    measure: Callable[[Any], dict[str, float]]
    notes: tuple[str, ...] = ()
    headline: str = "accuracy"
    finish: Callable[[pathlib.Path, Any], str] | None = None
