"""How likely those who collude in a zone's secure sum take its masks off."""

import collections
from collections.abc import Callable, Sequence

import numpy as np

from tff_hdp.privacy.parts import FixedSizeSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import ThreatModel

# What may happen in a round, over all zones, and is taken for never.
_FAILURE = 2.0**-60

# Of so many colluders in a sum, the most parties in all whose masks they take off.
MostUnmasked = Callable[[np.ndarray], np.ndarray]


def majority(colluders: np.ndarray) -> np.ndarray:
    """`MostUnmasked` where more than half of a sum's parties recover every secret."""
    return 2 * colluders - 1


def sums_hold(
    plan: NoisePlan,
    corrupt: Sequence[int],
    loss_rate: float,
    most_unmasked: MostUnmasked,
    *,
    elected: bool = False,
) -> bool:
    """Whether colluding clients are too few to unmask secure sums of zones.

    They are too few where they take masks off with probability at most 2^-60 in a
    round, over all zones.

    Args:
      plan: Zones and how their cohorts are drawn.
      corrupt: How many clients of each zone collude.
      loss_rate: Of the others that are drawn; who colludes comes if it is drawn.
      most_unmasked: What the protocol bears.
      elected: Whether a zone's super-node is a client of it, and one more of them.
    """
    kinds = list(zip(plan.zone_sizes, plan.participation, corrupt, strict=True))
    alike = collections.Counter(kinds)
    failing = sum(
        number
        * _unmasking(
            plan, kinds.index(kind), kind[-1], loss_rate, most_unmasked, elected
        )
        for kind, number in alike.items()
    )
    return failing <= _FAILURE


def sum_hides(
    plan: NoisePlan, threat: ThreatModel, zone: int, *, fellows: int = 0
) -> bool:
    """Whether a zone's super-node sees no more of its clients than their sum.

    By `threat`, and by what any protocol bears: no majority of a sum's clients.

    Args:
      plan: What is run.
      threat: What is assumed of the parties.
      zone: Of the clients.
      fellows: Clients of the zone that tell the super-node, beside `threat`'s.
    """
    if not (plan.secure_aggregation and threat.secure_sums_hold):
        return False
    told = threat.colluders_in_zone + fellows
    corrupt = min(told, plan.zone_sizes[zone] - 1)
    if not corrupt:
        # An elected super-node alone is no majority of a sum with somebody else in it.
        return True
    found = _unmasking(
        plan,
        zone,
        corrupt,
        threat.dropout_rate,
        majority,
        threat.elected_super_nodes,
    )
    return found <= _FAILURE


def _unmasking(
    plan: NoisePlan,
    zone: int,
    corrupt: int,
    loss_rate: float,
    most_unmasked: MostUnmasked,
    elected: bool,
) -> float:
    """Probability that a zone's sum holds honest clients, but too few to hide any.

    That is, so few that those who collude recover every mask. An elected super-node
    colludes too, but is drawn like the honest clients and counted among them.
    """
    if not corrupt + elected:
        return 0.0
    from scipy import stats

    size, came = plan.zone_sizes[zone], np.arange(corrupt + 1)
    most = most_unmasked(came + elected) - came
    # Where it is not in it, those who are corrupt can do with one by themselves.
    least = np.where(most_unmasked(came) > came, 1, 1 + elected)
    if isinstance(plan.sampling, FixedSizeSampling):
        k = plan.sampling.sizes[zone]
        likely = stats.hypergeom(size, corrupt, k).pmf(came)
        honest = stats.binom(np.maximum(k - came, 0), 1.0 - loss_rate)
    else:
        q = plan.participation[zone]
        likely = stats.binom(corrupt, q).pmf(came)
        honest = stats.binom(size - corrupt, q * (1.0 - loss_rate))
    # With fewer in all a zone reveals nothing, and nobody's update with nobody there.
    fewest = np.maximum(plan.min_zone_clients - came, least)
    few = np.maximum(honest.cdf(most) - honest.cdf(fewest - 1), 0.0)
    return float(likely @ few)
