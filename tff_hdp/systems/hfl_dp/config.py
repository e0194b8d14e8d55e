"""What a training run of HFL-DP is asked. Imports no TensorFlow."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tff_hdp.errors import ArgumentError, check_left, check_nonnegative
from tff_hdp.simulation.config import RunConfig

if TYPE_CHECKING:
    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System

NOISES = ("exact", "theorem_1", "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HflDpConfig(RunConfig):
    """Every setting of HFL-DP on top of `RunConfig`; field names are flag names.

    A round is one edge aggregation: `rounds` is T / k1 of the paper. The noise is
    chosen for so many rounds: a run can be extended only without noise, or where
    `exposures` says what its epsilons are for.

    Attributes:
      noise: `theorem_1` as in the paper; `exact` by the exact Gaussian mechanism
        at the sensitivity of a clipped model; `none` for HierFAVG.
      edges: N, edge servers under the cloud.
      clients_per_edge: n, with as many clients in all as that makes; None deals
        `num_clients` over the edges.
      k1: Local iterations for one edge aggregation.
      k2: Edge aggregations for one of the cloud.
      local_steps: SGD steps of one local iteration.
      batch_size: Examples a step.
      learning_rate: Of the clients' SGD.
      proximal: mu, weight of the proximal term, which a first step does not feel: of
        one step a local iteration it changes nothing.
      clip_norm: C, bound on the norm of a client's model; None means 15 with noise
        and no clipping without.
      eps1: Epsilon of the edge rounds.
      eps2: Epsilon of the cloud rounds.
      exposures: t1..t5, how often the models of clients, edges, clients, edges and
        cloud are exposed; empty counts every time they are sent in `rounds`,
        which is then fixed for good.
      min_examples: m of Theorem 1, at most the smallest client's examples; None
        takes those.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "hfl_dp"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "noise": NOISES,
    }
    observers: ClassVar[Mapping[str, str]] = {
        "edge_broadcast": "another client of the same edge",
    }

    noise: str = "exact"
    edges: int = 5
    clients_per_edge: int | None = None
    k1: int = 2
    k2: int = 2
    rounds: int = 25
    local_steps: int = 10
    batch_size: int = 32
    learning_rate: float = 0.05
    proximal: float = 0.01
    clip_norm: float | None = None
    eps1: float = 20.0
    eps2: float = 25.0
    exposures: tuple[float | str, ...] = ()
    min_examples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count(
            *("edges", "clients_per_edge", "k1", "k2", "local_steps"),
            *("batch_size", "min_examples"),
        )
        self._check_positive("learning_rate", "eps1", "eps2")
        check_nonnegative("proximal", self.proximal)
        several = self.local_steps > 1
        self._check_used(several, "local_steps of 2 or more", "proximal")
        if self.clients_per_edge is not None:
            total = self.clients_per_edge * self.edges
            ok = self.num_clients in (None, total)
            self._require(ok, "clients_per_edge", "either it or num_clients")
            self._set("num_clients", total)
        self._set("exposures", tuple(self._exposure(t) for t in self.exposures))
        self._require(len(self.exposures) in (0, 5), "exposures", "t1,t2,t3,t4,t5")
        if self.noise == "none":
            asked = ("eps1", "eps2", "clip_norm", "min_examples", "exposures")
            check_left(self, asked, "nothing with noise=none")
        elif self.clip_norm is None:
            self._set("clip_norm", 15.0)
        else:
            self._check_norm("clip_norm")

    def build(self, folder: "RunFolder") -> "System":
        """See base class."""
        from tff_hdp.systems.hfl_dp.run import HflDp

        return HflDp(self, folder)

    def new_ledger(self) -> "RoundLedger":
        """See base class."""
        from tff_hdp.privacy import RoundLedger
        from tff_hdp.systems.hfl_dp.account import account
        from tff_hdp.systems.hfl_dp.plan import HflDpRound

        return RoundLedger(plan_type=HflDpRound, account=account)

    @property
    def label(self) -> str:
        """How the noise is chosen."""
        return "hierfavg" if self.noise == "none" else f"hfl_dp_{self.noise}"

    @property
    def fixes_rounds(self) -> bool:
        """Whether eps1 and eps2 are stated for just so many rounds."""
        return self.noise != "none" and not self.exposures

    @property
    def rounds_by_kind(self) -> tuple[int, int]:
        """How many rounds are of edges alone, and how many of the cloud."""
        cloud = self.rounds // self.k2
        return self.rounds - cloud, cloud

    def _exposure(self, text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ArgumentError("exposures", text, "five numbers > 0")
        return value
