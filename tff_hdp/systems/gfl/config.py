"""What a training run of GFL is asked. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import tasks
from tff_hdp.errors import check_left
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.gfl.plan import SCHEMES

if TYPE_CHECKING:
    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System

LOGISTIC = "gfl_logistic"
GRAPHS = ("random", "ring", "complete")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GflConfig(RunConfig):
    """Every setting of GFL on top of `RunConfig`; field names are flag names.

    A round is one iteration. task=gfl_logistic is the paper's experiment, and
    model=softmax (softmax regression, convex) is there for every other task.

    Attributes:
      scheme: `hybrid` (masks at clients, graph-homomorphic noise between servers),
        `iid` (independent noise at clients and between servers) or `none`.
      sigma_g: Standard deviation of each coordinate's Laplace noise; None means
        0.2, the paper's, where there is noise.
      servers: P.
      per_round: L, the clients that every server draws each iteration.
      graph: How servers are joined: a connected `random` graph, a `ring` or a
        `complete` graph, with Metropolis weights.
      edge_probability: Of two servers being joined in the random graph.
      mu: Step size of the clients' SGD.
      ridge: rho, weight of the ridge term in every client's loss.
      gradient_bound: B, norm to which a client's gradient is clipped.
      batch_size: Examples of a client's batch.
      dimension: M, for task=gfl_logistic.
      examples_per_client: For task=gfl_logistic.
      repetitions: Independent networks run side by side on the same data, over
        which the msd columns are averages; the account is that of one of them.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "gfl"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "task": (*tasks.TASKS, LOGISTIC),
        "scheme": SCHEMES,
        "graph": GRAPHS,
    }
    observers: ClassVar[Mapping[str, str]] = {
        "other_servers": "all other servers, who get the models of their neighbours",
    }
    setting_of: ClassVar[Mapping[str, str]] = {
        "B": "gradient_bound",
        "clients": "num_clients",
    }

    task: str = LOGISTIC
    scheme: str = "hybrid"
    sigma_g: float | None = None
    servers: int = 10
    per_round: int = 10
    graph: str = "random"
    edge_probability: float = 0.4
    mu: float = 0.1
    ridge: float = 0.01
    gradient_bound: float = 2.0
    batch_size: int = 10
    dimension: int = 2
    examples_per_client: int = 100
    repetitions: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count(
            *("servers", "per_round", "batch_size", "dimension"),
            *("examples_per_client", "repetitions"),
        )
        self._check_positive("mu", "ridge")
        self._check_norm("gradient_bound")
        self._require(0.0 < self.edge_probability <= 1.0, "edge_probability", "(0, 1]")
        if self.sigma_g is None:
            self._set("sigma_g", 0.0 if self.scheme == "none" else 0.2)
        elif self.scheme == "none":
            self._require(self.sigma_g == 0, "sigma_g", "0 with scheme=none")
        else:
            self._check_positive("sigma_g")
        ok = self.scheme != "hybrid" or self.servers >= 2
        self._require(ok, "servers", "at least 2, between which scheme=hybrid noises")
        ok = self.scheme != "hybrid" or self.per_round >= 2
        self._require(ok, "per_round", "at least 2, so that masks hide something")
        if self.task == LOGISTIC:
            names = ("model", "partition", "dirichlet_alpha")
            check_left(self, names, f"nothing with task={LOGISTIC}")
        self._check_used(
            self.task == LOGISTIC,
            f"task={LOGISTIC}",
            *("dimension", "examples_per_client", "repetitions"),
        )
        self._check_used(self.graph == "random", "graph=random", "edge_probability")

    def build(self, folder: "RunFolder") -> "System":
        """See base class."""
        from tff_hdp.systems.gfl.run import Gfl

        return Gfl(self, folder)

    def new_ledger(self) -> "RoundLedger":
        """See base class."""
        from tff_hdp.privacy import RoundLedger
        from tff_hdp.systems.gfl.account import account
        from tff_hdp.systems.gfl.plan import GflPlan

        return RoundLedger(plan_type=GflPlan, account=account)

    @property
    def label(self) -> str:
        """Who hides what."""
        return f"gfl_{self.scheme}"
