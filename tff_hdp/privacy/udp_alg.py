"""UDP-Alg (HyperNetFL): the noise multiplier behind its sigma, and its plan.

Source: UDP-Alg paper, Algorithm 2 and its moments account: noise of standard
deviation sigma = z max(w) S / (q W) on the sum divided by q W.
"""

from tff_hdp.privacy.checks import check_positive
from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.sampling import PoissonSampling


def noise_multiplier(
    *, sigma: float, q: float, W: float, S: float, max_weight: float = 1.0
) -> float:
    """Z = sigma q W / (S max(w)).

    Args:
      sigma: Standard deviation of the noise on the average.
      q: Sampling probability in (0, 1].
      W: Sum of all users' weights.
      S: Clip norm.
      max_weight: Largest user weight.

    Returns:
      The noise multiplier.

    Raises:
      ValueError: If an argument is out of range.
    """
    if not 0.0 < q <= 1.0:
        raise ValueError(f"q is {q}; allowed is (0, 1]")
    for name, value in {
        "sigma": sigma,
        "W": W,
        "S": S,
        "max_weight": max_weight,
    }.items():
        check_positive(name, value)
    return sigma * q * W / (S * max_weight)


def plan(*, users: int, q: float, sigma: float, S: float) -> NoisePlan:
    """UDP-Alg with equal weights as a noise plan: one zone, server noise.

    It accounts for the hypernetwork. A user's descriptor v_u is updated from
    un-noised data of that user: it is private toward other users only as long as
    it stays with the server and its user.

    Args:
      users: n.
      q: Sampling probability in (0, 1].
      sigma: Standard deviation of the noise on the average.
      S: Clip norm.

    Returns:
      The plan.

    Raises:
      ValueError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(users,),
        sampling=PoissonSampling((q,)),
        server_noise=noise_multiplier(sigma=sigma, q=q, W=users, S=S),
        clipping=Clipping(norm=S),
    )
