"""The rounds that were really run, checked against what their events say."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tff_hdp.errors import (
    ArgumentError,
    NoiseError,
    check_count,
    check_names,
    from_fields,
    require,
)
from tff_hdp.privacy.accountant import (
    METHODS,
    AccountRow,
    Method,
    account_history,
    check_same_zones,
)
from tff_hdp.privacy.events import check_events
from tff_hdp.privacy.plan import (
    NoisePlan,
    plan_digest,
    plan_from_dict,
    plan_to_dict,
)
from tff_hdp.privacy.threat import AccountedRound, ThreatModel

_FORMAT = 3
Plan = TypeVar("Plan")


class RoundLedger(Generic[Plan]):
    """Composes rounds of any frozen plan, also across resumed runs.

    Args:
      plan_type: A frozen dataclass of JSON types, with tuples for lists.
      account: From (plan, rounds) pairs in the order they were run, delta, methods
        and an observer, or None for all, to the account's rows.
    """

    def __init__(
        self,
        *,
        plan_type: type[Plan],
        account: Callable[
            [Sequence[tuple[Plan, int]], float, Sequence[Method], str | None],
            list[AccountRow],
        ],
    ) -> None:
        self._plan_type = plan_type
        self._account = account
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
          ArgumentError: If `count` is no whole number >= 0, or the plan cannot follow
            those before.
          TypeError: If `plan` is of another type. Nothing is recorded then.
        """
        if not isinstance(plan, self._plan_type):
            raise TypeError(
                f"plan is a {type(plan).__name__}; "
                f"allowed is {self._plan_type.__name__}"
            )
        self._check_follows(plan)
        count = check_count("count", count)
        if count and self._history and self._history[-1][0] == plan:
            self._history[-1] = (plan, self._history[-1][1] + count)
        elif count:
            self._history.append((plan, count))

    def extend(self, other: "RoundLedger[Plan]") -> None:
        """Records the rounds of another ledger, which checked them as it did.

        Raises:
          ArgumentError: If they do not fit the rounds before, or it is no such
            ledger. Nothing is recorded then.
        """
        allowed = f"a {type(self).__name__}"
        require(isinstance(other, type(self)), "other", other, allowed)
        for plan, count in other.history:
            RoundLedger.record(self, plan, count)

    def account(
        self,
        delta: float,
        methods: Sequence[Method] = METHODS,
        observer: str | None = None,
    ) -> list[AccountRow]:
        """Epsilon of the rounds recorded.

        Args:
          delta: In (0, 1).
          methods: Which epsilons to compute.
          observer: Against whom alone; None for all.

        Raises:
          ValueError: If nothing is recorded, or as the account raises.
        """
        if not self._history:
            raise ValueError("the ledger has 0 rounds; record some before an account")
        return self._account(self._history, delta, methods, observer)

    def state_dict(self) -> dict[str, Any]:
        """The ledger as JSON types."""
        return {
            "format": _FORMAT,
            "history": [
                {**self._to_dict(plan), "rounds": count}
                for plan, count in self._history
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the content with what `state_dict` wrote.

        Raises:
          ArgumentError: If `state` is of another format or holds a bad plan; the
            ledger is then as it was.
        """
        is_mapping = isinstance(state, Mapping)
        require(is_mapping, "state", state, "what state_dict returned")
        if state.get("format") != _FORMAT:
            raise ArgumentError(
                "state['format']",
                state.get("format"),
                f"{_FORMAT}; rounds that another version recorded cannot be continued",
            )
        fresh = copy.copy(self)
        fresh._history = []
        try:
            if not isinstance(state["history"], list):
                raise TypeError("history is no list")
            for entry in state["history"]:
                entry = dict(entry)
                count = check_count("rounds", entry.pop("rounds"), 1)
                RoundLedger.record(fresh, self._from_dict(entry), count)
        except ArgumentError:
            raise
        except (
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            history, allowed = state.get("history"), "what state_dict returned"
            raise ArgumentError("state['history']", history, allowed) from error
        self._history = fresh._history

    def _check_follows(self, plan: Plan) -> None:
        """Raises ArgumentError if a plan cannot follow those recorded."""

    def _to_dict(self, plan: Plan) -> dict[str, Any]:
        return {"plan": dataclasses.asdict(plan)}

    def _from_dict(self, entry: Mapping[str, Any]) -> Plan:
        check_names("state['history']", entry, {"plan"})
        return from_fields(self._plan_type, entry["plan"])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._history == other._history

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        plans = len(self._history)
        return f"{type(self).__name__}(rounds={self.rounds}, plans={plans})"


class Ledger(RoundLedger[AccountedRound]):
    """Composes rounds of noise plans, also across changes of plan or threat model.

    Its account is that of `tff_hdp.privacy.account`; a client's kind is the one it
    has under the last plan.
    """

    def __init__(self) -> None:
        super().__init__(plan_type=AccountedRound, account=account_history)

    def record(
        self,
        plan: NoisePlan,
        count: int = 1,
        *,
        threat: ThreatModel = ThreatModel(),
        events: Mapping[str, Any] | None = None,
    ) -> None:
        """Records `count` rounds of `plan`.

        Args:
          plan: The plan that was run.
          count: How many rounds.
          threat: What is assumed of the parties in these rounds.
          events: What the levels' queries emitted in these rounds: `client` and
            `server` a `DpEvent`, `zone` one per zone, `upper` one list per upper
            level. A level may be missing, unless the plan has noise there and
            other levels are given. With them `clip_norms`, likewise by level: the
            norms to which the queries clip, where they are not known to be the
            plan's; by zone `clients`, how many took part in each of the rounds, and
            `noising`, how many added noise to their updates; and `plan`, the
            `plan_digest` of what was run.

        Raises:
          ArgumentError: If the threat model does not fit the plan, or the plan has
            other zones than the rounds before.
          NoiseError: If the events are of another plan; a level emitted less noise
            than the plan says or an event that cannot be accounted, or clips to more;
            if more clients of a zone took part than the plan draws; or if noise is
            missing of clients that were drawn, and `threat` has nothing that explains
            it. Nothing is recorded then.
        """
        run = AccountedRound(plan, threat)
        if events is not None:
            check_events(plan, events, threat)
            if events.get("plan", plan_digest(plan)) != plan_digest(plan):
                raise NoiseError("events: they are of a round of another plan")
        super().record(run, count)

    def _check_follows(self, plan: AccountedRound) -> None:
        before = [run.plan for run, _ in self._history[:1]]
        check_same_zones([*before, plan.plan])

    def _to_dict(self, plan: AccountedRound) -> dict[str, Any]:
        threat = dataclasses.asdict(plan.threat)
        return {"plan": plan_to_dict(plan.plan), "threat": threat}

    def _from_dict(self, entry: Mapping[str, Any]) -> AccountedRound:
        check_names("state['history']", entry, {"plan", "threat"})
        # Where journals do not say it yet, what a masking protocol would show.
        known = {"peers_known": bool(entry["plan"].get("secure_aggregation"))}
        threat = from_fields(ThreatModel, known | entry["threat"])
        return AccountedRound(plan_from_dict(entry["plan"]), threat)
