"""To whom a promise is made, and what it asks for in numbers of the account.

Noise that nodes add counts for a client by its variance alone: what its observer sees
of it, less what that observer knows. So, at a given client noise, what a promise asks
for is a least variance, which the account finds with noise right beneath the observer.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.accountant import (
    AccountRow,
    History,
    Sound,
    client_row,
    like_zones,
)
from tff_hdp.privacy.effective_noise import noise_in_output
from tff_hdp.privacy.least import aimed, least_below
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import LARGEST_MULTIPLIER
from tff_hdp.privacy.promises import Promise
from tff_hdp.privacy.threat import RECEIVERS, AccountedRound, ThreatModel
from tff_hdp.privacy.views import observers, view

# Share of an epsilon.
_FOR_GRIDS = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federation:
    """Whom there is something to promise, and what is assumed of the others.

    Attributes:
      base: The federation's plan, without noise.
      trusting: How many clients of each zone trust the server.
      rounds: T.
      delta: Of every promise.
      threat: What is assumed of the parties.

    Raises:
      ArgumentError: If more clients of a zone trust than there are.
    """

    base: NoisePlan
    trusting: tuple[int, ...]
    rounds: int
    delta: float
    threat: ThreatModel

    def __post_init__(self) -> None:
        sizes, noising = self.base.zone_sizes, self.base.noising_clients
        trusting, s = self.trusting, self.base.num_zones
        ok = len(trusting) == s
        require(ok, "trusting", trusting, f"{s} entries, one for each zone")
        for i, (n, a, c) in enumerate(zip(sizes, noising, trusting, strict=True)):
            name, allowed = f"trusting[{i}]", f"0..{n - a}, the clients that trust"
            require(0 <= c <= n - a, name, c, allowed)

    @property
    def may_carry(self) -> bool:
        """Whether clients' own noise goes with what is assumed of the parties."""
        try:
            self.threat.check_fits(_noisy(self.base))
        except ArgumentError:
            return False
        return True

    def level(self, promise: Promise) -> int:
        """The level at which the promise's observer stands.

        Raises:
          ArgumentError: If there is no such observer.
        """
        known = self.threat.peers_known
        there = list(observers(_noisy(self.base), peers_known=known))
        for observer, level in there:
            own = observer != "super_node" or level == promise.level
            if observer == promise.observer and own:
                return level
        names = [
            f"{observer}:{level}"
            if observer == "super_node" and level > 1
            else observer
            for observer, level in there
        ]
        allowed = f"one to an observer of this federation: {', '.join(names)}"
        raise ArgumentError("promises", promise, allowed)

    def history(self, plan: NoisePlan) -> History:
        """All rounds, of one plan."""
        return [(AccountedRound(plan, self.threat), self.rounds)]


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

    Attributes:
      target: The epsilon by Renyi DP that a search aims at, which may set it.
      sees_nothing: As in `View`, of the observer; other attributes are as given.
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
        # Of a secure sum over zones the observer sees nothing else.
        summed = base.secure_server and federation.threat.sums_over(base.num_zones)
        self._is_summed = promise.observer == "aggregator" and summed
        # Whose noise is for it: with a secure sum over zones the server's level is 2.
        self._noising_level = level - 1
        run = AccountedRound(base, federation.threat)
        seen = view(run, promise.observer, level, zones[0], False)
        self.sees_nothing = seen.sees_nothing
        # Epsilons of plans by Renyi DP, and by the account that counts.
        self._tried: list[tuple[float, float]] = []
        self._found: dict[float, float] = {}
        self._known: dict[tuple[float, float], float] = {}

    def row(self, history: History, by: Sound, zone: int) -> AccountRow:
        """What rounds are worth to its client of a zone."""
        return client_row(
            history,
            observer=self.promise.observer,
            level=self.level,
            zone=zone,
            index=self.index,
            delta=self._federation.delta,
            methods=(by,),
        )

    def row_of(self, plan: NoisePlan, by: Sound) -> AccountRow:
        """What all rounds of a plan are worth to its clients."""
        return self.row(self._federation.history(plan), by, self.zones[0])

    def epsilon(self, plan: NoisePlan, by: Sound) -> float:
        """The epsilon of `row_of`."""
        return self.row_of(plan, by).epsilon(by)

    def _needs(self, client: float, seen: float) -> float:
        """The least variance that it needs, of which so much is `seen` already.

        In the units of `_seen`; infinite where no variance is enough.
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
        seen = self._seen(plan)
        needs = self._needs(plan.client_noise.noise_multiplier, seen)
        if needs <= seen:
            return plan
        if not math.isfinite(needs):
            raise LackingError(self)
        if self._is_summed:
            # Of a sum over zones it does not matter whose noise it is, unless some
            # collude: with as much in every zone they know the least of it.
            z = math.sqrt(needs / self._seen(plan.with_zone_noise(1.0)))
            return plan.with_zone_noise(z)
        lacks, filled = math.sqrt(needs - seen), plan
        for zone in self.zones:
            node, share = self._node(zone)
            # Zones that share a node are alike, and need the same.
            own = plan.node_noise[self._noising_level - 1][node]
            z = math.hypot(own.noise_multiplier, lacks * share)
            filled = filled.with_noise_at(self._noising_level, node, z)
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
        decides = rdp > 0.9 * self.target or not math.isfinite(counted)
        self._tried.append((rdp, counted))
        target = aimed(self._tried, self._margin * self.promise.epsilon)
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
        if math.isfinite(epsilon):
            allowed = (
                f"{epsilon:.3g} or more: {who} have that{even}, of which what is left "
                "comes from finite precision, the noise's and the account's"
            )
        else:
            why = row.assumptions or "no finite epsilon"
            allowed = f"what noise can keep: {who} have{even}, {why}"
        return ArgumentError("promises", self.promise, allowed)

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
        for (known, v), epsilon in self._known.items():
            if (known > 0.0) != regime:
                continue
            if known <= client and v <= variance and epsilon <= self.target:
                return True
            if known >= client and v >= variance and epsilon > self.target:
                return False
        return self._epsilon_at(client, variance) <= self.target

    def _epsilon_at(self, client: float, variance: float) -> float:
        at = client, variance
        if at not in self._known:
            self._known[at] = self.epsilon(self._plan(*at), "rdp")
        return self._known[at]

    def _plan(self, client: float, variance: float) -> NoisePlan:
        """A plan with client noise, and that variance at the client's node alone."""
        plan = self._federation.base.with_client_noise(client)
        if self.promise.is_own or variance == 0.0:
            return plan
        node, share = self._node(self.zones[0])
        z = math.sqrt(variance) * share
        return plan.with_noise_at(self._noising_level, node, z)

    # Right beneath its observer ---------------------------------------------------

    def _seen(self, plan: NoisePlan) -> float:
        """Variance of nodes' noise that the observer sees and does not know.

        In units of what its clients can move the output by, squared.
        """
        plan = plan.with_client_noise(0.0)
        level = self.level - 1
        if self._is_summed:
            plan, level = plan.without_server_noise(), self.level
        run = AccountedRound(plan, self._federation.threat)
        observer = self.promise.observer
        noise = noise_in_output(run, level, self.zones[0], False, observer)
        return noise.spectrum.variances[0]

    def _node(self, zone: int) -> tuple[int, float]:
        """The node between a zone and the observer, and what a client can move.

        That is as a share of the most that one beneath the node can.
        """
        if self._is_summed:
            return zone, 1.0
        base = self._federation.base
        nodes, unit = base.nodes_at(self.level - 1), base.released_units
        most = max(unit[j] for j, own in enumerate(nodes) if own == nodes[zone])
        return nodes[zone], unit[zone] / most if most > 0 else 1.0


def demands_of(federation: Federation, promise: Promise) -> list[Demand]:
    """One for every kind of client to whom the promise is made.

    Raises:
      ArgumentError: If it is made to nobody, or there is no such observer.
    """
    level = federation.level(promise)
    groups: dict[int, list[int]] = {}
    for zone, like in enumerate(like_zones(federation.base, federation.trusting)):
        groups.setdefault(like, []).append(zone)
    found = [
        Demand(federation, promise, level, tuple(zones), index)
        for zones in groups.values()
        for index in _indices(federation, promise, zones[0])
    ]
    if not found:
        nobody = "all clients here trust the server"
        if promise.is_own:
            nobody = "no client trusts nobody (noising_clients are all 0)"
        allowed = f"one made to somebody: {nobody}"
        raise ArgumentError("promises", promise, allowed)
    return found


def largest_epsilon(demands: Sequence[Demand], history: History, by: Sound) -> float:
    """The largest of all to whom a promise is made; the same clients noise always."""
    like = list(zip(*(like_zones(run.plan) for run, _ in history), strict=True))
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


def _noisy(base: NoisePlan) -> NoisePlan:
    """The federation with noise wherever there may be some."""
    return base.with_zone_noise(1.0).with_client_noise(1.0)
