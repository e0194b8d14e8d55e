"""The curves of UDP-Alg's Figures 2 and 3 and what they cost. No TensorFlow."""

import dataclasses
import pathlib

import pandas as pd

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import account, worst
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a figure.

    Attributes:
      sigma: Noise on the average; None for Noiseless.
      S: Clip norm.
      printed: Accuracies in per cent that the paper prints for it, in words.
    """

    sigma: float | None = None
    S: float | None = None
    printed: str = "-"

    @property
    def name(self) -> str:
        """Its folder's name."""
        if self.sigma is None:
            return "noiseless"
        return f"sigma_{self.sigma:g}_S_{self.S:g}"

    @property
    def title(self) -> str:
        """Its name in the legend."""
        if self.sigma is None:
            return "Noiseless"
        return f"$\\sigma$ = {self.sigma:g}, S = {self.S:g}"


# What section 4.3 prints. It names sigma for 2b once and for 3 never: the other
# values are chosen here around z = 5 at q = 0.05 (N = 3400 and 6348).
FIGURES: dict[str, tuple[Curve, ...]] = {
    "2a": (
        Curve(),
        Curve(sigma=0.05, S=0.1, printed="53.95 at eps 4, 82.23 at eps 10"),
        Curve(sigma=0.1, S=0.1, printed="21.27"),
        Curve(sigma=0.05, S=0.2, printed="69.67"),
    ),
    "2b": (
        Curve(),
        Curve(sigma=0.0015, S=0.05, printed="5.31 under Noiseless at eps 3"),
        Curve(sigma=0.003, S=0.05),
        Curve(sigma=0.0015, S=0.1),
    ),
    "3": (
        Curve(),
        Curve(sigma=0.0008, S=0.05, printed="3.84 under Noiseless at eps 1.25"),
        Curve(sigma=0.0016, S=0.05),
        Curve(sigma=0.0008, S=0.1),
    ),
}


def configure(
    config: UdpHypernetConfig,
    curve: Curve,
    out: pathlib.Path,
    private_rate: float | None = None,
) -> UdpHypernetConfig:
    """The settings of one curve; see `draw`."""
    changes = {
        "privacy": "none" if curve.sigma is None else "udp_alg",
        "sigma": curve.sigma,
        "clip_norm": curve.S or config.clip_norm,
        "noise_multiplier": None,
        "target_epsilon": None,
        "out": str(out),
    }
    if curve.sigma is not None and private_rate is not None:
        changes["server_learning_rate"] = private_rate
    return dataclasses.replace(config, **changes)


def account_table(config: UdpHypernetConfig, figure: str) -> pd.DataFrame:
    """What the noisy curves of a figure are worth after `config.rounds`.

    Args:
      config: Users, sampling rate, rounds and delta.
      figure: A key of `FIGURES`.

    Returns:
      One row a curve: z, and epsilon of the released hypernetwork.

    Raises:
      ArgumentError: If `num_clients` is not given.
    """
    if config.num_clients is None:
        raise ArgumentError("num_clients", None, "a number, for the account")
    rows = []
    for curve in FIGURES[figure]:
        if curve.sigma is None:
            continue
        plan = udp_alg.plan(
            users=config.num_clients,
            q=config.sampling_rate,
            sigma=curve.sigma,
            S=curve.S,
        )
        row = worst(account(plan, config.rounds, config.delta), "released_model")
        rows.append(
            {
                "sigma": curve.sigma,
                "S": curve.S,
                "users": config.num_clients,
                "q": config.sampling_rate,
                "z": round(plan.server_noise_multiplier, 4),
                "rounds": config.rounds,
                "eps PLD": round(row.epsilon_pld, 4),
                "eps RDP": round(row.epsilon_rdp, 4),
                "eps paper": round(row.epsilon_paper, 4),
                "delta": config.delta,
                "neighbours": row.neighbours,
            }
        )
    return pd.DataFrame(rows)
