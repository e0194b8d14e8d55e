"""The GFL paper's figure with the rates its theorem claims, and MNIST by writer."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from scripts.papers.gfl import rates
from scripts.papers.studies import Line, Study
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.gfl.config import GflConfig

SCHEMES = ("none", "iid", "hybrid")
# sigma_g of the paper's figure and the larger one of its text, and between and below.
NOISES = (0.1, 0.2, 0.5, 1.0)
STEPS = (0.05, 0.1, 0.2)
_STEP, _NOISE = 0.1, 0.2
# What a scale changes of the presets, and figure 2's iterations at the paper's step.
SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "full": {"figure2": {}, "mnist": {}},
    "reduced": {"figure2": {"repetitions": 5}, "mnist": {"rounds": 150}},
    "tiny": {"figure2": {"evaluate_every": 1}, "mnist": {"rounds": 3}},
}
ITERATIONS = {"full": 1500, "reduced": 800, "tiny": 3}
# A run's MSD and accuracy are means over this share of its iterations, the last.
_TAIL = 1 / 3
# An MSD is flat from where its mean over a fifth of the iterations stays within this
# factor of its mean over the tail.
_FLAT = 2.0
# An MSD's rate is that of its fall from this share of its first to so many times what
# is left, if it was tested so often in between.
_FALLING = 0.1, 10.0
_LEAST_TESTS = 5


def figure2(iterations: int) -> Study:
    """The MSD that is left, over noise and step.

    Args:
      iterations: At the paper's step; a larger one takes as many fewer.
    """
    other_steps = [mu for mu in STEPS if mu != _STEP]
    runs = [("none", 0.0, mu) for mu in STEPS]
    for scheme in ("iid", "hybrid"):
        runs += [(scheme, sigma_g, _STEP) for sigma_g in NOISES]
        runs += [(scheme, _NOISE, mu) for mu in other_steps]
    runs += [("hybrid", max(NOISES), mu) for mu in other_steps]
    lines = []
    for scheme, sigma_g, mu in runs:
        changes = {"mu": mu, "rounds": round(iterations * _STEP / mu)}
        if scheme != "none":
            changes["sigma_g"] = sigma_g
        label = {"scheme": scheme, "sigma_g": sigma_g, "mu": mu}
        lines.append(Line(label, f"gfl/figure2_{scheme}", changes))
    return Study(
        paper="gfl",
        name="figure2",
        lines=lines,
        config_class=GflConfig,
        varied=("scheme", "sigma_g", "mu"),
        metric="msd",
        also=("msd_servers", "flat_from", "rate", "rate_fit"),
        measure=measure,
        derived={"slopes": rates.slopes},
    )


def mnist() -> Study:
    """The three schemes on MNIST by writer."""
    lines = [Line({"scheme": scheme}, f"gfl/mnist_{scheme}") for scheme in SCHEMES]
    return Study(
        paper="gfl",
        name="mnist",
        lines=lines,
        config_class=GflConfig,
        varied=("scheme",),
        measure=measure,
    )


def studies(scale: str) -> Mapping[str, Study]:
    """All studies at a scale, by part."""
    found = {s.name: s for s in (figure2(ITERATIONS[scale]), mnist())}
    if scale == "full":
        return found
    return {name: each.at(scale, SCALES[scale][name]) for name, each in found.items()}


def measure(path: pathlib.Path) -> Mapping[str, Any]:
    """Means over the last iterations; how the MSD fell, and from when on it is flat."""
    metrics = read_run(path).metrics
    names = [n for n in ("msd", "msd_servers", "accuracy") if n in metrics]
    tested = metrics.dropna(subset=names[0]).set_index("round")[names]
    found = _last(tested).mean().to_dict()
    if "msd" in tested:
        found["flat_from"] = flat_from(tested["msd"])
        found["rate"], found["rate_fit"] = rate(tested["msd"])
    return found


def rate(msd: pd.Series) -> tuple[float, float]:
    """How fast the logarithm of the MSD falls before what is left shows in it.

    Args:
      msd: By iteration.

    Returns:
      Its fall an iteration, by least squares, and the share of its variance that a
      straight line explains (R^2): near 1 where the MSD falls exponentially. NaN where
      it falls too little, or too fast, to tell.
    """
    share, multiple = _FALLING
    floor = multiple * _last(msd).mean()
    # Up to where it first comes near what is left, past which noise decides.
    near = np.flatnonzero(msd <= floor)
    falling = msd.iloc[: near[0] if len(near) else len(msd)]
    falling = np.log(falling[falling <= share * msd.iloc[0]])
    if len(falling) < _LEAST_TESTS:
        return math.nan, math.nan
    slope, start = np.polyfit(falling.index, falling, 1)
    unexplained = np.var(falling - slope * falling.index - start)
    return -slope, 1.0 - unexplained / np.var(falling)


def flat_from(msd: pd.Series) -> int:
    """The iteration from which on the MSD stays near what is left in the end."""
    left = _last(msd).mean()
    means = msd.rolling(max(1, len(msd) // 5), min_periods=1).mean()
    away = np.flatnonzero(np.abs(np.log(means / left)) > np.log(_FLAT))
    return int(msd.index[min(away.max(initial=-1) + 1, len(msd) - 1)])


def _last(tested: pd.DataFrame | pd.Series) -> pd.DataFrame | pd.Series:
    return tested[tested.index > (1 - _TAIL) * tested.index[-1]]
