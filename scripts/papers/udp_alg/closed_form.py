"""What UDP-Alg's sigma, S and q are worth, without training. No TensorFlow."""

import pandas as pd

from scripts.papers import presets
from scripts.papers.udp_alg.trained import CURVES, EPS_4, EPS_10
from tff_hdp.privacy import account, worst
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

# Settings that the table depends on.
HEEDED = ("num_clients", "sampling_rate", "rounds", "delta")
# The rounds after which the printed epsilons are reached; T is not stated.
ROUNDS = {"2a": (EPS_4, EPS_10), "2b": (3440,), "3": (630,)}


READING = (
    "eps: a user's, against whoever gets the hypernetwork's weights after each round "
    "and no descriptor, by the method that the column names."
)


def table(**changes: object) -> pd.DataFrame:
    """The curves with noise of all figures at the paper's size.

    Args:
      **changes: Settings to have instead of the presets'.

    Returns:
      A row a curve and number of rounds: z, and epsilon of the released hypernetwork
      against whoever gets it; Poisson sampling, the cohort hidden.
    """
    rows = []
    for figure, pairs in CURVES.items():
        config = presets.read(f"udp_alg/{figure}", UdpHypernetConfig, **changes)
        steps = (config.rounds,) if "rounds" in changes else ROUNDS[figure]
        rows += [
            _row(figure, config, sigma, S, rounds)
            for rounds in steps
            for sigma, S in pairs
        ]
    return pd.DataFrame(rows)


def _row(
    figure: str, config: UdpHypernetConfig, sigma: float, S: float, rounds: int
) -> dict[str, object]:
    plan = udp_alg.plan(
        users=config.num_clients, q=config.sampling_rate, sigma=sigma, S=S
    )
    row = worst(account(plan, rounds, config.delta), "released_model")
    return {
        "figure": figure,
        "sigma": sigma,
        "S": S,
        "users": config.num_clients,
        "q": config.sampling_rate,
        "z": plan.server_noise_multiplier,
        "rounds": rounds,
        "eps PLD": row.epsilon_pld,
        "eps RDP": row.epsilon_rdp,
        "eps paper": row.epsilon_paper,
        "delta": config.delta,
        "neighbours": row.neighbours,
        "sampling": row.sampling,
    }
