"""What a training run of HDP is asked. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from tff_hdp.privacy.configurations import CONFIGURATIONS, USERS_OF_SHARES
from tff_hdp.systems.hdp.secure_config import SecureConfig
from tff_hdp.systems.hdp.zones_config import ZonesConfig

OBSERVERS = ("super_node", "aggregator", "released_model")
OPTIMIZERS = ("sgd", "sgdm", "adam", "yogi", "adagrad")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HdpConfig(SecureConfig, ZonesConfig):
    """Every setting of HDP on top of its bases; field names are flag names.

    Attributes:
      privacy: Who adds noise: `none`, `cdp`, `hdp`, `ldp` or `c1`..`c7` of Table I;
        `levels` if only the --noising_levels do.
      alpha: Share alpha of Table I, for c5 and c7.
      beta: Share beta of Table I, for c3, c6 and c7.
      clients_per_round: k, the expected cohort; q = k / n in every zone.
      sampling: `poisson`, or `fixed` for exactly k_i clients of each zone.
      algorithm: `fedavg`, or `fedsgd` for one full-batch gradient a client.
      local_epochs: Passes over a client's data; None means 5, or 1 with fedsgd.
      batch_size: Examples a batch.
      client_optimizer: Optimizer of local training.
      client_learning_rate: Its rate.
      server_optimizer: Optimizer applied to the aggregated update.
      server_learning_rate: Its rate.
      clipping: `flat`, `per_layer`, or `adaptive` (server noise only).
      clip_norm: S as a number, or `auto` for the mean update norm of a pilot
        without noise, which is itself not private. The start of `adaptive`.
      pilot_rounds: Length of that pilot.
      estimator: `fixed` or `bounded`; None means `fixed` with noise and the
        realised mean without.
      weighting: `uniform`, or `examples` for w = min(n_k / cap, 1).
      example_cap: That cap; None takes the largest client, as public knowledge.
      noise_multiplier: z, used by every party that adds noise.
      target_epsilon: Chooses z instead, for `target_observer` after `rounds`.
      target_observer: Whose epsilon that is.
      cohort_chunk: How many clients of a zone are trained in one computation; 0
        trains each alone; None chooses by the size of the model, and 0 where
        model or optimizer cannot be stacked.

    Raises:
      ConfigError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "hdp"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ZonesConfig.choices,
        **SecureConfig.choices,
        "privacy": (*CONFIGURATIONS, "levels"),
        "sampling": ("poisson", "fixed"),
        "algorithm": ("fedavg", "fedsgd"),
        "client_optimizer": OPTIMIZERS,
        "server_optimizer": OPTIMIZERS,
        "clipping": ("flat", "per_layer", "adaptive"),
        "estimator": ("fixed", "bounded"),
        "weighting": ("uniform", "examples"),
        "target_observer": OBSERVERS,
    }

    privacy: str = "hdp"
    alpha: float | None = None
    beta: float | None = None
    clients_per_round: float = 100
    sampling: str = "poisson"
    algorithm: str = "fedavg"
    local_epochs: int | None = None
    batch_size: int = 20
    client_optimizer: str = "sgd"
    client_learning_rate: float = 0.02
    server_optimizer: str = "sgd"
    server_learning_rate: float = 1.0
    clipping: str = "flat"
    clip_norm: float | str = 1.0
    pilot_rounds: int = 5
    estimator: str | None = None
    weighting: str = "uniform"
    example_cap: int | None = None
    noise_multiplier: float | None = None
    target_epsilon: float | None = None
    target_observer: str = "released_model"
    cohort_chunk: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._resolve()
        self._check_numbers()
        self._check_noise()
        if self.clipping == "adaptive" and self.privacy not in ("cdp", "c4"):
            raise self._error(
                "clipping", "adaptive", "flat or per_layer unless --privacy=cdp"
            )
        self._check_secure()
        if self.algorithm == "fedsgd" and self.local_epochs != 1:
            raise self._error(
                "local_epochs", self.local_epochs, "1 with --algorithm=fedsgd"
            )

    @property
    def label(self) -> str:
        """Who adds noise."""
        return self.privacy

    def _resolve(self) -> None:
        if self.local_epochs is None:
            self._set("local_epochs", 1 if self.algorithm == "fedsgd" else 5)
        if self.clip_norm != "auto":
            try:
                self._set("clip_norm", float(self.clip_norm))
            except ValueError as error:
                raise self._error(
                    "clip_norm", self.clip_norm, "a finite number > 0, or auto"
                ) from error

    def _check_secure(self) -> None:
        if self.secure_aggregation != "none" and self.clipping == "adaptive":
            raise self._error(
                "clipping", "adaptive", "flat or per_layer with --secure_aggregation"
            )
        if not self.server_is_secure:
            return
        unequal = {
            "zones": (self.zones == 1, "at least 2"),
            "levels": (bool(self.levels), "none"),
            "estimator": (self.estimator == "bounded", "fixed"),
            "mixing": (self.mixing != "weighted", "weighted"),
        }
        for name, (refused, allowed) in unequal.items():
            if refused:
                value = getattr(self, name)
                shown = ",".join(map(str, value)) if name == "levels" else value
                raise self._error(
                    name,
                    shown,
                    f"{allowed} with --secure_aggregation={self.secure_aggregation}",
                )

    def _check_numbers(self) -> None:
        self._check_count("local_epochs", "batch_size", "pilot_rounds", "example_cap")
        if self.cohort_chunk is not None and self.cohort_chunk < 0:
            raise self._error("cohort_chunk", self.cohort_chunk, "a whole number >= 0")
        self._check_positive("clients_per_round")
        self._check_positive("client_learning_rate")
        self._check_positive("server_learning_rate")
        if self.target_epsilon is not None:
            self._check_positive("target_epsilon")
        if self.clip_norm != "auto":
            self._check_positive("clip_norm", "a finite number > 0, or auto")

    def _check_noise(self) -> None:
        for name, users in USERS_OF_SHARES.items():
            given = getattr(self, name)
            if self.privacy in users and given is None:
                raise self._error(
                    name, given, f"[0, 1], needed by --privacy={self.privacy}"
                )
            if self.privacy not in users and given is not None:
                raise self._error(
                    name, given, f"only with --privacy={', '.join(users)}"
                )
            if given is not None and not 0.0 <= given <= 1.0:
                raise self._error(name, given, "[0, 1]")
        levels = ",".join(map(str, self.noising_levels))
        if self.privacy == "none" and levels:
            raise self._error("noising_levels", levels, "none with --privacy=none")
        if self.privacy == "levels" and not levels:
            raise self._error(
                "noising_levels", "empty", "a level, needed by --privacy=levels"
            )
        z, target = self.noise_multiplier, self.target_epsilon
        if self.privacy == "none":
            if z is not None or target is not None:
                name = "noise_multiplier" if z is not None else "target_epsilon"
                raise self._error(name, z or target, "nothing with --privacy=none")
        elif (z is None) == (target is None):
            raise self._error(
                "noise_multiplier",
                z,
                f"either it or --target_epsilon with --privacy={self.privacy}",
            )
        elif z is not None:
            self._check_positive("noise_multiplier")
            if not 1e-6 <= z <= 1e6:
                raise self._error("noise_multiplier", z, "1e-6..1e6")
