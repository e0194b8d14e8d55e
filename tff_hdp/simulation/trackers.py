"""Where a run's metrics go besides its folder: any `tff.program.ReleaseManager`."""

import asyncio
import concurrent.futures
from collections.abc import Mapping
from typing import Any

import tensorflow_federated as tff

Tracker = tff.program.ReleaseManager[Any, int]

# The first word of a column says who may see it; see docs/how-to/track_a_run.md.
_GROUPS = {
    "test": ("accuracy", "user_accuracy", "loss", "balanced_accuracy", "auroc", "msd"),
    "privacy": ("epsilon",),
    "time": ("round_seconds",),
}


def grouped(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """A row of metrics.csv by group: `test`, `privacy`, `time`, else `operator`.

    Those of `operator` carry no noise and are for whoever runs the simulation.
    """
    found: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        group = (g for g, names in _GROUPS.items() if name.startswith(names))
        found.setdefault(next(group, "operator"), {})[name] = value
    return found


class Tracking:
    """Hands every released round to a tracker.

    Args:
      tracker: Gets a round's metrics by group, with the round's number as key.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def __call__(self, number: int, metrics: Mapping[str, float], state: Any) -> None:
        """Releases a round and waits until the tracker has taken it."""
        del state
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            release = self._tracker.release(grouped(metrics), number)
            thread.submit(asyncio.run, release).result()
