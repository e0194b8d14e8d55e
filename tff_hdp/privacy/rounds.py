"""The rounds that were really run, under plans of any kind."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.checks import check_rounds

_FORMAT = 1
Plan = TypeVar("Plan")


class RoundLedger(Generic[Plan]):
    """Composes rounds of any frozen plan, also across resumed runs.

    Args:
      plan_type: A frozen dataclass.
      account: From (plan, rounds) pairs in the order they were run, delta and
        methods to the account's rows.
      to_dict: From a plan to JSON types; by default its fields as they are.
      from_dict: Its inverse; None passes the fields to `plan_type`, whose
        `__post_init__` then turns lists back into tuples.
    """

    def __init__(
        self,
        *,
        plan_type: type[Plan],
        account: Callable[
            [Sequence[tuple[Plan, int]], float, Sequence[Method]], list[AccountRow]
        ],
        to_dict: Callable[[Plan], dict[str, Any]] = dataclasses.asdict,
        from_dict: Callable[[Mapping[str, Any]], Plan] | None = None,
    ) -> None:
        self._plan_type = plan_type
        self._account = account
        self._to_dict = to_dict
        self._from_dict = from_dict or (lambda fields: plan_type(**fields))
        self._history: list[tuple[Plan, int]] = []

    @property
    def rounds(self) -> int:
        """Rounds recorded so far."""
        return sum(count for _, count in self._history)

    @property
    def history(self) -> tuple[tuple[Plan, int], ...]:
        """Plans in the order they were run, each with its number of rounds."""
        return tuple(self._history)

    def record(self, plan: Plan, count: int = 1) -> None:
        """Records `count` rounds of `plan`.

        Raises:
          ValueError: If `count` is no whole number >= 0.
          TypeError: If `plan` is of another type. Nothing is recorded then.
        """
        if not isinstance(plan, self._plan_type):
            raise TypeError(
                f"plan is a {type(plan).__name__}; "
                f"allowed is {self._plan_type.__name__}"
            )
        count = check_rounds("count", count)
        if count and self._history and self._history[-1][0] == plan:
            self._history[-1] = (plan, self._history[-1][1] + count)
        elif count:
            self._history.append((plan, count))

    def account(
        self, delta: float, methods: Sequence[Method] = METHODS
    ) -> list[AccountRow]:
        """Epsilon of the rounds recorded.

        Args:
          delta: In (0, 1).
          methods: Which epsilons to compute.

        Raises:
          ValueError: If nothing is recorded, or as the account raises.
        """
        if not self._history:
            raise ValueError("the ledger has 0 rounds; record some before an account")
        return self._account(self._history, delta, methods)

    def state_dict(self) -> dict[str, Any]:
        """The ledger as JSON types."""
        return {
            "format": _FORMAT,
            "history": [
                {"plan": self._to_dict(plan), "rounds": count}
                for plan, count in self._history
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the content with what `state_dict` wrote.

        Raises:
          ValueError: If `state` is of another format or holds a bad plan; the
            ledger is then as it was.
        """
        if state.get("format") != _FORMAT:
            raise ValueError(
                f"state['format'] is {state.get('format')!r}; allowed is {_FORMAT}"
            )
        fresh = copy.copy(self)
        fresh._history = []
        for entry in state["history"]:
            fresh.record(self._from_dict(entry["plan"]), entry["rounds"])
        self._history = fresh._history
