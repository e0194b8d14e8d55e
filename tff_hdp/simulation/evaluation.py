"""A finished run's model, tested class by class, zone by zone, client by client."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.reading import read_json
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.system import System
from tff_hdp.simulation.trained_model import ROUNDS


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What a model gets right.

    Attributes:
      card: The model's `card.json`.
      accuracy: On the task's test set; of personal models on the clients' own tests.
      confusion: [classes, classes] int64, how often each true class (row) was taken
        for each (column) there.
      clients: One row a client that has such examples: `client`, `zone`, `examples`,
        `accuracy`.
      clients_on: Which examples those are, in words.
    """

    card: dict[str, Any]
    accuracy: float
    confusion: np.ndarray
    clients: pd.DataFrame
    clients_on: str

    @property
    def zones(self) -> pd.DataFrame:
        """One row a zone: `zone`, `clients`, `examples`, `accuracy` over examples."""
        right = self.clients.assign(
            right=self.clients["accuracy"] * self.clients["examples"]
        ).groupby("zone")
        sums = right[["examples", "right"]].sum()
        return pd.DataFrame(
            {
                "zone": sums.index,
                "clients": right.size().to_numpy(),
                "examples": sums["examples"].to_numpy(),
                "accuracy": (sums["right"] / sums["examples"]).to_numpy(),
            }
        )

    @property
    def worst_decile(self) -> float:
        """Mean accuracy of the worst-off tenth of the clients, at least one."""
        accuracies = np.sort(self.clients["accuracy"])
        return float(accuracies[: max(1, len(accuracies) // 10)].mean())


def evaluate_run(config: RunConfig, which: str = "last") -> Evaluation:
    """Tests a model of a finished run; writes nothing.

    Args:
      config: The run's settings, `out` its folder.
      which: Of which round, `last` or `best`.

    Raises:
      ArgumentError: If `which` is another word.
      FileNotFoundError: If the folder holds no such model, or the data is missing.
      FileError: If config.json or a file of the model is damaged.
    """
    if which not in ROUNDS:
        raise ArgumentError("round", which, ", ".join(ROUNDS))
    path = pathlib.Path(config.out)
    model = path / "model" / which
    if not (model / "card.json").exists():
        raise FileNotFoundError(
            f"{model} is not there: the run has not ended, or an earlier version ran it"
        )
    return _evaluate(config.build(_FinishedRun(path)), model)


def _evaluate(system: System, model: pathlib.Path) -> Evaluation:
    loaded, task = system.load_model(model), system.task
    card = _read_card(model / "card.json", task.num_classes)

    def classify(features: np.ndarray, who: np.ndarray | None) -> np.ndarray:
        try:
            return loaded(features, who)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            raise FileError(
                model, f"holds no model of {task.name}'s examples: {error}"
            ) from error

    own = system.own_tests
    held = task.train if own is None else own
    number_of = {client: i for i, client in enumerate(task.train.client_ids)}
    who = [number_of[client] for client in held.client_ids]
    guesses = classify(held.features, np.repeat(who, held.sizes))
    right = np.add.reduceat(guesses == held.labels, held.offsets[:-1], dtype=np.int64)
    zone_of = [system.zoning.zone_of[i] for i in who]
    if names := system.zoning.zone_names:
        zone_of = [names[zone] for zone in zone_of]
    clients = pd.DataFrame(
        {
            "client": held.client_ids,
            "zone": zone_of,
            "examples": held.sizes,
            "accuracy": right / held.sizes,
        }
    )
    labels = held.labels
    if not system.is_personal:
        guesses, labels = classify(task.test_features, None), task.test_labels
    confusion = np.zeros([task.num_classes] * 2, np.int64)
    np.add.at(confusion, (labels, guesses), 1)
    return Evaluation(
        card=card,
        accuracy=float(np.mean(guesses == labels)),
        confusion=confusion,
        clients=clients,
        clients_on=(
            "their own training examples, as none has test examples"
            if own is None
            else "their own test examples"
        ),
    )


def _read_card(path: pathlib.Path, classes: int) -> dict[str, Any]:
    """What a model's card says; raises FileError unless it is one."""
    card = read_json(path)
    names = card.get("class_names") if isinstance(card, dict) else None
    named = names is None or (
        # Models of runs of before have no names in their cards.
        isinstance(names, list)
        and len(names) in (0, classes)
        and all(isinstance(name, str) for name in names)
    )
    if not (named and isinstance(card, dict) and {"round", "chosen"} <= card.keys()):
        raise FileError(path, f"is no card of a model of {classes} classes")
    return card


class _FinishedRun:
    """A run folder to read from: what is resolved again stays in memory.

    Raises:
      FileError: If its config.json does not say what was resolved.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path, file = path, path / "config.json"
        try:
            self.resolved: dict[str, Any] = dict(read_json(file)["resolved"])
            _ = self.resolved["partition_seed"]
        except (KeyError, TypeError, ValueError) as error:
            problem = f"is not of a run of this version: {error}"
            raise FileError(file, problem) from error

    def resolve(self, **values: Any) -> None:
        self.resolved |= values
