"""The noise in an output that its observer cannot subtract.

Everything is relative to one client: variances are in units of the squared
distance that this client can move the output.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from tff_hdp.privacy.coalitions import sum_hides
from tff_hdp.privacy.parts import MIN_STEPS, FixedSizeSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.spectrum import (
    Pool,
    Spectrum,
    binomial_pool,
    hypergeometric_pool,
    noise_spectrum,
)
from tff_hdp.privacy.threat import AccountedRound, Observer, knowledge

_IN_EVERY_ZONE = "as if the noise of {} clients were known in every zone"


@dataclasses.dataclass(frozen=True)
class Noise:
    """Noise in an output, in units of the squared sensitivity to the client.

    Attributes:
      spectrum: Its variance, given that the client takes part.
      nominal: Its variance at the expected number of participants.
      varies: Whether the variance depends on who takes part.
      own: Whether the client itself carries part of it.
      notes: What it rests on, in words.
    """

    spectrum: Spectrum
    nominal: float
    varies: bool
    own: bool
    notes: tuple[str, ...]

    @property
    def protects(self) -> bool:
        """Whether there is any."""
        return self.nominal > 0.0 and self.spectrum.variances != (0.0,)


def noise_before_super_node(
    run: AccountedRound, zone: int, noising: bool, observer: Observer
) -> Noise:
    """What protects a client from its own super-node.

    Args:
      run: The round.
      zone: The client's zone.
      noising: Whether the client noises its own update.
      observer: Who looks: the super-node, or another with whom it colludes.
    """
    plan, threat = run.plan, run.threat
    of_one = plan.client_noise.variance()
    own_variance = of_one if noising else 0.0
    fellows = int(knowledge(observer).is_client)
    if not sum_hides(plan, threat, zone, fellows=fellows):
        notes = []
        if plan.secure_aggregation:
            notes.append(
                "the zone's secure sum is taken as unmasked: those who collude may "
                "be a majority of it"
                if threat.secure_sums_hold
                else "secure sums are taken as unmasked"
            )
        spectrum = Spectrum((own_variance,), (0.0,))
        return Noise(spectrum, own_variance, True, noising, tuple(notes))
    told = int(threat.elected_super_nodes) + fellows
    pools, nominal, notes = _pools(run, zone, noising, {zone: of_one}, told)
    spectrum = noise_spectrum(own_variance, pools)
    if spectrum.variances != (0.0,):
        few = ", of whose clients those who collude are no majority"
        notes.append(
            "secure aggregation: the super-node sees its zone's sum only"
            + (few if threat.colluding_clients else "")
        )
        if threat.elected_super_nodes:
            notes.append("the elected super-node knows its own share of the noise")
    return Noise(spectrum, nominal, _varies(run, zone), noising, tuple(notes))


def noise_in_output(
    run: AccountedRound, level: int, zone: int, noising: bool, observer: Observer
) -> Noise:
    """Noise in the output of the node of `level` above a client.

    Args:
      run: The round.
      level: 1 for the zone's super-node, ..., the last for the server.
      zone: The client's zone.
      noising: Whether the client noises its own update.
      observer: Who sees it.
    """
    plan, threat = run.plan, run.threat
    u = plan.released_sensitivities
    # Of the zones beneath the node.
    relative = {
        j: 1.0 if j == zone else u[j] / u[zone] for j in plan.zones_beside(zone, level)
    }
    fellows = _fellow_nodes(plan, zone) if knowledge(observer).is_super_node else []
    lost, notes = _lost_zones(run, observer, fellows, len(relative) > 1)
    fixed = sum(
        plan.zone_noise[j].variance(relative[j])
        for j in _zones_left(plan, zone, relative, lost)
    )
    fixed += _upper_noise(plan, level, relative, relative)
    # Whichever of them looks knows no more than this of the noise above the zones.
    known_above = (_upper_noise(plan, *branch, relative) for branch in fellows)
    fixed = max(fixed - max(known_above, default=0.0), 0.0)
    weights, not_counted = _client_noise(plan, zone, relative, lost)
    notes += not_counted
    encoded = plan.encoding is not None
    if encoded and weights and 0.0 < math.sqrt(fixed) < MIN_STEPS * plan.relative_step:
        # It does not blur the grid, and so could be told apart.
        fixed = 0.0
        notes.append("noise finer than the grid of the client noise is not counted")
    told = int(knowledge(observer).is_client)
    if told:
        knows = "a fellow client knows its own noise and when it takes part"
        peers = ", and which others of its zone do" if threat.peers_known else ""
        notes.append(knows + peers)
    if plan.top_up and weights:
        in_zone = _known_in_zone(run, told)
        # The client's own share is no colluder's: it brings it, or it is topped up.
        fixed += sum(
            w * max(plan.noising_clients[j] - in_zone, int(noising and j == zone))
            for j, w in weights.items()
        )
        notes.append("super-nodes are trusted to top up their zones' client noise")
        if in_zone:
            notes.append(_IN_EVERY_ZONE.format(in_zone))
        weights = {}
    own = noising and zone in weights
    pools, expected, known = _pools(run, zone, own, weights, told)
    own_variance = weights[zone] if own else 0.0
    spectrum = noise_spectrum(fixed + own_variance, pools)
    varies = any(_varies(run, j) for j in weights)
    return Noise(spectrum, fixed + expected, varies, own, (*notes, *known))


def _client_noise(
    plan: NoisePlan, zone: int, relative: dict[int, float], lost: int
) -> tuple[dict[int, float], list[str]]:
    """Variance that each noising participant adds, by zone where it counts; and notes.

    Of what is not counted.
    """
    carriers = plan.noise_carriers
    # The worst to lose is one whose noise would have counted.
    on_grid, notes = _on_one_grid(plan, relative)
    left, not_ordered = _pools_left(plan, zone, on_grid, lost)
    notes += not_ordered
    weights = {
        j: plan.client_noise.variance(relative[j]) for j in left if carriers[j] > 0
    }
    if plan.estimator == "bounded" and set(weights) - {zone}:
        weights = {j: w for j, w in weights.items() if j == zone}
        notes.append(
            "client noise of other zones is not counted: random denominators scale it"
        )
    return weights, notes


def _on_one_grid(
    plan: NoisePlan, relative: dict[int, float]
) -> tuple[dict[int, float], list[str]]:
    """Zones, of those in `relative`, whose client noise is on the client's grid; notes.

    Discrete noise scaled onto another grid could be told apart from the client's.
    """
    if plan.encoding is None:
        return relative, []
    same = {j: r for j, r in relative.items() if math.isclose(r, 1.0)}
    if any(plan.noise_carriers[j] for j in relative.keys() - same):
        return same, ["client noise of zones on another grid is not counted"]
    return same, []


def _lost_zones(
    run: AccountedRound,
    observer: Observer,
    fellows: Sequence[tuple[int, Sequence[int]]],
    others: bool,
) -> tuple[int, list[str]]:
    """How many other zones' noise protects nobody, whichever they are; and notes."""
    threat, notes = run.threat, []
    colluding, fellow = threat.colluding_super_nodes, 0
    if fellows:
        fellow = max(len(zones) for _, zones in fellows)
        notes.append(
            "a super-node elsewhere, of any level, knows its own output"
            if run.plan.upper_levels
            else "a super-node of another zone knows its zone's output"
        )
    elif observer == "released_model" and threat.elected_super_nodes:
        fellow = 1
        notes.append("received by another zone's elected super-node too")
    if colluding and others:
        notes.append(
            f"{colluding} other super-nodes' zone outputs are known to the observer; "
            "the client's own super-node is not among them"
        )
    if threat.skipped_zones and others:
        notes.append(
            f"{threat.skipped_zones} other zones were skipped: none of their noise is "
            "counted"
        )
    return colluding + fellow + threat.skipped_zones, notes


def _fellow_nodes(plan: NoisePlan, zone: int) -> list[tuple[int, list[int]]]:
    """Every node not above a zone: its level, and the zones beneath it."""
    found = []
    for level in range(1, plan.server_level):
        nodes = plan.nodes_at(level)
        beneath: dict[int, list[int]] = {}
        for j, node in enumerate(nodes):
            beneath.setdefault(node, []).append(j)
        beneath.pop(nodes[zone])
        found += [(level, beneath[node]) for node in sorted(beneath)]
    return found


def _upper_noise(
    plan: NoisePlan, level: int, beneath: Iterable[int], relative: dict[int, float]
) -> float:
    """Variance added by the nodes above the zones, up to `level`.

    A node's standard deviation is its multiplier times the largest released
    sensitivity of the zones beneath it.
    """
    total = 0.0
    for depth, noise in enumerate(plan.node_noise[1:level], 2):
        nodes = plan.nodes_at(depth)
        largest: dict[int, float] = {}
        for j in beneath:
            largest[nodes[j]] = max(largest.get(nodes[j], 0.0), relative[j])
        total += sum(noise[v].variance(r) for v, r in largest.items())
    return total


def _zones_left(
    plan: NoisePlan, zone: int, relative: dict[int, float], lost: int
) -> list[int]:
    """Zones whose super-node noise counts: the largest others' is lost."""
    others = sorted(
        (j for j in relative if j != zone),
        key=lambda j: plan.zone_noise[j].variance(relative[j]),
    )
    return [zone, *others[: max(len(others) - lost, 0)]]


def _pools_left(
    plan: NoisePlan, zone: int, relative: dict[int, float], lost: int
) -> tuple[list[int], list[str]]:
    """Zones whose client noise counts, whichever others' is lost; and notes.

    A colluding super-node knows its zone's output and so all the noise in it, and a
    skipped zone has none. Dropping the stochastically largest pools is the worst
    case; where the pools have no such order, none of the others counts.
    """
    others = [j for j in relative if j != zone]
    if lost == 0:
        return [zone, *others], []

    def size(j: int) -> tuple[float, ...]:
        noising = plan.noising_clients[j]
        if noising == 0:
            return ()
        if isinstance(plan.sampling, FixedSizeSampling):
            k, n = plan.sampling.sizes[j], plan.zone_sizes[j]
            return (relative[j], noising, k, -n)
        return (relative[j], noising, plan.participation[j])

    others.sort(key=size)
    ordered = all(
        a <= b
        for i, j in itertools.pairwise(others)
        for a, b in zip(size(i), size(j), strict=False)
    )
    if not ordered:
        note = (
            "other zones' client noise is not counted: whose is lost is unknown and "
            "theirs differ without an order"
        )
        return [zone], [note]
    return [zone, *others[: max(len(others) - lost, 0)]], []


def _varies(run: AccountedRound, j: int) -> bool:
    """Whether the number of noising participants of zone j is random."""
    plan, threat = run.plan, run.threat
    if threat.dropout_rate > 0:
        return True
    if plan.participation[j] == 1.0:
        return False
    everybody = plan.noising_clients[j] == plan.zone_sizes[j]
    everybody = everybody and threat.colluding_clients == 0
    return not (isinstance(plan.sampling, FixedSizeSampling) and everybody)


def _known_in_zone(run: AccountedRound, told: int) -> int:
    """How many of a zone's noising clients' noise the observer knows, at most."""
    threat = run.threat
    return min(threat.colluding_clients, threat.colluders_in_zone) + told


def _pools(
    run: AccountedRound, zone: int, own: bool, weights: dict[int, float], told: int
) -> tuple[list[Pool], float, list[str]]:
    """Noising participants other than the client, the expected variance, and notes.

    Their variances are `weights` by zone. The client, if it carries noise of its `own`,
    counts in what is expected. The observer knows the noise of who colludes, and of
    `told` clients more.
    """
    plan, in_zone = run.plan, _known_in_zone(run, told)
    known = min(run.threat.colluding_clients + told, in_zone * len(weights))
    notes = []
    if colluding := known - told if weights else 0:
        notes.append(f"{colluding} noising clients subtract their noise")
    arrival = 1.0 - run.threat.dropout_rate
    noising = {j: plan.noising_clients[j] for j in weights}
    fixed_size = isinstance(plan.sampling, FixedSizeSampling)
    rates = {j: plan.participation[j] * arrival for j in weights}
    alike = len({(weights[j], rates[j]) for j in weights}) == 1
    if alike and plan.min_zone_clients == 1 and not fixed_size:
        # Exchangeable clients: it does not matter where the known ones are.
        total = max(sum(noising.values()) - known, int(own))
        weight, rate = next((weights[j], rates[j]) for j in weights)
        pools = [binomial_pool(weight, total - int(own), rate)]
        return pools, total * rate * weight, notes
    pools, expected = [], 0.0
    if known and len(weights) > 1:
        # Whose loss is the worst depends on more than their number.
        notes.append(_IN_EVERY_ZONE.format(in_zone))
    for j, weight in weights.items():
        mine = int(own and j == zone)
        unknown = max(noising[j] - in_zone, mine)
        expected += unknown * rates[j] * weight
        if fixed_size:
            here = int(j == zone)
            pool = hypergeometric_pool(
                weight,
                others=plan.zone_sizes[j] - here,
                noising=unknown - mine,
                drawn=plan.sampling.sizes[j] - here,
                arrival=arrival,
            )
        else:
            pool = binomial_pool(weight, unknown - mine, rates[j])
        if j != zone and plan.min_zone_clients > 1:
            # Counts noising clients alone; that others came too can only help.
            pool = pool.left_out_below(plan.min_zone_clients)
        pools.append(pool)
    return pools, expected, notes
