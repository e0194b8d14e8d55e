"""HFL-DP's noises beside what they are worth: the paper's epsilon and the exact one."""

import dataclasses
import functools
import math

from tff_hdp.systems.hfl_dp.noise import Setting, true_epsilon
from tff_hdp.systems.hfl_dp.plan import HflDpNoise

READING = (
    "epsilon_stated: what was asked for; noise=theorem_1 means it for replacing one "
    "example, noise=exact for one client. epsilon_client: for replacing one client, "
    "or one example of it, over the run's rounds that send it, whatever the exposures. "
    "epsilon_example does not hold as run: it is for replacing one example at the "
    "paper's sensitivity 2C/m, over the exposures, if each example's part were clipped "
    "and averaged. Both are the Gaussian mechanism's exact ones. All clients take part "
    "in every round. Each link by itself, against: client to edge, the client's edge; "
    "edge to clients, who gets an edge's models; edge to cloud, the cloud; cloud to "
    "clients, who gets the cloud's models. Who sees several links, or knows a noise of "
    "its own, is promised less: the account has that."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseRow:
    """One quantity that HFL-DP sends, over all its exposures.

    Attributes:
      quantity: What is sent.
      noise: Standard deviation of all the noise it carries.
      exposures: How often it is counted as seen, t.
      epsilon_stated: What the noise was chosen for.
      epsilon_example: Exact, at the paper's sensitivity 2C/m of one example; it
        would hold if each example's part were clipped and averaged.
      epsilon_client: Exact, at the sensitivity 2C of the clipped model, over as many
        rounds as send it; 0 if none does.
      delta: Of all three.
    """

    quantity: str
    noise: float
    exposures: float
    epsilon_stated: float
    epsilon_example: float
    epsilon_client: float
    delta: float


def noise_table(
    noise: HflDpNoise, setting: Setting, rounds: tuple[int, int]
) -> list[NoiseRow]:
    """One row for each of Theorem 1's five quantities.

    Args:
      noise: The standard deviations in use.
      setting: What they were chosen for.
      rounds: The run's, of edges alone and of the cloud. An upload is of the one or
        the other kind, though t1 counts both.
    """
    n, N, C, m, t = setting.n, setting.N, setting.C, setting.m, setting.t
    eps1, eps2 = setting.eps1, setting.eps2
    down_edge = math.hypot(noise.n_e, noise.sigma_u1 / math.sqrt(n))
    down_cloud = math.hypot(
        noise.n_c, noise.sigma_e / math.sqrt(N), noise.sigma_u2 / math.sqrt(n * N)
    )
    of_edge, of_cloud = rounds
    # Name, noise, exposures, rounds that send it, stated epsilon, clients averaged.
    quantities = (
        ("client to edge, edge rounds", noise.sigma_u1, t[0], of_edge, eps1, 1),
        ("edge to clients", down_edge, t[1], of_edge, eps1, n),
        ("client to edge, cloud rounds", noise.sigma_u2, t[2], of_cloud, eps2, 1),
        ("edge to cloud, sigma_E alone", noise.sigma_e, t[3], of_cloud, eps2, n),
        ("cloud to clients", down_cloud, t[4], of_cloud, eps2, n * N),
    )
    rows = []
    for name, sigma, exposures, sent, stated, averaged in quantities:
        exact = functools.partial(true_epsilon, sigma=sigma, delta=setting.delta)
        rows.append(
            NoiseRow(
                quantity=name,
                noise=sigma,
                exposures=exposures,
                epsilon_stated=stated,
                epsilon_example=exact(
                    sensitivity=2 * C / m / averaged, exposures=exposures
                ),
                epsilon_client=exact(sensitivity=2 * C / averaged, exposures=sent),
                delta=setting.delta,
            )
        )
    return rows


def warnings(rows: list[NoiseRow], *, m: int) -> list[str]:
    """Where Theorem 1's premises fail, for noise that it chose.

    Args:
      rows: `noise_table` of the noise.
      m: Examples of the smallest client.
    """
    found = []
    for row in rows:
        step = row.epsilon_stated / row.exposures
        if step >= 1:
            found.append(
                f"{row.quantity}: sigma = c dS / eps is proved for eps < 1 an exposure "
                f"and is used at {step:g}"
            )
        if row.epsilon_example > row.epsilon_stated * (1 + 1e-9):
            found.append(
                f"{row.quantity}: even at the sensitivity 2C/m its noise gives "
                f"{row.epsilon_example:.4g}, not {row.epsilon_stated:g}"
            )
    found.append(
        f"the sensitivity 2C/m, m = {m}, is that of averages of clipped parts of "
        "single examples; what is clipped and sent is the trained model, whose "
        f"sensitivity is 2C, {m} times as much"
    )
    return found
