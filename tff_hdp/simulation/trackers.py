"""Where a run's metrics go besides its folder: any `tff.program.ReleaseManager`."""

import asyncio
import concurrent.futures
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow_federated as tff

Tracker = tff.program.ReleaseManager[Any, int]

_PRIVACY = ("epsilon", "epsilon_rdp")
_TIME = ("round_seconds",)


def grouped(
    metrics: Mapping[str, float], tests: Collection[str]
) -> dict[str, dict[str, float]]:
    """A row of metrics.csv by group: `test`, `privacy`, `time`, else `operator`.

    Those of `operator` carry no noise and are for whoever runs the simulation.

    Args:
      metrics: The row, by column.
      tests: Which columns are `test` (`System.published`).
    """
    groups = {"test": tests, "privacy": _PRIVACY, "time": _TIME}
    found: dict[str, dict[str, float]] = {group: {} for group in (*groups, "operator")}
    for name, value in metrics.items():
        group = next((g for g, names in groups.items() if name in names), "operator")
        found[group][name] = value
    return found


class Tracking:
    """Hands every released round to a tracker.

    Args:
      tracker: Gets a round's metrics by group, with the round's number as key.
      tests: As in `grouped`.
    """

    def __init__(self, tracker: Tracker, tests: Collection[str]) -> None:
        self._tracker, self._tests = tracker, tests

    def __call__(self, number: int, metrics: Mapping[str, float], state: Any) -> None:
        """Releases a round and waits until the tracker has taken it."""
        del state
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            release = self._tracker.release(grouped(metrics, self._tests), number)
            thread.submit(asyncio.run, release).result()
