"""The HDP paper's own formulas, on the accountant of its time.

For comparison only: docs/privacy.md ("The paper's numbers") says what each gets
wrong. Source: HDP paper, section IV-C (eps/sqrt(k), eps/sqrt(s), eps/sqrt(prod k_j),
shuffling) and Table I. Where the paper writes m, a zone's clients, its k says online
ones are meant.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from tff_hdp.errors import check_count, check_delta, check_positive, check_probability
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import PartyNoise

# The orders of tensorflow-privacy's example accountants in 2020-2021.
ORDERS = tuple(
    float(a)
    for a in (
        *(1.25, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 4.5),
        *range(5, 64),
        *(128, 256, 512),
    )
)


def accountant_epsilon(q: float, z: float, rounds: int, delta: float) -> float:
    """Epsilon by the accountant of the paper's time, "as if Poisson".

    Args:
      q: Sampling probability k/n in (0, 1].
      z: Noise multiplier > 0.
      rounds: T >= 0.
      delta: In (0, 1).

    Returns:
      min over orders a of T rdp(a) + ln(1/delta) / (a - 1). It over-states:
      today's conversion and PLDs give less for the same mechanism.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    check_probability("q", q)
    check_positive("z", z)
    check_delta("delta", delta)
    rounds = check_count("rounds", rounds)
    if rounds == 0:
        return 0.0
    total = rounds * _rdp(q, z) + math.log(1 / delta) / (np.asarray(ORDERS) - 1)
    return float(np.min(total))


@functools.lru_cache(maxsize=1024)
def _rdp(q: float, z: float) -> np.ndarray:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    return RdpAccountant(ORDERS).compose(event).rdp


def ldp(epsilon: float, k: float) -> float:
    """eps/sqrt(k), k online clients that each carry noise."""
    return epsilon / math.sqrt(k)


def hdp(epsilon: float, s: float) -> float:
    """eps/sqrt(s), s super-nodes that each add noise."""
    return epsilon / math.sqrt(s)


def levels(epsilon: float, fan_ins: Sequence[float]) -> float:
    """eps/sqrt(prod k_j), noise at the leaves of levels of fan-in k_j."""
    return epsilon / math.sqrt(math.prod(fan_ins))


def table_i(
    *,
    epsilon_client: float | None = None,
    noising_clients: float = 0.0,
    epsilon_zone: float | None = None,
    noising_zones: float = 0.0,
    epsilon_server: float | None = None,
) -> float | None:
    """Table I: the sum of what each kind of noise would give by itself.

    Args:
      epsilon_client: Epsilon at the clients' multiplier; None if none noises.
      noising_clients: Online clients that noise (k, alpha k or beta s m).
      epsilon_zone: Epsilon at the super-nodes' multiplier.
      noising_zones: Super-nodes that noise (s, beta s, alpha s, ...).
      epsilon_server: Epsilon at the server's multiplier.

    Returns:
      The paper's total, or None if nobody adds noise.
    """
    terms = []
    if epsilon_client is not None and noising_clients > 0:
        terms.append(ldp(epsilon_client, noising_clients))
    if epsilon_zone is not None and noising_zones > 0:
        terms.append(hdp(epsilon_zone, noising_zones))
    if epsilon_server is not None:
        terms.append(epsilon_server)
    return sum(terms) if terms else None


def paper_epsilon(
    plan: NoisePlan, rounds: int, observer: str, kind: str, zone: int, delta: float
) -> float | None:
    """What the paper would state for a plan: Table I, seen by the aggregator.

    The paper makes no difference between the aggregator and those who get the
    model. At a super-node its lemma gives eps/sqrt(k_i) to noising clients.

    Args:
      plan: The noise plan.
      rounds: T.
      observer: As in `AccountRow`.
      kind: As in `AccountRow`.
      zone: The client's zone.
      delta: In (0, 1).

    Returns:
      The paper's epsilon; None where its formulas do not reach: unequal
      sampling rates or super-node noises, or noise at upper levels.
    """
    rates = set(plan.participation)
    noising = [noise for noise in plan.zone_noise if noise]
    at_upper = any(map(any, plan.node_noise[1:-1]))
    if len(rates) > 1 or len(set(noising)) > 1 or at_upper:
        return None
    q = rates.pop()

    def epsilon(noise: PartyNoise) -> float | None:
        z = noise.noise_multiplier
        return accountant_epsilon(q, z, rounds, delta) if noise else None

    if observer == "super_node":
        online = q * plan.noising_clients[zone]
        return table_i(
            epsilon_client=epsilon(plan.client_noise) if kind == "ldp" else None,
            noising_clients=online,
        )
    return table_i(
        epsilon_client=epsilon(plan.client_noise),
        noising_clients=q * sum(plan.noising_clients),
        epsilon_zone=epsilon(noising[0]) if noising else None,
        noising_zones=len(noising),
        epsilon_server=epsilon(plan.server_noise),
    )
