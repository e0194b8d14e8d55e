"""What scripts/plan.py prints of a plan."""

import dataclasses
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tff_hdp.privacy.accountant import account
from tff_hdp.privacy.table import account_text

if TYPE_CHECKING:
    from scripts.parts.plan_costs import Reached
    from scripts.plan import PlanConfig
    from tff_hdp.privacy.accountant import AccountRow
    from tff_hdp.privacy.planned import Planned


def as_json(
    config: "PlanConfig", found: "Planned", reached: "Sequence[Reached]" = ()
) -> str:
    """The plan with all it was made for, and what trainings reached."""
    fields = found.to_dict()
    fields["accounts"] = [row.to_dict() for row in _account(found)]
    if reached:
        accuracy = [dataclasses.asdict(each) for each in reached]
        fields |= {"task": config.task, "accuracy": accuracy}
    return json.dumps(fields, indent=2)


def as_text(
    config: "PlanConfig",
    found: "Planned",
    reached: "Sequence[Reached]" = (),
    given: Sequence[str] = (),
) -> str:
    """The plan for people, what each promise took, and how to train with it.

    Args:
      config: What was asked.
      found: The plan.
      reached: What trainings on `config.task` reached.
      given: More flags of scripts/train.py that those trainings had.
    """
    plan = found.plan
    zones = sorted(set(plan.zone_noise_multipliers))
    lines = [
        f"client noise multiplier  {plan.client_noise_multiplier:.6g}",
        f"zone noise multiplier    {_range(zones)}",
        *(
            f"level {number} multiplier       {_range(sorted(set(each)))}"
            for number, each in enumerate(
                (level.noise_multipliers for level in plan.upper_levels), start=2
            )
        ),
        f"server noise multiplier  {plan.server_noise_multiplier:.6g}",
        f"noise in the model       {found.noise:.6g} clip norms",
        "",
        f"{'promise':28}{'epsilon':>10}{'its noise':>12}{'10 % more saves':>18}",
    ]
    for kept in found.kept:
        noise = f"{kept.noise:.4g}" if kept.noise else "none"
        saved = "" if kept.saved is None else f"{100 * kept.saved:.3g} %"
        lines.append(f"{kept.promise!s:28}{kept.epsilon:>10.6g}{noise:>12}{saved:>18}")
    binding = ", ".join(str(kept.promise) for kept in found.kept if kept.binds)
    lines += [
        "",
        f"binds: {binding or 'none'}",
        "",
        f"By {found.method.upper()}, {found.rounds} rounds, delta {found.delta:g}. A "
        "promise without noise of its own is kept by that of others.",
        "",
        account_text([row.to_dict() for row in _account(found)]),
    ]
    if reached:
        lines += ["", *_costs(config, reached)]
    if config.out:
        untold = ", ".join(config.untold())
        if untold:
            lines += [
                "",
                f"scripts/train.py cannot be given {untold}: its account is without, "
                "that of the promises (in privacy.json) with it.",
            ]
        # The file's clients are not the task's.
        stand_in = bool(config.task)
        file = config.out
        if reached and found.noising:
            file = reached[-1].plan
            lines += [
                "",
                f"{config.out} is for the clients that it names. Those of "
                f"{config.task} train with the same noise by a file without names:",
            ]
        flags = [f"--plan={file}", *config.train_flags(stand_in=stand_in)]
        flags += [f"--task={config.task}"] if config.task else []
        lines += ["", shlex.join(["python", "scripts/train.py", *flags, *given])]
    else:
        lines += ["", "--out=plan.json writes the plan, and says how to train with it."]
    return "\n".join(lines)


def _account(found: "Planned") -> list["AccountRow"]:
    """What the promises rest on, by the method that keeps them."""
    methods = (found.method,)
    return account(found.plan, found.rounds, found.delta, methods, threat=found.threat)


def _costs(config: "PlanConfig", reached: "Sequence[Reached]") -> list[str]:
    """A line for each training: the accuracy, and what the last promise took of it."""
    lines = [f"{'kept':28}{'accuracy':>18}{'this one costs':>18}"]
    before: float | None = None
    for each in reached:
        spread = "" if each.spread is None else f" ± {each.spread:.3f}"
        cost = "" if before is None else f"{before - each.accuracy:.3f}"
        accuracy = f"{each.accuracy:.3f}{spread}"
        lines.append(f"{each.promise:28}{accuracy:>18}{cost:>18}".rstrip())
        before = each.accuracy
    return [
        *lines,
        "",
        f"Test accuracy on {config.task} after {reached[0].rounds} of {config.rounds} "
        f"rounds, seeds {','.join(config.seeds)}; each promise is kept beside those "
        "above it. What is chosen by results on private data is not accounted.",
    ]


def _range(values: list[float]) -> str:
    low, high = f"{values[0]:.6g}", f"{values[-1]:.6g}"
    return low if low == high else f"{low} to {high}"
