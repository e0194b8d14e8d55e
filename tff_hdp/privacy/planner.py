"""From promises to the plan with the least noise that keeps them, and its file."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_hdp.errors import ArgumentError, FileError, check_count, check_delta, require
from tff_hdp.privacy.accountant import History
from tff_hdp.privacy.calibration import Sound
from tff_hdp.privacy.keeper import Keeper
from tff_hdp.privacy.ledger import plan_from_dict, plan_to_dict
from tff_hdp.privacy.parts import Level
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.promised import Federation
from tff_hdp.privacy.promises import Kept, Promise, from_clients_up, noise_in_model
from tff_hdp.privacy.threat import AccountedRound, ThreatModel

# Of the file; one without promises holds no run to anything.
_FORMAT = 2
_METHODS = ("rdp", "pld")


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
    """

    plan: NoisePlan
    threat: ThreatModel
    rounds: int
    delta: float
    method: str = "pld"
    kept: tuple[Kept, ...] = ()
    noise: float = 0.0
    trusting: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        fields = dataclasses.asdict(self) | {"plan": plan_to_dict(self.plan)}
        return {"format": _FORMAT, **fields}

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the plan for `--plan`; `read_plan` is the inverse."""
        pathlib.Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n")

    def reached(self, history: History) -> list[tuple[Promise, float]]:
        """What the promises come to after some rounds, to all they are made to.

        Args:
          history: Rounds with how many times each was run, over the plan's zones; what
            is assumed of the parties is what the plan assumes, and which zones were
            skipped.

        Returns:
          Every promise with its epsilon, by the plan's method and at its delta;
          infinite where nothing is guaranteed.
        """
        if not history:
            return [(kept.promise, 0.0) for kept in self.kept]
        rounds = [
            (_assumed(run, self.threat, run.threat.skipped_zones), count)
            for run, count in history
        ]
        federation = _federation(
            without_noise(self.plan),
            self.trusting or None,
            self.rounds,
            self.delta,
            self.threat,
        )
        return [
            (
                kept.promise,
                federation.reached(
                    federation.demands(kept.promise), rounds, self.method
                ),
            )
            for kept in self.kept
        ]


def read_plan(path: str | pathlib.Path) -> Planned:
    """The plan that `Planned.write` wrote, with its promises.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If it holds no plan, or one of another version.
    """
    try:
        fields = dict(json.loads(pathlib.Path(path).read_text()))
        if (version := fields.pop("format", None)) != _FORMAT:
            raise ValueError(
                f"format {version}, not {_FORMAT}: make it again with scripts/plan.py"
            )
        if (method := fields["method"]) not in _METHODS:
            raise ArgumentError("method", method, ", ".join(_METHODS))
        found = Planned(
            plan=plan_from_dict(fields["plan"]),
            threat=ThreatModel(**fields["threat"]),
            rounds=check_count("rounds", fields["rounds"]),
            delta=float(fields["delta"]),
            method=method,
            kept=tuple(
                Kept(**each | {"promise": Promise(**each["promise"])})
                for each in fields["kept"]
            ),
            noise=float(fields["noise"]),
            trusting=tuple(fields["trusting"]),
        )
        check_delta("delta", found.delta)
        return found
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(path, f"no plan of this version: {error}") from error


def without_noise(plan: NoisePlan) -> NoisePlan:
    """The plan's federation."""
    return dataclasses.replace(
        plan,
        client_noise_multiplier=0.0,
        zone_noise_multipliers=None,
        server_noise_multiplier=0.0,
        upper_levels=tuple(
            Level(level.parents, (0.0,) * len(level.noise_multipliers))
            for level in plan.upper_levels
        ),
    )


def plan(
    federation: NoisePlan,
    promises: Sequence[Promise] | Mapping[str, float],
    *,
    rounds: int,
    delta: float,
    trusting: Sequence[int] | None = None,
    threat: ThreatModel = ThreatModel(),
    method: Sound = "pld",
    relax: bool = False,
    say: Callable[[str], None] = lambda words: None,
) -> Planned:
    """The plan with the least noise in the released model that keeps all promises.

    Args:
      federation: A plan without noise: zones, levels, sampling, mixing, secure sums,
        and as `noising_clients` how many of each zone trust nobody.
      promises: From observers to epsilons.
      rounds: T >= 1.
      delta: In (0, 1).
      trusting: How many clients of each zone trust the server, and need no promise
        against the aggregator; None means none.
      threat: What is assumed of the parties.
      method: The account that must keep the promises.
      relax: Whether to find what relaxing each promise would save.
      say: Told in words what is being done, for programs to pass on.

    Returns:
      The plan. By Renyi DP its noise is within 0.7 % of the least, but for what
      `tff_hdp.privacy.keeper` says.

    Raises:
      ArgumentError: If an argument is out of range, or no noise keeps a promise.
    """
    check_delta("delta", delta)
    rounds = check_count("rounds", rounds, 1)
    require(not federation.is_noisy, "federation", "noisy", "a plan without noise")
    require(method in _METHODS, "method", method, ", ".join(_METHODS))
    promises = sorted(_promises(promises), key=from_clients_up)
    asked = _federation(federation, trusting, rounds, delta, threat)
    keeper = Keeper(asked, promises, method, say)
    least, kept = keeper.least()
    noise = noise_in_model(least)
    if relax:
        saved = [
            keeper.saved(i, noise) if each.is_near else 0.0
            for i, each in enumerate(kept)
        ]
        kept = tuple(
            dataclasses.replace(each, saved=share)
            for each, share in zip(kept, saved, strict=True)
        )
    return Planned(
        plan=least,
        threat=threat,
        rounds=rounds,
        delta=delta,
        method=method,
        kept=kept,
        noise=noise,
        trusting=asked.trusting,
    )


def _federation(
    base: NoisePlan,
    trusting: Sequence[int] | None,
    rounds: int,
    delta: float,
    threat: ThreatModel,
) -> Federation:
    return Federation(
        base=base,
        trusting=(0,) * base.num_zones if trusting is None else tuple(trusting),
        rounds=rounds,
        delta=delta,
        threat=threat,
    )


def _assumed(run: AccountedRound, threat: ThreatModel, skipped: int) -> AccountedRound:
    return AccountedRound(run.plan, dataclasses.replace(threat, skipped_zones=skipped))


def _promises(given: Sequence[Promise] | Mapping[str, float]) -> list[Promise]:
    """The promises as a list of them.

    Raises:
      ArgumentError: If they are something else, or none.
    """
    if isinstance(given, Mapping):
        given = [Promise(name, epsilon) for name, epsilon in given.items()]
    ok = isinstance(given, Sequence) and all(isinstance(p, Promise) for p in given)
    allowed = "a mapping from observers to epsilons, or a list of Promise"
    require(ok, "promises", given, allowed)
    require(bool(given), "promises", "", "one or more")
    return list(given)
