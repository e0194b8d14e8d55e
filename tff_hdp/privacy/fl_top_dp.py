"""FL-TOP-DP: the clients' shares of its noise, also when some drop out.

Source: FL-TOP paper, Algorithm 3: each of the K chosen clients adds noise of
standard deviation S sigma / sqrt(K), so that the secure sum carries S sigma.
"""

import math

from tff_hdp.privacy.checks import check_nonnegative, check_positive
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.sampling import FixedSizeSampling


def share(*, sigma: float, clients: int, expected_dropouts: int = 0) -> float:
    """Each client's noise standard deviation, in units of S.

    Args:
      sigma: Noise multiplier that the sum must carry.
      clients: Clients chosen for a round.
      expected_dropouts: Drop-outs to provide for; 0 as in the paper.

    Returns:
      sigma / sqrt(clients - expected_dropouts).

    Raises:
      ValueError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return sigma / math.sqrt(_left(clients, expected_dropouts))


def remaining_sigma(*, sigma: float, clients: int, dropouts: int) -> float:
    """What the sum carries after drop-outs: sigma sqrt(1 - d/K).

    Args:
      sigma: Noise multiplier without drop-outs.
      clients: K, clients chosen for a round.
      dropouts: d of them that did not deliver.

    Returns:
      The noise multiplier left; the paper's account still takes sigma.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return sigma * math.sqrt(_left(clients, dropouts) / clients)


def plan(
    *, clients: int, per_round: int, sigma: float, dropout_rate: float = 0.0
) -> NoisePlan:
    """FL-TOP-DP as a noise plan: one zone behind a secure sum.

    Exactly `per_round` clients are drawn, so the account is for replacing one
    client, not the paper's Poisson one.

    Args:
      clients: N.
      per_round: Clients chosen for a round.
      sigma: Noise multiplier of the sum without drop-outs.
      dropout_rate: Probability that a chosen client does not deliver.

    Returns:
      The plan.

    Raises:
      ValueError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        client_noise=share(sigma=sigma, clients=per_round),
        noising_clients=(clients,),
        secure_aggregation=True,
        dropout_rate=dropout_rate,
    )


def _left(clients: int, dropouts: int) -> int:
    check_positive("clients", clients)
    if not 0 <= dropouts < clients:
        raise ValueError(f"dropouts is {dropouts}; allowed is 0..{clients - 1}")
    return clients - dropouts
