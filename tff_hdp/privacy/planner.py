"""From promises to the plan with the least noise that keeps them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tff_hdp.errors import ArgumentError, check_count, check_delta, check_word, require
from tff_hdp.privacy.accountant import SOUND, Sound
from tff_hdp.privacy.federation import Federation
from tff_hdp.privacy.keeper import Keeper
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned import Planned
from tff_hdp.privacy.promises import Promise, from_clients_up, noise_in_model
from tff_hdp.privacy.threat import ThreatModel


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
    if not isinstance(federation, NoisePlan):
        name = type(federation).__name__
        raise ArgumentError("federation", name, "a NoisePlan without noise")
    ok, kinds = federation.estimator != "realised", "fixed (the default) or bounded"
    require(ok, "federation.estimator", "realised", kinds)
    check_delta("delta", delta)
    rounds = check_count("rounds", rounds, 1)
    require(not federation.is_noisy, "federation", "noisy", "a plan without noise")
    check_word("method", method, SOUND)
    promises = sorted(_promises(promises), key=from_clients_up)
    trusting = (0,) * federation.num_zones if trusting is None else tuple(trusting)
    asked = Federation(
        base=federation, trusting=trusting, rounds=rounds, delta=delta, threat=threat
    )
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
        trusting=trusting,
    )


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
