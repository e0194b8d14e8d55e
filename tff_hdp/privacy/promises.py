"""A promise, and how a plan keeps it."""

import dataclasses

from tff_hdp.errors import (
    check_count,
    check_nonnegative,
    check_positive,
    check_word,
    require,
)
from tff_hdp.privacy.threat import ALL_OBSERVERS

# An epsilon nearer to what is promised than this share of it may decide the noise.
_NEAR = 0.01
# Whatever saves less than this share of the noise may save none: the least noise is
# found no nearer.
_LITTLE = 0.003


@dataclasses.dataclass(frozen=True)
class Promise:
    """An epsilon that clients are promised against an observer.

    That to `super_node` is made to clients that trust nobody, that to `aggregator` and
    to upper super-nodes to those that do not trust the server, others to all.

    Attributes:
      observer: As in `AccountRow`.
      epsilon: At most this, > 0.
      level: Of a `super_node`: 1 for the client's own, 2.. for those above.

    Raises:
      ArgumentError: If a field is out of range.
    """

    observer: str
    epsilon: float
    level: int = 1

    def __post_init__(self) -> None:
        check_word("promises", self.observer, ALL_OBSERVERS)
        epsilon = check_positive("promises", self.epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        level = check_count("promises", self.level, 1)
        object.__setattr__(self, "level", level)
        ok = self.level == 1 or self.observer == "super_node"
        found = f"{self.observer}:{self.level}"
        require(ok, "promises", found, "a level for a super_node only")

    @property
    def is_own(self) -> bool:
        """Whether it is against the client's own super-node."""
        return self.observer == "super_node" and self.level == 1

    def __str__(self) -> str:
        level = f":{self.level}" if self.level > 1 else ""
        return f"{self.observer}{level}<={self.epsilon:g}"


def from_clients_up(promise: Promise) -> tuple[int, int, float]:
    """Sorts promises by how far their observers are from the clients, then epsilon."""
    return ALL_OBSERVERS.index(promise.observer), promise.level, promise.epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """How a promise is kept.

    Attributes:
      promise: The promise.
      epsilon: What it came to, at most that.
      noise: Standard deviation in the released model, in units of the clip norm, of
        the noise added right beneath its observer for it; 0 where the noise that is
        there anyway keeps it. Client noise counts with the first promise.
      saved: Share of the released model's noise that 10 % more epsilon would save;
        None if not asked for.

    Raises:
      ArgumentError: If a number is negative or not finite.
    """

    promise: Promise
    epsilon: float
    noise: float
    saved: float | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise", "saved"):
            value = getattr(self, name)
            if value is not None or name != "saved":
                object.__setattr__(self, name, check_nonnegative(name, value))

    @property
    def is_near(self) -> bool:
        """Whether the epsilon is so near what is promised that it may bind."""
        return self.epsilon > (1.0 - _NEAR) * self.promise.epsilon

    @property
    def binds(self) -> bool:
        """Whether less noise would do with a larger epsilon, as far as is known."""
        if self.saved is not None:
            return self.saved > _LITTLE
        return self.is_near
