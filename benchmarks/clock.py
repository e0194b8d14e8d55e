"""When the rounds of a run are released."""

from collections.abc import Callable
from typing import Any


class Clock:
    """A tracker that notes it.

    Args:
      now: Seconds of the clock to read.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.times: list[float] = []

    async def release(self, value: Any, key: int) -> None:
        """Notes the time."""
        del value, key
        self.times.append(self._now())
