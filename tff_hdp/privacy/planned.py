"""A plan with the promises that it was made for, and its file."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_hdp.errors import (
    FileError,
    check_count,
    check_delta,
    check_nonnegative,
    check_word,
    entries,
    from_fields,
    require,
)
from tff_hdp.files import write_json
from tff_hdp.privacy.accountant import SOUND, History, check_same_zones
from tff_hdp.privacy.demands import Federation, demands_of, largest_epsilon
from tff_hdp.privacy.plan import NoisePlan, plan_from_dict, plan_to_dict
from tff_hdp.privacy.promises import Kept, Promise
from tff_hdp.privacy.threat import AccountedRound, ThreatModel
from tff_hdp.reading import read_json

# Of the file; one without promises holds no run to anything.
_FORMAT = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan with what it was made for.

    Attributes:
      plan: Who adds which noise.
      threat: What is assumed of the parties.
      rounds: T.
      delta: Of every promise.
      method: The account that keeps them.
      kept: The promises, from the clients up.
      noise: Standard deviation of all noise in the released model, in units of the
        clip norm, at the expected number of participants.
      trusting: How many clients of each zone trust the server; empty for none.
      noising: Ids of the clients that carry noise, as many of each zone as the plan
        says; empty where it does not matter which.
    """

    plan: NoisePlan
    threat: ThreatModel
    rounds: int
    delta: float
    method: str = "pld"
    kept: tuple[Kept, ...] = ()
    noise: float = 0.0
    trusting: tuple[int, ...] = ()
    noising: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        fields = dataclasses.asdict(self) | {"plan": plan_to_dict(self.plan)}
        return {"format": _FORMAT, **fields}

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the plan for `--plan`; `read_plan` is the inverse.

        Raises:
          ValueError: If a number of it is not finite.
        """
        write_json(pathlib.Path(path), self.to_dict())

    def reached(self, history: History) -> list[tuple[Promise, float]]:
        """What the promises come to after some rounds, to all they are made to.

        Args:
          history: Rounds with how many times each was run, of the plan's zones and
            noising clients; what is assumed of the parties is what the plan assumes,
            and which zones were skipped.

        Returns:
          Every promise with its epsilon, by the plan's method and at its delta;
          infinite where nothing is guaranteed.

        Raises:
          ArgumentError: If rounds are of other zones or noising clients.
        """
        if not history:
            return [(kept.promise, 0.0) for kept in self.kept]
        check_same_zones([self.plan, *(run.plan for run, _ in history)])
        rounds = []
        for run, count in history:
            # Who noised in some rounds alone is of no kind that a promise is made to.
            noising, planned = run.plan.noising_clients, self.plan.noising_clients
            ok, allowed = noising == planned, f"{planned}, as in the plan"
            require(ok, "plan.noising_clients", noising, allowed)
            skipped = run.threat.skipped_zones
            threat = dataclasses.replace(self.threat, skipped_zones=skipped)
            rounds.append((AccountedRound(run.plan, threat), count))
        found = []
        for kept in self.kept:
            demands = demands_of(self.federation, kept.promise)
            epsilon = largest_epsilon(demands, rounds, self.method)
            found.append((kept.promise, epsilon))
        return found

    @functools.cached_property
    def federation(self) -> Federation:
        """To whom the promises are made.

        Raises:
          ArgumentError: If `trusting` does not fit the plan's zones.
        """
        return Federation(
            base=self.plan.without_noise(),
            trusting=self.trusting or (0,) * self.plan.num_zones,
            rounds=self.rounds,
            delta=self.delta,
            threat=self.threat,
        )


def _kept_from(_: str, fields: Mapping[str, Any]) -> Kept:
    promise = from_fields(Promise, fields["promise"])
    return from_fields(Kept, {**fields, "promise": promise})


def read_plan(path: str | pathlib.Path) -> Planned:
    """The plan that `Planned.write` wrote, with its promises.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If it holds no plan, or one of another version.
    """
    try:
        fields = dict(read_json(path))
        if (version := fields.pop("format", None)) != _FORMAT:
            raise ValueError(
                f"format {version}, not {_FORMAT}: make it again with scripts/plan.py"
            )
        found = Planned(
            plan=plan_from_dict(fields["plan"]),
            threat=from_fields(ThreatModel, fields["threat"]),
            rounds=check_count("rounds", fields["rounds"], 1),
            delta=check_delta("delta", fields["delta"]),
            method=check_word("method", fields["method"], SOUND),
            kept=entries("kept", fields["kept"], _kept_from),
            noise=check_nonnegative("noise", fields["noise"]),
            trusting=entries("trusting", fields["trusting"], check_count),
            noising=entries("noising", fields["noising"], _check_id),
        )
        # Of a zone's noising clients, the plan says how many: others than these.
        counts = collections.Counter(found.noising)
        twice = [client for client, times in counts.items() if times > 1]
        require(not twice, "noising", ", ".join(twice), "every client once")
        # Refuses promises that nobody of its federation is made.
        for kept in found.kept:
            demands_of(found.federation, kept.promise)
        return found
    except FileError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise FileError(path, f"no plan of this version: {error}") from error


def _check_id(name: str, value: Any) -> str:
    require(isinstance(value, str), name, value, "the id of a client")
    return value
