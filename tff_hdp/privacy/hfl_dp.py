"""HFL-DP: the noise of its Theorem 1, and what that noise is really worth.

Source: HFL-DP paper, section 4.2. Uplink noise is the Gaussian mechanism's for
t exposures, sigma = c t dS / eps with c = sqrt(2 ln(1.25/delta)); downlink noise
is what is missing once the uplink noise has been averaged.
"""

import dataclasses
import math

from tff_hdp.privacy import gaussian
from tff_hdp.privacy.checks import check_delta, check_positive


@dataclasses.dataclass(frozen=True)
class HflDpNoise:
    """Standard deviations of HFL-DP's noises, in units of the parameters.

    Attributes:
      sigma_u1: Clients, on edge rounds (eps1, t1).
      sigma_u2: Clients, on cloud rounds (eps2, t3).
      sigma_e: Edges, uploading (eps2, t4).
      n_e: Edges, sending down.
      n_c: Cloud, sending down.
    """

    sigma_u1: float
    sigma_u2: float
    sigma_e: float
    n_e: float
    n_c: float


def theorem_1(
    *,
    n: int,
    N: int,
    m: int,
    C: float,
    eps1: float,
    eps2: float,
    delta: float,
    t: tuple[float, float, float, float, float],
) -> HflDpNoise:
    """The noises of Theorem 1.

    Args:
      n: Clients of an edge.
      N: Edges.
      m: Examples of the smallest client.
      C: Bound on the norm of a client's model.
      eps1: Epsilon of the edge rounds.
      eps2: Epsilon of the cloud rounds.
      delta: In (0, 1).
      t: (t1..t5), exposures of the client's, edge's, client's, edge's and cloud's
        models.

    Returns:
      The five standard deviations.

    Raises:
      ValueError: If an argument is out of range.
    """
    for name, value in {
        "n": n,
        "N": N,
        "m": m,
        "C": C,
        "eps1": eps1,
        "eps2": eps2,
    }.items():
        check_positive(name, value)
    check_delta("delta", delta)
    if len(t) != 5:
        raise ValueError(f"t has {len(t)} entries; it needs t1..t5")
    for i, count in enumerate(t):
        check_positive(f"t[{i}]", count)
    t1, t2, t3, t4, t5 = t
    c = gaussian.classic_multiplier(1.0, delta)
    unit = 2 * C / m  # the paper's sensitivity of a client's model
    missing_e = t2**2 - t1**2 * n
    missing_c = t5**2 - t4**2 * N - t3**2 * N * n
    return HflDpNoise(
        sigma_u1=c * t1 * unit / eps1,
        sigma_u2=c * t3 * unit / eps2,
        sigma_e=c * t4 * unit / (n * eps2),
        n_e=c * unit / (n * eps1) * math.sqrt(max(missing_e, 0.0)),
        n_c=c * unit / (n * N * eps2) * math.sqrt(max(missing_c, 0.0)),
    )


def true_epsilon(
    *, sigma: float, sensitivity: float, exposures: float, delta: float
) -> float:
    """What a noise is worth after so many exposures, exactly.

    Args:
      sigma: Standard deviation of the noise.
      sensitivity: 2C/m if the paper's holds (each example's part clipped and
        averaged: then it protects one example); 2C as the algorithm runs, where
        the trained model is clipped (protects everything of a client).
      exposures: t > 0, how often the quantity is sent.
      delta: In (0, 1).

    Returns:
      Epsilon of the composed Gaussian mechanism.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_positive("sigma", sigma)
    check_positive("sensitivity", sensitivity)
    check_positive("exposures", exposures)
    return gaussian.epsilon(sigma / (sensitivity * math.sqrt(exposures)), delta)
