"""All five systems on one task at one sound epsilon: a run a system and seed."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scripts.papers import presets
from scripts.papers.comparison.config import SYSTEMS, MatchedConfig
from scripts.papers.comparison.settings import (
    build_config,
    released,
    without_noise,
)
from scripts.papers.kept_curves import Run, by_label
from scripts.papers.studies import Line, Study
from scripts.parts import curves
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.report import read_run

PARTS = ("mnist", "mnist_linear", "mnist_coarse", "cifar10")
WITHOUT_NOISE = "mnist_without_noise"
NAMES = {
    "hdp": "HDP",
    "fl_top": "FL-TOP-DP",
    "udp_hypernet": "UDP-Alg",
    "gfl": "GFL, iid noise",
    "hfl_dp": "HFL-DP",
}
_NAMES_WITHOUT_NOISE = {**NAMES, "fl_top": "FL-TOP", "gfl": "GFL"}
_SLACK = 1e-3
_SCALES: dict[str, dict[str, Any]] = {
    "reduced": {"rounds": 15, "num_clients": 100, "clients_per_round": 50},
    "tiny": {
        "task": "digits",
        "num_clients": 50,
        "clients_per_round": 10,
        "rounds": 2,
        "batch_size": 5,
        "personal_model": None,
    },
}


class Matched(Study):
    """A study whose lines are systems, each noised for the same epsilon."""

    def config(self, line: Line, changes: Mapping[str, Any]) -> RunConfig:
        """See base class."""
        given = {**line.changes, **changes}
        asked = presets.read(line.preset, MatchedConfig, **given)
        system = system_of(line.label)
        built = build_config(asked, system)
        return dataclasses.replace(built, out=asked.out)


class Noiseless(Matched):
    """The same without noise."""

    def config(self, line: Line, changes: Mapping[str, Any]) -> RunConfig:
        """See base class."""
        return without_noise(super().config(line, changes))


def system_of(label: Mapping[str, Any]) -> str:
    """Which of `SYSTEMS` a line is of."""
    shown = label["system"]
    names = (NAMES, _NAMES_WITHOUT_NOISE)
    return next(k for found in names for k, name in found.items() if name == shown)


def studies(scale: str, target_epsilon: float | None = None) -> Mapping[str, Study]:
    """The comparison on each task at a scale.

    Args:
      scale: One of `program.SCALES`.
      target_epsilon: What is asked for instead of the presets', if anything.
    """
    found: dict[str, Study] = {}
    for part in PARTS:
        preset = presets.read(f"comparison/{part}", MatchedConfig)
        target = target_epsilon or preset.target_epsilon
        found[part] = Matched(
            paper="comparison",
            name=part,
            lines=_lines(part, NAMES),
            config_class=MatchedConfig,
            also=("own_accuracy",),
            measure=functools.partial(measure, target=target),
        )
    lines = _lines("mnist", _NAMES_WITHOUT_NOISE)
    found[WITHOUT_NOISE] = Noiseless(
        paper="comparison",
        name=WITHOUT_NOISE,
        lines=lines,
        config_class=MatchedConfig,
        varied=("target_epsilon", "clip_norm", "model_norm"),
        also=("own_accuracy",),
        measure=functools.partial(measure, target=None),
    )
    if scale == "full":
        return found
    return {part: study.at(scale, _SCALES[scale]) for part, study in found.items()}


def _lines(preset: str, names: Mapping[str, str]) -> list[Line]:
    return [
        Line({"system": names[system]}, f"comparison/{preset}") for system in SYSTEMS
    ]


def measure(path: pathlib.Path, target: float | None) -> Mapping[str, Any]:
    """Accuracy on the common test set; UDP-Alg's is the mean of its users' models.

    Args:
      path: The run folder.
      target: The epsilon asked for; None for none.

    Raises:
      ArgumentError: If the run's is another.
    """
    run = read_run(path)
    if target is not None:
        epsilon = released(run.accounts).epsilon_rdp
        if epsilon is None or abs(epsilon - target) > _SLACK * target:
            reached = f"what {path} reaches, which is {epsilon}"
            raise ArgumentError("target_epsilon", target, reached)
    if not (path / "users.csv").exists():
        return {"own_accuracy": float("nan")}
    users = pd.read_csv(path / "users.csv")
    common = users.get("common_accuracy", pd.Series(dtype=float)).mean()
    return {"own_accuracy": run.accuracy, "accuracy": common}


def draw(study: Study, runs: Sequence[Run], path: pathlib.Path) -> None:
    """Accuracy over rounds; UDP-Alg's is on its users' own tests."""
    del study
    found = by_label(runs, lambda run: run.settings["system"], "accuracy")
    curves.draw([curves.Panel(found)], path, ylabel="test accuracy", limits=(0, 1))
