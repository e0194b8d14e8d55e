"""From promises to the plan with the least noise that keeps them, and its file."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_hdp.errors import FileError, check_count, check_delta, require
from tff_hdp.privacy.calibration import Sound
from tff_hdp.privacy.ledger import plan_from_dict, plan_to_dict
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.promises import (
    Keeper,
    Kept,
    Promise,
    from_clients_up,
    noise_in_model,
)
from tff_hdp.privacy.threat import ThreatModel

_RELAXED = 1.1


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
    """

    plan: NoisePlan
    threat: ThreatModel
    rounds: int
    delta: float
    method: str = "pld"
    kept: tuple[Kept, ...] = ()
    noise: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return dataclasses.asdict(self) | {"plan": plan_to_dict(self.plan)}

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the plan for `--plan`; `read_plan` is the inverse."""
        pathlib.Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n")


def read_plan(path: str | pathlib.Path) -> Planned:
    """The plan that `Planned.write` wrote; of what it promises, only the plan.

    Raises:
      FileNotFoundError: If there is no such file.
      FileError: If it holds no plan.
    """
    try:
        fields = json.loads(pathlib.Path(path).read_text())
        found = Planned(
            plan=plan_from_dict(fields["plan"]),
            threat=ThreatModel(**fields["threat"]),
            rounds=check_count("rounds", fields["rounds"]),
            delta=float(fields["delta"]),
        )
        check_delta("delta", found.delta)
        return found
    except (ValueError, TypeError, KeyError) as error:
        raise FileError(path, f"no plan of this version: {error}") from error


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

    Returns:
      The plan; multipliers are within 1e-4 of the least.

    Raises:
      ArgumentError: If an argument is out of range, or no noise keeps a promise.
    """
    check_delta("delta", delta)
    rounds = check_count("rounds", rounds, 1)
    require(not federation.is_noisy, "federation", "noisy", "a plan without noise")
    if isinstance(promises, Mapping):
        promises = [Promise(name, epsilon) for name, epsilon in promises.items()]
    promises = sorted(promises, key=from_clients_up)
    require(bool(promises), "promises", "", "one or more")
    keeper = Keeper(federation, trusting, rounds, delta, threat, method)
    least, kept = keeper.least(promises)
    noise = noise_in_model(least)
    if relax:
        saved = [
            _saved(keeper, promises, i, noise) if each.noise > 0 else 0.0
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
    )


def _saved(
    keeper: Keeper, promises: Sequence[Promise], which: int, noise: float
) -> float:
    """Share of the noise that is saved where one of the promises is relaxed."""
    relaxed = list(promises)
    epsilon = _RELAXED * promises[which].epsilon
    relaxed[which] = dataclasses.replace(promises[which], epsilon=epsilon)
    least, _ = keeper.least(relaxed)
    return max(0.0, 1.0 - noise_in_model(least) / noise)
