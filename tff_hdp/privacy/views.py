"""What each observer sees of each kind of client in one round of a plan.

Levels count from the clients: 0 is the clients, 1 the zones' super-nodes, then
any upper levels, and last the server. A node of level l sees the outputs of its
children at level l-1; those who get the model see the server's output. So one
rule gives every view: the noise in a node's output that its observer cannot
subtract (docs/privacy.md begins with the table of who sees what).
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

from tff_hdp.privacy.coalitions import sum_hides
from tff_hdp.privacy.effective_noise import (
    Noise,
    noise_before_super_node,
    noise_in_output,
)
from tff_hdp.privacy.mechanisms import Mechanism
from tff_hdp.privacy.parts import FixedSizeSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.sampled import FixedSizeGaussian, SampledGaussian
from tff_hdp.privacy.spectrum import Spectrum
from tff_hdp.privacy.threat import (
    RECEIVERS,
    AccountedRound,
    ClientKind,
    Neighbours,
    Observer,
    knowledge,
)

SECURE_SERVER = (
    "secure aggregation: the server sees the sum over all zones only (honest but "
    "curious parties)"
)


@dataclasses.dataclass(frozen=True)
class View:
    """One round of a plan, as one observer sees one client.

    Attributes:
      neighbours: The neighbour relation that the mechanism is accounted under.
      sampling: How the client comes to take part, in words.
      assumptions: What the account rests on, after why there is none if so; in words.
      mechanism: The round's mechanism; None where nothing is guaranteed or
        nothing is seen (`sees_nothing`).
      effective_noise: Multiplier of the noise that counts, at the expected number of
        participants; None where nothing is guaranteed.
      sees_nothing: Whether the client's data cannot influence what the observer sees.
      shows_presence: Whether that one may then still see who takes part.
    """

    neighbours: str
    sampling: str
    assumptions: tuple[str, ...]
    mechanism: Mechanism | None = None
    effective_noise: float | None = None
    sees_nothing: bool = False
    shows_presence: bool = False


def client_kind(plan: NoisePlan, zone: int, noising: bool) -> ClientKind:
    """Whom the client relies on: itself (`ldp`), super-nodes, or the server."""
    if noising and plan.noise_carriers[zone]:
        return "ldp"
    return "hdp" if plan.noised_above(zone, plan.server_level - 1) else "trusting"


def observers(
    plan: NoisePlan, *, peers_known: bool = False
) -> Iterator[tuple[Observer, int]]:
    """Every observer of the plan with its level (who gets the model: above all).

    Args:
      plan: Who adds noise to what.
      peers_known: See `ThreatModel`.
    """
    server = plan.server_level
    for level in range(1, server):
        yield "super_node", level
    yield "aggregator", server
    yield "released_model", server + 1
    if plan.is_noisy_below_server and plan.num_zones > 1:
        yield "fellow_super_node", server + 1
    clients_know = (
        peers_known
        or plan.clients_carry_noise
        or isinstance(plan.sampling, FixedSizeSampling)
    )
    if clients_know and plan.num_clients > 1:
        yield "fellow_client", server + 1


@functools.lru_cache(maxsize=8192)
def view(
    run: AccountedRound, observer: Observer, level: int, zone: int, noising: bool
) -> View:
    """One round as an observer sees a client.

    Args:
      run: The round.
      observer: Who looks.
      level: The observer's level, as `observers` yields it.
      zone: The client's zone.
      noising: Whether the client is one of its zone's noising clients.

    Raises:
      ArgumentError: If nothing says what the observer knows.
    """
    plan, threat = run.plan, run.threat
    notes: list[str] = []
    before, depth = run, level - 1
    if threat.colluding_super_nodes == plan.num_zones and level > 1:
        notes.append("the client's own super-node colludes: its view is the observer's")
        level, depth = 1, 0
    if level == 1:
        noise = noise_before_super_node(run, zone, noising, observer)
        notes += noise.notes
        hidden = False
    else:
        released = observer in RECEIVERS
        sums_hold = threat.sums_over(plan.num_zones)
        only_total = plan.secure_server and sums_hold and not released
        if plan.secure_server and threat.secure_sums_hold != sums_hold and not released:
            notes.append("so many super-nodes collude that no sum over zones is secure")
        told = threat.peers_known and threat.colluders_in_zone > 0
        learns = knowledge(observer).cohort
        known = told or (learns is not None and getattr(threat, learns))
        hidden = not known and not threat.participation_revealed
        if plan.mixing_weights[zone] == 0 and (level > 2 or only_total):
            if threat.neighbours == "add_or_remove" and not hidden:
                return _seen_to_be_there(plan, zone)
            return View(
                neighbours=threat.neighbours or "zero_out",
                sampling=_sampling_words(plan, zone, hidden=False),
                assumptions=("the zone's mixing weight is 0: nothing of it is seen",),
                sees_nothing=True,
                shows_presence=not hidden,
            )
        if only_total:
            notes.append(SECURE_SERVER)
            before = dataclasses.replace(run, plan=plan.without_server_noise())
            depth = level
        noise = noise_in_output(before, depth, zone, noising, observer)
        notes += noise.notes
        if told and noise.protects:
            notes.append("clients that collude know who of their zone takes part")
    if not noise.protects:
        reason = _why_none(before, level, depth, zone)
        return View(
            neighbours=threat.neighbours or "zero_out",
            sampling=_sampling_words(plan, zone, hidden=hidden),
            assumptions=("no guarantee: " + reason, *notes),
        )
    return _sampled_view(run, observer, zone, noise, hidden=hidden, notes=notes)


def common_neighbours(
    views: Sequence[tuple[View, int]], plans: Sequence[NoisePlan]
) -> str:
    """The relation under which rounds of these plans hold together, or `mixed`."""
    relations = {v.neighbours for v, _ in views if v.mechanism is not None}
    if not relations:
        return views[-1][0].neighbours
    # A round may show that a client is gone whose data it does not.
    if "add_or_remove" in relations and any(v.shows_presence for v, _ in views):
        relations.add("zero_out")
    if len(relations) == 1:
        return relations.pop()
    # A zeroed client is not one that is gone where it counts.
    if any(p.estimator == "bounded" or p.clipping.kind == "adaptive" for p in plans):
        return "mixed"
    return "mixed" if "replace_one" in relations else "zero_out"


# How the client comes to take part -------------------------------------------


def _sampled_view(
    run: AccountedRound,
    observer: Observer,
    zone: int,
    noise: Noise,
    *,
    hidden: bool,
    notes: Sequence[str],
) -> View:
    """What noise is worth to a client that takes part by chance."""
    plan = run.plan
    if hidden and (why := _why_revealed(run, zone, noise)):
        hidden, notes = False, (*notes, why)
    neighbours = run.threat.neighbours or _fitting_neighbours(plan, noise, hidden)
    if neighbours == "add_or_remove" and not hidden:
        return _seen_to_be_there(plan, zone)
    spectrum, slack = _worth(run, zone, neighbours, noise)
    hidden = hidden and _is_amplified(plan, neighbours, spectrum)
    q, sampling = plan.participation[zone], plan.sampling
    mechanism: Mechanism = SampledGaussian(q, spectrum, hidden or q == 1.0, slack)
    if hidden and q < 1.0 and isinstance(sampling, FixedSizeSampling):
        n, k = plan.zone_sizes[zone], sampling.sizes[zone]
        told = run.threat.colluders_in_zone + int(knowledge(observer).is_client)
        z, known = math.sqrt(spectrum.variances[0]), min(told, n - 1)
        revealed = None if spectrum.is_certain else spectrum
        mechanism = FixedSizeGaussian(n, k, z, known, slack, revealed)
    varies = noise.varies and not spectrum.is_certain
    return View(
        neighbours=neighbours,
        sampling=_sampling_words(plan, zone, hidden=hidden),
        assumptions=(*notes, *_notes(run, zone, neighbours, hidden, varies)),
        mechanism=mechanism,
        effective_noise=math.sqrt(_variance_worth(plan, neighbours, noise.nominal)),
    )


def _worth(
    run: AccountedRound, zone: int, neighbours: Neighbours, noise: Noise
) -> tuple[Spectrum, float]:
    """The variance that is accounted, and the mechanism's slack."""
    plan, threat = run.plan, run.threat
    spectrum = noise.spectrum.changed(lambda v: _variance_worth(plan, neighbours, v))
    if plan.min_zone_clients > 1 and neighbours == "add_or_remove":
        q, others = plan.participation[zone], plan.zone_sizes[zone] - 1
        spectrum = spectrum.with_skips(
            least=plan.min_zone_clients,
            others=others,
            rates=(q * (1.0 - threat.dropout_rate), q),
            colluders=min(threat.colluders_in_zone, others),
        )
    if not plan.noise_is_discrete:
        return spectrum, 0.0
    moved = 2.0 if neighbours == "replace_one" else 1.0
    return spectrum.as_continuous(plan.relative_step / moved)


def _variance_worth(plan: NoisePlan, neighbours: Neighbours, variance: float) -> float:
    """What a variance is worth between neighbours, where S is worth 1 before."""
    if plan.clipping.kind == "adaptive":
        variance = _with_clipped_count(plan, variance, neighbours == "zero_out")
    return variance / 4 if neighbours == "replace_one" else variance


def _is_amplified(plan: NoisePlan, neighbours: Neighbours, spectrum: Spectrum) -> bool:
    """Whether it is proved to help a client that it is hidden who takes part.

    Poisson amplification is for one sum with or without the client. Elsewhere
    participation is given to the observer, which bounds it.
    """
    if isinstance(plan.sampling, FixedSizeSampling):
        return neighbours == "replace_one" and spectrum.variances[0] > 0.0
    # The denominator keeps a participant's weight, or the count its share.
    kept = plan.estimator == "bounded" or plan.clipping.kind == "adaptive"
    return neighbours == "add_or_remove" or (neighbours == "zero_out" and not kept)


def _notes(
    run: AccountedRound, zone: int, neighbours: Neighbours, hidden: bool, varies: bool
) -> Iterator[str]:
    """What a sampled view rests on besides the noise, in words."""
    plan = run.plan
    if neighbours == "replace_one":
        yield "replacing a client moves the sum by up to 2S"
    if plan.min_zone_clients > 1 and neighbours == "add_or_remove":
        yield (
            f"a zone with fewer than {plan.min_zone_clients} participants is left "
            "out; that the client's coming may decide it is accounted"
        )
    if plan.noise_is_discrete:
        yield "noise on a grid is accounted as such"
    if plan.participation[zone] < 1.0:
        yield f"the observer {'does not' if hidden else 'may'} learn who takes part"
    if varies:
        yield "accounts the random number of noising participants, not its mean"
    if plan.clipping.kind == "adaptive":
        yield "z is that of update and clipped count together"
    if not plan.clipping.is_private:
        yield "the clip norm, measured without noise, is taken as public"
    if plan.zone_weights not in (None, tuple(map(float, plan.zone_sizes))):
        yield "what zones' clients weigh together is public, and what weighs 1"
    if run.threat.dropout_rate > 0:
        yield "clients drop out independently of each other and of the data"


def _why_revealed(run: AccountedRound, zone: int, noise: Noise) -> str:
    """Why participation that is hidden is accounted as revealed; empty if it is not."""
    plan = run.plan
    fixed_size = isinstance(plan.sampling, FixedSizeSampling)
    if plan.participation[zone] < 1.0 and noise.varies and (noise.own or fixed_size):
        return "participants carry noise, so participation is taken as revealed"
    if plan.min_zone_clients > 1 and _skips_reveal(run, zone):
        return "participation is taken as revealed, as left-out zones show it"
    return ""


def _fitting_neighbours(plan: NoisePlan, noise: Noise, hidden: bool) -> Neighbours:
    """The relation that fits the sampling and the noise."""
    if plan.estimator == "bounded" and plan.clients_carry_noise:
        return "zero_out"
    if isinstance(plan.sampling, FixedSizeSampling):
        return "replace_one"
    return "add_or_remove" if hidden and not noise.own else "zero_out"


def _seen_to_be_there(plan: NoisePlan, zone: int) -> View:
    """Nothing is guaranteed to a client that may be gone where its absence is seen."""
    return View(
        neighbours="add_or_remove",
        sampling=_sampling_words(plan, zone, hidden=False),
        assumptions=(
            "no guarantee: the observer learns who takes part, and so that the "
            "client is there (zero_out neighbours have one)",
        ),
    )


def _with_clipped_count(plan: NoisePlan, variance: float, zeroed: bool) -> float:
    """What noise is worth once the count of unclipped updates is seen beside the sum.

    `NoisePlan.share_of_sum` says how z is shared. An update of zeros counts as
    unclipped, so zeroing one moves the count by up to 1. In a zone whose clients move
    the sum by less than others' the count moves as far as theirs.

    Args:
      plan: With adaptive clipping.
      variance: The server's noise, in units of the client's squared sensitivity in
        the sum, as if z were that of the sum alone.
      zeroed: Whether the client's update is zeroed and not taken away.
    """
    of_count = (2.0 * plan.count_stddev) ** -2
    of_sum = plan.share_of_sum / variance
    return 1.0 / (of_sum + (4.0 if zeroed else 1.0) * of_count)


def _skips_reveal(run: AccountedRound, zone: int) -> bool:
    """Whether leaving out the zone is only accounted with participation revealed.

    It is known then whether the zone is in, whatever the client's data. Hidden
    participation is accounted for clients that come or go and carry no noise.

    In a cohort of a fixed size it is hidden who else was drawn in the client's place,
    which moves a sum by 2S. Of one who is known to be offline it may move a whole zone
    out, and so the output by m S.
    """
    plan, threat = run.plan, run.threat
    if isinstance(plan.sampling, FixedSizeSampling):
        is_drawn = plan.participation[zone] < 1.0
        return is_drawn and threat.dropout_rate > 0 and plan.min_zone_clients > 2
    carried = plan.noise_carriers[zone] > 0 and not plan.top_up
    return threat.neighbours == "zero_out" or carried


def _sampling_words(plan: NoisePlan, zone: int, *, hidden: bool) -> str:
    q = plan.participation[zone]
    if q == 1.0:
        return "every client every round"
    if isinstance(plan.sampling, FixedSizeSampling):
        words = f"{plan.sampling.sizes[zone]} of {plan.zone_sizes[zone]} clients"
    else:
        words = f"Poisson, q = {q:.6g}"
    return f"{words}, participation {'hidden' if hidden else 'revealed'}"


def _why_none(run: AccountedRound, level: int, depth: int, zone: int) -> str:
    """Why nothing protects a zone's client from an observer of `level`.

    What that one sees is the output of the client's node of `depth`; 0 is the client.
    """
    plan, threat = run.plan, run.threat
    if level == 1 and not sum_hides(plan, threat, zone):
        return "the super-node sees the client's own update without noise"
    if _is_noised(plan, depth, zone):
        return (
            "all the noise in what the observer sees is known to it, missing or not "
            "counted"
        )
    if level == 1:
        return "the super-node sees its zone's sum without noise"
    if level <= plan.server_level:
        return "no noise is added before this observer"
    return "nobody adds noise"


def _is_noised(plan: NoisePlan, depth: int, zone: int) -> bool:
    """Whether anybody adds noise to the output of a zone's node of `depth`."""
    beneath = plan.zones_beside(zone, max(depth, 1))
    return any(plan.noise_carriers[j] or plan.noised_above(j, depth) for j in beneath)
