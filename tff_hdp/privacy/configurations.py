"""The paper's configurations of who adds noise: none, C1..C7 (Table I), and Figure 1's.

Every function takes `zone_sizes` (n_i), `sampling` and any further field of
`NoisePlan`, and all but `none` the one `noise_multiplier` that each noising party
uses. What is out of range, or a share that gives no whole number of zones or not one
client, raises ArgumentError.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_hdp.errors import ArgumentError, check_number, check_word, require
from tff_hdp.privacy.parts import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    Sampling,
    check_zone_sizes,
)
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import Level

# How a zone may draw its cohort.
SAMPLINGS = ("poisson", "revealed", "fixed", "full")


def none(*, zone_sizes: Sequence[int], sampling: Sampling, **options: Any) -> NoisePlan:
    """No noise, and by default the realised mean: plain FedAvg over zones."""
    options.setdefault("estimator", "realised")
    return NoisePlan(zone_sizes=zone_sizes, sampling=sampling, **options)


def c1(
    *, zone_sizes: Sequence[int], noise_multiplier: float, **options: Any
) -> NoisePlan:
    """C1, pure LDP: every client noises its own update."""
    zone_sizes = check_zone_sizes(zone_sizes)
    return NoisePlan(
        zone_sizes=zone_sizes,
        client_noise_multiplier=noise_multiplier,
        noising_clients=zone_sizes,
        **options,
    )


def c2(
    *, zone_sizes: Sequence[int], noise_multiplier: float, **options: Any
) -> NoisePlan:
    """C2, pure HDP: every super-node noises its zone's aggregate."""
    zone_sizes = check_zone_sizes(zone_sizes)
    return NoisePlan(
        zone_sizes=zone_sizes,
        zone_noise_multipliers=(noise_multiplier,) * len(zone_sizes),
        **options,
    )


def c3(
    *, zone_sizes: Sequence[int], noise_multiplier: float, beta: float, **options: Any
) -> NoisePlan:
    """C3: clients noise in the first beta*s zones, super-nodes in the rest."""
    zone_sizes = check_zone_sizes(zone_sizes)
    s = len(zone_sizes)
    ldp = _share_of_zones("beta", beta, s)
    return NoisePlan(
        zone_sizes=zone_sizes,
        client_noise_multiplier=noise_multiplier,
        noising_clients=(*zone_sizes[:ldp], *([0] * (s - ldp))),
        zone_noise_multipliers=(0.0,) * ldp + (noise_multiplier,) * (s - ldp),
        **options,
    )


def c4(
    *, zone_sizes: Sequence[int], noise_multiplier: float, **options: Any
) -> NoisePlan:
    """C4, pure CDP: only the server adds noise."""
    return NoisePlan(
        zone_sizes=zone_sizes,
        server_noise_multiplier=noise_multiplier,
        **options,
    )


def c5(
    *, zone_sizes: Sequence[int], noise_multiplier: float, alpha: float, **options: Any
) -> NoisePlan:
    """C5: a share alpha of all clients, spread over the zones, and the server."""
    zone_sizes = check_zone_sizes(zone_sizes)
    return NoisePlan(
        zone_sizes=zone_sizes,
        client_noise_multiplier=noise_multiplier,
        noising_clients=share_of_clients("alpha", alpha, zone_sizes),
        server_noise_multiplier=noise_multiplier,
        **options,
    )


def c6(
    *, zone_sizes: Sequence[int], noise_multiplier: float, beta: float, **options: Any
) -> NoisePlan:
    """C6: the first beta*s super-nodes and the server add noise."""
    zone_sizes = check_zone_sizes(zone_sizes)
    s = len(zone_sizes)
    hdp = _share_of_zones("beta", beta, s)
    return NoisePlan(
        zone_sizes=zone_sizes,
        zone_noise_multipliers=(noise_multiplier,) * hdp + (0.0,) * (s - hdp),
        server_noise_multiplier=noise_multiplier,
        **options,
    )


def c7(
    *,
    zone_sizes: Sequence[int],
    noise_multiplier: float,
    alpha: float,
    beta: float,
    **options: Any,
) -> NoisePlan:
    """C7: clients in beta*s zones, super-nodes in the next alpha*s, the server."""
    zone_sizes = check_zone_sizes(zone_sizes)
    s = len(zone_sizes)
    ldp = _share_of_zones("beta", beta, s)
    hdp = _share_of_zones("alpha", alpha, s)
    if ldp + hdp > s:
        raise ArgumentError("alpha", alpha, f"at most {1 - beta:g}, 1 less beta")
    z = noise_multiplier
    return NoisePlan(
        zone_sizes=zone_sizes,
        client_noise_multiplier=z,
        noising_clients=(*zone_sizes[:ldp], *([0] * (s - ldp))),
        zone_noise_multipliers=(0.0,) * ldp + (z,) * hdp + (0.0,) * (s - ldp - hdp),
        server_noise_multiplier=z,
        **options,
    )


def ldp_hdp(
    *, zone_sizes: Sequence[int], noise_multiplier: float, alpha: float, **options: Any
) -> NoisePlan:
    """Figure 1, case 4: every super-node, and a share alpha of its zone's clients.

    Who trusts the super-node leaves the noise to it, who does not noises its own update
    as well.
    """
    zone_sizes = check_zone_sizes(zone_sizes)
    hdp_plan = c2(zone_sizes=zone_sizes, noise_multiplier=noise_multiplier, **options)
    return dataclasses.replace(
        hdp_plan,
        client_noise_multiplier=noise_multiplier,
        noising_clients=share_of_clients("alpha", alpha, zone_sizes),
    )


def even_levels(
    num_zones: int, nodes_per_level: Sequence[int], noise: Mapping[int, float]
) -> tuple[Level, ...]:
    """Levels above the zones whose nodes have equally many below them, give or take.

    Args:
      num_zones: s.
      nodes_per_level: Nodes of every level, innermost first.
      noise: Noise multiplier of each noising level's nodes; level 2 is the first
        above the zones.

    Raises:
      ArgumentError: If a level has more nodes than the one beneath, or noise is asked
        of a level that there is not.
    """
    parents: list[tuple[int, ...]] = []
    below = num_zones
    for number, count in enumerate(nodes_per_level, start=2):
        if not 1 <= count <= below:
            allowed = f"1..{below} nodes at level {number}, as many as are beneath"
            raise ArgumentError("levels", tuple(nodes_per_level), allowed)
        parents.append(tuple(i * count // below for i in range(below)))
        below = count
    return given_levels(parents, noise)


def given_levels(
    parents: Sequence[Sequence[int]], noise: Mapping[int, float]
) -> tuple[Level, ...]:
    """Levels above the zones as a zoning has them.

    Args:
      parents: Of every level between zones and server, the nodes' parents.
      noise: Noise multiplier of each noising level's nodes, from 2 on.

    Raises:
      ArgumentError: If noise is asked of a level that there is not.
    """
    numbers = range(2, 2 + len(parents))
    if not set(noise) <= set(numbers):
        allowed = ", ".join(map(str, numbers)) or "none"
        allowed = f"levels between zones and server, here {allowed}"
        raise ArgumentError("noising_levels", tuple(noise), allowed)
    return tuple(
        Level(tuple(each), (noise.get(number, 0.0),) * (max(each) + 1))
        for number, each in zip(numbers, parents, strict=True)
    )


ldp, hdp, cdp = c1, c2, c4

CONFIGURATIONS: dict[str, Callable[..., NoisePlan]] = {
    "none": none,
    "ldp": ldp,
    "hdp": hdp,
    "cdp": cdp,
    "c1": c1,
    "c2": c2,
    "c3": c3,
    "c4": c4,
    "c5": c5,
    "c6": c6,
    "c7": c7,
    "ldp_hdp": ldp_hdp,
}

# Which configurations take Table I's shares.
USERS_OF_SHARES = {"alpha": ("c5", "c7", "ldp_hdp"), "beta": ("c3", "c6", "c7")}


def shares_of(
    privacy: str, *, alpha: float | None, beta: float | None
) -> dict[str, float]:
    """Those of Table I's shares that a configuration takes.

    Args:
      privacy: The configuration's name.
      alpha: As given, or None.
      beta: As given, or None.

    Raises:
      ArgumentError: If a share that it takes is not in [0, 1], or another is given.
    """
    given = {"alpha": alpha, "beta": beta}
    for name, users in USERS_OF_SHARES.items():
        share, allowed = given[name], f"only with privacy={', '.join(users)}"
        ok = share is None
        if privacy in users:
            ok = share is not None and 0.0 <= share <= 1.0
            allowed = f"[0, 1], needed by privacy={privacy}"
        require(ok, name, share, allowed)
    return {name: share for name, share in given.items() if share is not None}


def plan_of(
    privacy: str,
    noise_multiplier: float | None,
    *,
    alpha: float | None,
    beta: float | None,
    **options: Any,
) -> NoisePlan:
    """The plan of a configuration by name; of `levels`, only upper levels add noise.

    Args:
      privacy: The name.
      noise_multiplier: Of every noising party; None with `none`.
      alpha: As in `shares_of`.
      beta: Likewise.
      **options: Fields of `NoisePlan`.

    Raises:
      ArgumentError: If a share does not fit, or a field is out of range.
    """
    if privacy == "levels":
        return NoisePlan(**options)
    options |= shares_of(privacy, alpha=alpha, beta=beta)
    if privacy != "none":
        options["noise_multiplier"] = noise_multiplier
    return CONFIGURATIONS[privacy](**options)


def even_sizes(clients: int, zones: int) -> tuple[int, ...]:
    """n_i of zones that differ by at most one client, the larger zones first."""
    return tuple((clients + i) // zones for i in reversed(range(zones)))


def largest_remainder(exact: Sequence[float]) -> tuple[int, ...]:
    """Rounds to whole numbers whose sum is the rounded sum.

    Args:
      exact: Numbers >= 0.

    Returns:
      Each rounded down, or up for those with the largest fractions.
    """
    counts = [math.floor(x + 1e-9) for x in exact]
    missing = round(sum(exact)) - sum(counts)
    order = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in order[: max(missing, 0)]:
        counts[i] += 1
    return tuple(counts)


def share_of_clients(
    name: str, share: float, zone_sizes: Sequence[int]
) -> tuple[int, ...]:
    """How many clients of each zone a share of all is.

    Args:
      name: What the share is called, for errors.
      share: In [0, 1].
      zone_sizes: n_i.

    Returns:
      share * n in whole clients, spread over zones by largest remainder.

    Raises:
      ArgumentError: If `share` is out of range, or above 0 and less than one client.
    """
    share = _check_share(name, share)
    counts = largest_remainder([share * n for n in zone_sizes])
    allowed = f"0, or a share of the {sum(zone_sizes)} clients that is one or more"
    ok = share == 0 or any(counts) or not zone_sizes
    require(ok, name, share, allowed)
    return counts


def sampling_of(
    name: str, clients_per_round: float, zone_sizes: Sequence[int]
) -> Sampling:
    """How zones draw a cohort, of the same share q = k/n of each.

    Args:
      name: `full`; `fixed` for a fixed size, shared out by largest remainder;
        `poisson`; or `revealed`, which is Poisson to who learns who took part.
      clients_per_round: k, the expected cohort; unused with `full`.
      zone_sizes: n_i.

    Raises:
      ArgumentError: If `name` is unknown, or a cohort of a fixed size leaves a zone
        without a client.
    """
    check_word("sampling", name, SAMPLINGS)
    if name == "full":
        return FullParticipation()
    share = clients_per_round / sum(zone_sizes)
    if name != "fixed":
        return PoissonSampling((share,) * len(zone_sizes))
    sizes = largest_remainder([share * n for n in zone_sizes])
    allowed = f"enough for one client in each of {len(zone_sizes)} zones with "
    allowed += "sampling=fixed"
    require(min(sizes) >= 1, "clients_per_round", clients_per_round, allowed)
    return FixedSizeSampling(sizes)


def _check_share(name: str, share: Any) -> float:
    return check_number(name, share, "[0, 1]", lambda x: 0.0 <= x <= 1.0)


def _share_of_zones(name: str, share: float, s: int) -> int:
    share = _check_share(name, share)
    count = round(share * s)
    whole = math.isclose(count, share * s, abs_tol=1e-6)
    allowed = f"a share that gives a whole number of {s} zones, not {share * s:g}"
    require(whole, name, share, allowed)
    return count
