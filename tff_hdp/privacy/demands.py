"""What a promise asks for on behalf of one kind of client, in numbers of the account.

Noise that nodes add counts for a client by its variance alone: what its observer sees
of it, less what that observer knows. So, at a given client noise, what a promise asks
for is a least variance, which the account finds with noise right beneath the observer.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.accountant import (
    AccountRow,
    History,
    Sound,
    client_row,
    like_zones,
)
from tff_hdp.privacy.calibration import LARGEST_MULTIPLIER
from tff_hdp.privacy.federation import Federation, Place
from tff_hdp.privacy.least import least_below
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.promises import Promise
from tff_hdp.privacy.threat import RECEIVERS

# Share of an epsilon.
_FOR_GRIDS = 1e-3


class LackingError(Exception):
    """No noise of nodes meets a demand."""

    def __init__(self, demand: "Demand") -> None:
        super().__init__(demand)
        self.demand = demand


class Demand:
    """What one kind of client is promised, and what that needs.

    Args:
      federation: Of the client.
      promise: Made to it.
      level: At which the promise's observer stands.
      zones: Where clients of this kind are, which are alike.
      index: The client's place in its zone's order.
    """

    def __init__(
        self,
        federation: Federation,
        promise: Promise,
        level: int,
        zones: tuple[int, ...],
        index: int,
    ) -> None:
        self.promise, self.level, self.zones = promise, level, zones
        self.index = index
        # By Renyi DP; where another account counts, `match` moves it.
        self._margin = 1.0
        if federation.base.secure_aggregation or federation.base.secure_server:
            # For the grid on which a run takes such sums.
            self._margin -= _FOR_GRIDS
        self.target = self._margin * promise.epsilon
        self._federation, base = federation, federation.base
        zone = zones[0]
        self.place = Place(base, federation.threat, promise.observer, level)
        far = level > 2 or self.place.is_summed
        self.sees_nothing = far and base.mixing_weights[zone] == 0
        self._found: dict[float, float] = {}
        self._known: list[tuple[float, float, float]] = []

    def row(self, history: History, by: Sound, zone: int) -> AccountRow:
        """What rounds are worth to its client of a zone."""
        observer, delta = self.promise.observer, self._federation.delta
        return client_row(history, observer, self.level, zone, self.index, delta, (by,))

    def row_of(self, plan: NoisePlan, by: Sound) -> AccountRow:
        """What all rounds of a plan are worth to its clients."""
        return self.row(self._federation.history(plan), by, self.zones[0])

    def epsilon(self, plan: NoisePlan, by: Sound) -> float:
        """Of `row_of`."""
        return self.row_of(plan, by).epsilon(by)

    def needs(self, client: float, seen: float) -> float:
        """The least variance that it needs, of which some is there.

        Args:
          client: Client noise multiplier.
          seen: What there is, in the units of `Place.seen`.

        Returns:
          In those units, at least `seen`; infinite where no variance is enough.
        """
        if self.sees_nothing or self._is_met(client, seen):
            return seen
        if not self._is_met(client, LARGEST_MULTIPLIER**2):
            return math.inf
        found = least_below(
            lambda variance: self._epsilon_at(client, variance),
            self.target,
            self._guess(client),
        )
        self._found[client] = found
        return max(found, seen)

    def filled(self, plan: NoisePlan) -> NoisePlan:
        """`plan` with what noise it lacks, right beneath its observer.

        Raises:
          LackingError: If no noise there is enough.
        """
        if self.promise.is_own or self.sees_nothing:
            return plan
        place = self.place
        seen = place.seen(plan, self.zones[0])
        needs = self.needs(plan.client_noise_multiplier, seen)
        if needs <= seen:
            return plan
        if not math.isfinite(needs):
            raise LackingError(self)
        if place.is_summed:
            # Of a sum over zones it does not matter whose noise it is, unless some
            # collude: with as much in every zone they know the least of it.
            ones = (1.0,) * plan.num_zones
            even = dataclasses.replace(plan, zone_noise_multipliers=ones)
            z = math.sqrt(needs / place.seen(even, self.zones[0]))
            return dataclasses.replace(plan, zone_noise_multipliers=(z,) * len(ones))
        lacks, filled = math.sqrt(needs - seen), plan
        for zone in self.zones:
            node, share = place.node(zone)
            # Zones that share a node are alike, and need the same.
            z = math.hypot(place.noise_at(plan, node), lacks * share)
            filled = place.with_noise(filled, node, z)
        return filled

    def least_client(self) -> float:
        """The least client noise multiplier that meets it, without other noise."""
        found = least_below(lambda t: self._epsilon_at(math.sqrt(t), 0.0), self.target)
        return math.sqrt(found)

    def match(self, rdp: float, counted: float, near: float) -> bool:
        """Aims at the epsilon by Renyi DP that goes with what is promised.

        Args:
          rdp: A plan's epsilon by Renyi DP.
          counted: By the account that counts.
          near: Relative; a target that is off by less stays.

        Returns:
          Whether the target moved by more, for a plan that comes near it.
        """
        if not math.isfinite(counted):
            self.target *= 0.5
            return True
        decides = rdp > 0.9 * self.target
        target = self._margin * self.promise.epsilon * rdp / counted
        moved = abs(target / self.target - 1.0) > near
        if moved:
            self.target = target
        return moved and decides

    def accept(self, counted: float) -> bool:
        """Whether an epsilon keeps the promise; if not, aims at less from now on."""
        promised = self.promise.epsilon
        if counted <= promised:
            return True
        lower = (1.0 - 1e-5) * promised / counted if math.isfinite(counted) else 0.5
        self._margin *= lower
        self.target *= lower
        return False

    def refusal(self, client: float) -> ArgumentError:
        """Why no noise of nodes keeps the promise at so much client noise."""
        plan = self._plan(client, LARGEST_MULTIPLIER**2)
        even = f", even at a multiplier of {LARGEST_MULTIPLIER:g}"
        return self.refusal_of(plan, "rdp", even)

    def refusal_of(self, plan: NoisePlan, by: Sound, even: str = "") -> ArgumentError:
        """Why a plan does not keep the promise, though `even` that much noise helps."""
        row = self.row_of(plan, by)
        epsilon, who = row.epsilon(by), f"{row.client_kind} clients"
        why = f"what noise can keep: {who} have{even}, "
        if math.isfinite(epsilon):
            why = (
                f"{epsilon:.3g} or more: {who} have that{even}, of which what is left "
            )
            why += "comes from finite precision, the noise's and the account's"
        else:
            why += row.assumptions or "no finite epsilon"
        return ArgumentError("promises", self.promise, why)

    def _guess(self, client: float) -> float:
        """What it may need, from what it needed: about linear in client variance."""
        found = sorted(self._found.items(), key=lambda each: abs(each[0] - client))[:2]
        if len(found) < 2:
            return found[0][1] if found else 1.0
        (a, at_a), (b, at_b) = found
        slope = (at_b - at_a) / (b * b - a * a)
        guess = at_a + slope * (client * client - a * a)
        return guess if guess > 0.1 * at_a else at_a

    def _is_met(self, client: float, variance: float) -> bool:
        """Whether its target is; more noise never costs epsilon, which saves work."""
        regime = client > 0.0
        for known, v, epsilon in self._known:
            if (known > 0.0) != regime:
                continue
            if known <= client and v <= variance and epsilon <= self.target:
                return True
            if known >= client and v >= variance and epsilon > self.target:
                return False
        return self._epsilon_at(client, variance) <= self.target

    def _epsilon_at(self, client: float, variance: float) -> float:
        for known, v, epsilon in self._known:
            if known == client and v == variance:
                return epsilon
        epsilon = self.epsilon(self._plan(client, variance), "rdp")
        self._known.append((client, variance, epsilon))
        return epsilon

    def _plan(self, client: float, variance: float) -> NoisePlan:
        """A plan with client noise, and that variance at the client's node alone."""
        plan = self._federation.with_client_noise(client)
        if self.promise.is_own or variance == 0.0:
            return plan
        node, share = self.place.node(self.zones[0])
        return self.place.with_noise(plan, node, math.sqrt(variance) * share)


def demands_of(federation: Federation, promise: Promise) -> list[Demand]:
    """One for every kind of client to whom the promise is made.

    Raises:
      ArgumentError: If it is made to nobody, or there is no such observer.
    """
    level = federation.level(promise)
    # Zones are alike where as many trust, too: noise stands in for that here.
    told_apart = dataclasses.replace(
        federation.base, zone_noise_multipliers=federation.trusting
    )
    groups: dict[int, list[int]] = {}
    for zone, like in enumerate(like_zones(told_apart)):
        groups.setdefault(like, []).append(zone)
    found = [
        Demand(federation, promise, level, tuple(zones), index)
        for zones in groups.values()
        for index in _indices(federation, promise, zones[0])
    ]
    if not found:
        nobody = "all clients here trust the server"
        if promise.is_own:
            nobody = "no client noises its own update here (--trust_nobody, "
            nobody += "noising_clients)"
        allowed = f"one made to somebody: {nobody}"
        raise ArgumentError("promises", promise, allowed)
    return found


def largest_epsilon(demands: Sequence[Demand], history: History, by: Sound) -> float:
    """Of all to whom a promise is made, after some rounds."""
    like = like_zones(history[-1][0].plan)
    found = [0.0]
    for demand in demands:
        zones = {like[j]: j for j in demand.zones}.values()
        found += [demand.row(history, by, zone).epsilon(by) for zone in zones]
    return max(found)


def _indices(federation: Federation, promise: Promise, zone: int) -> Iterator[int]:
    """One client of each kind of a zone to whom the promise is made."""
    base = federation.base
    n, noising = base.zone_sizes[zone], base.noising_clients[zone]
    least = 0 if promise.observer in RECEIVERS else federation.trusting[zone]
    if noising:
        yield 0
    if not promise.is_own and n - noising > least:
        yield noising
