"""HFL-DP: the noise of its Theorem 1, and what that noise is really worth.

Source: HFL-DP paper, section 4.2. Uplink noise is the Gaussian mechanism's for
t exposures, sigma = c t dS / eps with c = sqrt(2 ln(1.25/delta)); downlink noise
is what is missing once the uplink noise has been averaged.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from scipy import optimize

from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_delta,
    check_nonnegative,
    check_positive,
    require,
)
from tff_hdp.privacy.divergences import gaussian_delta, gaussian_epsilon
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.plan import HflDpNoise

# From (exposures, epsilon) to noise standard deviation over sensitivity.
Rule = Callable[[float, float], float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What the noises are chosen for.

    Attributes:
      n: Clients of an edge.
      N: Edges.
      m: Examples of the smallest client, which only the paper's sensitivity depends on.
      C: Bound on the norm of a client's model; None where there is to be no noise.
      eps1: Epsilon of the edge rounds.
      eps2: Epsilon of the cloud rounds.
      delta: In (0, 1).
      t: (t1..t5), exposures of the client's, edge's, client's, edge's and cloud's
        models.
    """

    n: int
    N: int
    m: int = 1
    C: float | None
    eps1: float
    eps2: float
    delta: float
    t: Sequence[float]


def setting_of(config: HflDpConfig, *, clients: int, smallest: int) -> Setting:
    """What a run's noises are chosen for.

    Args:
      config: The run's settings.
      clients: In all.
      smallest: Examples of the smallest client.

    Raises:
      ArgumentError: If the clients do not divide over the edges, or `min_examples` is
        more than the smallest client has.
    """
    if clients % config.edges:
        allowed = f"a divisor of {clients} (the clients), since every edge has n"
        raise ArgumentError("edges", config.edges, allowed)
    m = config.min_examples or smallest
    if m > smallest:
        # Noise falls as 1/m: it would be too little for the smaller clients.
        allowed = f"at most {smallest}, the smallest client's examples"
        raise ArgumentError("min_examples", m, allowed)
    return Setting(
        n=clients // config.edges,
        N=config.edges,
        m=m,
        C=config.clip_norm,
        eps1=config.eps1,
        eps2=config.eps2,
        delta=config.delta,
        t=config.exposures or exposures(config.rounds, config.k2),
    )


def theorem_1(setting: Setting) -> HflDpNoise:
    """The noises of Theorem 1.

    Raises:
      ArgumentError: If a field of the setting is out of range.
    """
    check_count("m", setting.m, 1)
    check_delta("delta", setting.delta)
    c = math.sqrt(2 * math.log(1.25 / setting.delta))
    return _noise(setting, setting.m, lambda count, epsilon: c * count / epsilon)


def exact_noise(setting: Setting) -> HflDpNoise:
    """Theorem 1 put right: the same noises by the exact Gaussian mechanism.

    The sensitivity of a clipped model is 2C, whatever of the client's data
    changes, and t exposures compose as one with sqrt(t) times the sensitivity.

    Raises:
      ArgumentError: If a field of the setting is out of range.
    """
    check_delta("delta", setting.delta)

    def rule(count: float, epsilon: float) -> float:
        return math.sqrt(count) * gaussian_multiplier(epsilon, setting.delta)

    return _noise(setting, 1, rule)


def exposures(rounds: int, k2: int) -> tuple[int, int, int, int, int]:
    """(t1..t5) where whatever is sent counts as exposed.

    Args:
      rounds: Edge aggregations, T / k1; every k2-th is followed by the cloud's.
      k2: Edge aggregations for one of the cloud.

    Returns:
      Uploads of a client, broadcasts of an edge, and three times the rounds of
      the cloud. At least 1 each, as the formulas need.
    """
    cloud = rounds // k2
    return rounds, max(rounds - cloud, 1), *(max(cloud, 1),) * 3


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise over sensitivity with (epsilon, delta), exactly.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    check_positive("epsilon", epsilon)
    check_delta("delta", delta)

    def excess(log_z: float) -> float:
        return float(gaussian_delta(epsilon, math.exp(log_z))) - delta

    low, high = -0.5 * math.log(2 * epsilon) - 3.0, 1.0
    while excess(low) <= 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return math.exp(optimize.brentq(excess, low, high, xtol=1e-13))


def true_epsilon(
    *, sigma: float, sensitivity: float, exposures: float, delta: float
) -> float:
    """What a noise is worth after so many exposures, exactly.

    Args:
      sigma: Standard deviation of the noise.
      sensitivity: 2C/m if the paper's holds (each example's part clipped and
        averaged: then it protects one example); 2C as the algorithm runs, where
        the trained model is clipped (protects everything of a client).
      exposures: t >= 0, how often the quantity is sent.
      delta: In (0, 1).

    Returns:
      Epsilon of the composed Gaussian mechanism; 0 if nothing is sent.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    check_positive("sigma", sigma)
    check_positive("sensitivity", sensitivity)
    if check_nonnegative("exposures", exposures) == 0:
        return 0.0
    return gaussian_epsilon(sigma / (sensitivity * math.sqrt(exposures)), delta)


def _noise(setting: Setting, m: int, rule: Rule) -> HflDpNoise:
    """Noise at a client and at an edge going up, and what is missing going down.

    Args:
      setting: What it is chosen for.
      m: The sensitivity is 2C over it.
      rule: How much noise that takes.
    """
    for name in ("n", "N"):
        check_count(name, getattr(setting, name), 1)
    for name in ("C", "eps1", "eps2"):
        check_positive(name, getattr(setting, name))
    require(len(setting.t) == 5, "t", setting.t, "five numbers, t1..t5")
    for i, count in enumerate(setting.t):
        check_positive(f"t[{i}]", count)
    n, N, eps1, eps2 = setting.n, setting.N, setting.eps1, setting.eps2
    t1, t2, t3, t4, t5 = setting.t
    sensitivity = 2 * setting.C / m
    sigma_u1 = rule(t1, eps1) * sensitivity
    sigma_u2 = rule(t3, eps2) * sensitivity
    sigma_e = rule(t4, eps2) * sensitivity / n
    edge = rule(t2, eps1) * sensitivity / n
    cloud = rule(t5, eps2) * sensitivity / (n * N)
    missing_e = edge**2 - sigma_u1**2 / n
    missing_c = cloud**2 - sigma_e**2 / N - sigma_u2**2 / (n * N)
    return HflDpNoise(
        sigma_u1=sigma_u1,
        sigma_u2=sigma_u2,
        sigma_e=sigma_e,
        n_e=math.sqrt(max(missing_e, 0.0)),
        n_c=math.sqrt(max(missing_c, 0.0)),
    )
