"""What a comparison of all five systems is asked. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from tff_hdp.simulation.config import RunConfig

SYSTEMS = ("hdp", "fl_top", "hfl_dp", "gfl", "udp_hypernet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchedConfig(RunConfig):
    """The settings of a comparison on top of `RunConfig`; field names are flag names.

    `model` is for HDP, FL-TOP-DP and HFL-DP; GFL, which needs a convex loss, trains
    softmax regression, and UDP-Alg's users `personal_model`.

    Attributes:
      target_epsilon: Epsilon of every system, by RDP, against whoever gets all that
        the system releases, for the client worst off.
      groups: Zones of HDP, edges of HFL-DP, servers of GFL; must divide the clients.
      clients_per_round: Expected cohort of HDP and UDP-Alg, exact one of FL-TOP-DP
        and GFL; in HFL-DP everybody takes part.
      batch_size: Examples a batch, at most the smallest client's.
      local_epochs: Passes of HDP's and FL-TOP-DP's clients over their data.
      client_learning_rate: Of the clients' SGD.
      clip_norm: S of HDP, FL-TOP-DP and UDP-Alg.
      model_norm: C, bound on the norm of HFL-DP's models.
      gradient_bound: B, norm to which GFL's gradients are clipped.
      personal_model: Of UDP-Alg's users; None takes the task's default.

    Raises:
      ArgumentError: If a setting is out of range.
    """

    system: ClassVar[str] = "matched"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = RunConfig.choices

    target_epsilon: float = 8.0
    groups: int = 5
    clients_per_round: int = 100
    batch_size: int = 10
    local_epochs: int = 1
    client_learning_rate: float = 0.05
    clip_norm: float = 0.5
    model_norm: float = 15.0
    gradient_bound: float = 2.0
    personal_model: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count("groups", "clients_per_round", "batch_size", "local_epochs")
        self._check_positive(
            *("target_epsilon", "client_learning_rate"),
            *("clip_norm", "model_norm", "gradient_bound"),
        )
        n, allowed = self.num_clients, "a number that groups divides"
        self._require(n is not None, "num_clients", allowed)
        self._require(n % self.groups == 0, "groups", f"divisors of {n}")
        ok = self.groups <= self.clients_per_round <= n
        self._require(ok, "clients_per_round", f"{self.groups}..{n}")
