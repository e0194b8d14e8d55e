"""From promises to the plan with the least noise in the model that keeps them.

At a given client noise promises are kept from the clients up. What an observer's
clients lack is added by the node right beneath it: noise that an observer meets those
above it meet too, added lower it counts there for no more, added higher it does not
count. So the least at every node is the least of all, and where noise of nodes is known
to some observers it is the noise further up that is not.

How much noise clients add is not decided so. In the model it costs what those who take
part bring, on average; a client that takes part has all of its own. More than its own
super-node's promise asks for may save super-nodes more than it costs. With more client
noise the others' share only falls, and that alone bounds the least over any range of
it: see `least_sum`.

Not shown to be least is how zones share noise for a secure sum where super-nodes
collude: all add alike. Nor is how zones and the nodes above them do, where fellow
super-nodes know noise of both. And where rounds may have little noise by chance, more
of it may cost up to a twentieth of epsilon by Renyi DP, which leaves such rounds to
delta only where that saves more.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from tff_hdp.errors import (
    ArgumentError,
    check_bool,
    check_count,
    check_delta,
    check_word,
    entries,
    require,
)
from tff_hdp.privacy.accountant import SOUND, Sound
from tff_hdp.privacy.composition import MOST_PLD_ROUNDS
from tff_hdp.privacy.demands import (
    Federation,
    LackingError,
    demands_of,
    largest_epsilon,
)
from tff_hdp.privacy.least import least_sum
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned import Planned
from tff_hdp.privacy.planned_noise import SMALLEST_MULTIPLIER
from tff_hdp.privacy.promises import Kept, Promise, from_clients_up
from tff_hdp.privacy.threat import ThreatModel

# So many times its epsilon is that of a promise that is relaxed.
_RELAXED = 1.1
# How often a plan is brought in line with the account, and found anew from there.
_ATTEMPTS, _SEARCHES = 24, 3
# The least share of the variance in the model for whose sake clients add more noise
# than their own super-nodes' promises ask for.
_WORTH = 2e-3
# How near the targets of the search come to what the account asks for.
_MATCHED = 1e-4
# Share of a promised epsilon. Where a plan keeps so little by Renyi DP and another
# account still has no finite epsilon, no noise will give it one.
_FAR = 1e-2


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
      The plan. By Renyi DP its noise is within 0.7 % of the least, but where the
      docstring of `tff_hdp.privacy.planner` says that this is not shown.

    Raises:
      ArgumentError: If an argument is out of range, or no noise keeps a promise.
    """
    if not isinstance(federation, NoisePlan):
        name = type(federation).__name__
        raise ArgumentError("federation", name, "a NoisePlan without noise")
    ok, kinds = federation.estimator != "realised", "fixed (the default) or bounded"
    require(ok, "federation.estimator", "realised", kinds)
    # It is for plans whose server alone noises; the least noise may lie anywhere.
    ok, kind = federation.clipping.kind != "adaptive", "federation.clipping.kind"
    require(ok, kind, "adaptive", "flat (the default) or per_layer")
    delta = check_delta("delta", delta)
    rounds = check_count("rounds", rounds, 1)
    require(not federation.is_noisy, "federation", "noisy", "a plan without noise")
    check_word("method", method, SOUND)
    most = f"at most {MOST_PLD_ROUNDS}, of which PLD is taken; or method rdp"
    require(method == "rdp" or rounds <= MOST_PLD_ROUNDS, "rounds", rounds, most)
    relax = check_bool("relax", relax)
    require(isinstance(threat, ThreatModel), "threat", threat, "a ThreatModel")
    promises = sorted(_promises(promises), key=from_clients_up)
    if trusting is None:
        trusting = (0,) * federation.num_zones
    trusting = entries("trusting", trusting, check_count)
    asked = Federation(
        base=federation, trusting=trusting, rounds=rounds, delta=delta, threat=threat
    )
    require(callable(say), "say", say, "a function of words")
    keeper = _Keeper(asked, promises, method, say)
    least, kept = keeper.least()
    noise = noise_in_model(least)
    if relax:
        kept = tuple(
            dataclasses.replace(
                each, saved=keeper.saved(i, noise) if each.is_near else 0.0
            )
            for i, each in enumerate(kept)
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


class _Keeper:
    """Keeps promises in one federation, with the least noise.

    The search is by Renyi DP, which is cheap. Where privacy loss distributions count,
    it aims at those epsilons by Renyi DP that go with what is promised by them, found
    at the plan itself: plan and targets are improved in turn.
    """

    def __init__(
        self,
        federation: Federation,
        promises: Sequence[Promise],
        method: Sound,
        say: Callable[[str], None],
    ) -> None:
        self._federation, self._method, self._say = federation, method, say
        self._promises = promises
        self._of = [demands_of(federation, promise) for promise in promises]
        self._demands = [demand for demands in self._of for demand in demands]
        # The rest comes in where what these ask for leaves it wanting.
        self._active = [demand for demand in self._demands if demand.index == 0]

    def least(self) -> tuple[NoisePlan, tuple[Kept, ...]]:
        """The plan with the least noise in the model, and how it keeps each promise."""
        plan, reached = self._found()
        for _ in range(_SEARCHES - 1 if self._method != "rdp" else 0):
            targets = [demand.target for demand in self._demands]
            other, then = self._found()
            better = noise_in_model(other) / noise_in_model(plan) if then else 1.0
            if better < 1.0:
                plan, reached = other, then
            else:
                for demand, target in zip(self._demands, targets, strict=True):
                    demand.target = target
            if better > 1.0 - 10 * _MATCHED:
                break
        added = self._added(plan)
        return plan, tuple(
            Kept(promise=promise, epsilon=epsilon, noise=noise)
            for promise, epsilon, noise in zip(
                self._promises, reached, added, strict=True
            )
        )

    def saved(self, which: int, noise: float) -> float:
        """Share of the noise that is saved where one of the promises is relaxed.

        By the search alone, with the targets that belong to the least plan.

        Args:
          which: The promise's place.
          noise: Of `noise_in_model`, of the least plan.
        """
        self._say(f"relaxing {self._promises[which]}")
        targets = [demand.target for demand in self._of[which]]
        for demand in self._of[which]:
            demand.target *= _RELAXED
        least = noise_in_model(self._filled(self._client()))
        for demand, target in zip(self._of[which], targets, strict=True):
            demand.target = target
        return max(0.0, 1.0 - least / noise) if noise else 0.0

    # Client noise ---------------------------------------------------------------

    def _client(self) -> float:
        """The client noise multiplier with which there is least noise in the model.

        What is least for some of the demands, and meets all, is least for all.

        Raises:
          ArgumentError: If no noise keeps a promise.
        """
        while True:
            client = self._client_of_active()
            if not self._widened(self._filled(client)):
                return client

    def _client_of_active(self) -> float:
        floor = self._floor()
        price = noise_in_model(self._federation.base.with_client_noise(1.0)) ** 2
        best, cost = floor, self._cost(floor)
        if price > 0.0 and self._federation.may_carry:
            low = max(floor, SMALLEST_MULTIPLIER) ** 2

            def falls(t: float) -> float:
                return max(self._cost(math.sqrt(t)) - price * t, 0.0)

            t = least_sum(falls, price, low)
            other = self._cost(math.sqrt(t)) if math.isfinite(t) else math.inf
            if other < (1.0 - _WORTH) * cost:
                best, cost = math.sqrt(t), other
        try:
            self._filled(best)
        except LackingError as error:
            raise error.demand.refusal(best) from None
        return best

    def _floor(self) -> float:
        """The least client noise multiplier that own super-nodes' promises allow."""
        floor = 0.0
        for demand in self._demands:
            if demand.promise.is_own:
                found = demand.least_client()
                if not math.isfinite(found):
                    raise demand.refusal(1.0)
                floor = max(floor, found)
        return floor

    def _cost(self, client: float) -> float:
        """Variance in the model with so much client noise; infinite if none will do."""
        try:
            return noise_in_model(self._filled(client)) ** 2
        except LackingError:
            return math.inf

    # Others' noise ----------------------------------------------------------------

    def _filled(self, client: float) -> NoisePlan:
        """The least noise of nodes at so much client noise.

        Raises:
          LackingError: If no noise of nodes is enough.
        """
        plan = self._federation.base.with_client_noise(client)
        for demand in self._demands:
            if demand in self._active:
                plan = demand.filled(plan)
        return plan

    def _widened(self, plan: NoisePlan) -> bool:
        """Whether a plan leaves demands wanting, which are then counted from now on."""
        waiting = [each for each in self._demands if each not in self._active]
        for demand in waiting:
            try:
                lacks = demand.filled(plan) is not plan
            except LackingError:
                lacks = True
            if lacks:
                self._active.append(demand)
        return len(self._active) > len(self._demands) - len(waiting)

    def _added(self, plan: NoisePlan) -> list[float]:
        """What each promise added to the model beyond those before it."""
        plan = self._federation.base.with_client_noise(
            plan.client_noise.noise_multiplier
        )
        noise, added = 0.0, []
        for demands in self._of:
            for demand in demands:
                if demand in self._active:
                    plan = demand.filled(plan)
            total = noise_in_model(plan)
            added.append(math.sqrt(max(total**2 - noise**2, 0.0)))
            noise = total
        return added

    # What counts --------------------------------------------------------------------

    def _found(self) -> tuple[NoisePlan, list[float]]:
        """A least plan, and the epsilons it comes to by the account that counts.

        Raises:
          ArgumentError: If no noise keeps a promise.
        """
        self._say("searching by RDP")
        client = self._client()
        at_floor = client <= self._floor()
        for _ in range(_ATTEMPTS):
            floor = self._floor()
            client = floor if at_floor else max(client, floor)
            try:
                plan = self._filled(client)
            except LackingError as error:
                raise error.demand.refusal(client) from None
            if self._widened(plan) or self._match(plan):
                continue
            reached = self._reached(plan)
            if reached is not None:
                return plan, reached
        promise = max(self._demands, key=lambda d: d.promise.epsilon / d.target).promise
        allowed = f"what {self._method.upper()} can be seen to keep; try method rdp"
        raise ArgumentError("promises", promise, allowed)

    def _match(self, plan: NoisePlan) -> bool:
        """Brings targets in line with the account; says whether any had to move."""
        if self._method == "rdp":
            return False
        moved = False
        for demand in self._demands:
            rdp = demand.epsilon(plan, "rdp")
            if rdp < 0.5 * demand.target:
                continue
            self._say(f"checking {demand.promise} by {self._method.upper()}")
            counted = demand.epsilon(plan, self._method)
            if (
                not math.isfinite(counted)
                and demand.target < _FAR * demand.promise.epsilon
            ):
                raise demand.refusal_of(plan, self._method)
            moved |= demand.match(rdp, counted, _MATCHED)
        return moved

    def _reached(self, plan: NoisePlan) -> list[float] | None:
        """Every promise's epsilon, for all it is made to; None if one is not kept.

        What is not kept has its target lowered.
        """
        history, reached = self._federation.history(plan), []
        for demands in self._of:
            self._say(f"checking {demands[0].promise} by {self._method.upper()}")
            reached.append(largest_epsilon(demands, history, self._method))
        kept = [
            demand.accept(found)
            for demands, found in zip(self._of, reached, strict=True)
            for demand in demands
        ]
        return reached if all(kept) else None


def noise_in_model(plan: NoisePlan) -> float:
    """Standard deviation in the released model, in units of the clip norm.

    It is that at the expected number of participants.
    """
    unit, of_client = plan.released_units, plan.client_noise.variance()
    # That one client moves a bounded mean by twice its part doubles no client's noise.
    twice = 2.0 if plan.estimator == "bounded" else 1.0
    rates = (1.0,) * plan.num_zones if plan.top_up else plan.participation
    total = 0.0
    for u, rate, count in zip(unit, rates, plan.noise_carriers, strict=True):
        total += (u / twice) ** 2 * rate * count * of_client
    for level, nodes in enumerate(plan.node_noise, 1):
        most = [0.0] * len(nodes)
        for node, u in zip(plan.nodes_at(level), unit, strict=True):
            most[node] = max(most[node], u)
        for noise, u in zip(nodes, most, strict=True):
            total += noise.variance(u)
    return math.sqrt(total)
