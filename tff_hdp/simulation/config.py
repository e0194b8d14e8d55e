"""What a training run is, as one frozen value. Imports no TensorFlow."""

import dataclasses
import math
from typing import Any

from tff_hdp.cli import UsageError
from tff_hdp.privacy.configurations import CONFIGURATIONS
from tff_hdp.runtime import RUNTIMES

PRIVACY = tuple(CONFIGURATIONS)
ALGORITHMS = ("fedavg", "fedsgd")
SAMPLING = ("poisson", "fixed")
CLIPPING = ("flat", "per_layer", "adaptive")
ESTIMATORS = ("fixed", "bounded")
WEIGHTING = ("uniform", "examples")
OPTIMIZERS = ("sgd", "sgdm", "adam", "yogi", "adagrad")
OBSERVERS = ("super_node", "aggregator", "released_model")


class ConfigError(UsageError):
    """A setting is out of range. The message names the flag and its value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Every setting of a training run; field names are flag names.

    Attributes:
      task: Name of a task in `tasks`.
      model: Name of one of the task's models; None takes its default.
      privacy: `none`, `cdp`, `hdp`, `ldp` or a configuration `c1`..`c7`.
      alpha: Share alpha of Table I, for c5 and c7.
      beta: Share beta of Table I, for c3, c6 and c7.
      zones: s.
      num_clients: n; None takes the task's own number.
      partition: How examples are split over clients; None takes the task's own.
      dirichlet_alpha: Concentration of the `dirichlet` partition.
      clients_per_round: k, the expected cohort; q = k / n in every zone.
      sampling: `poisson`, or `fixed` for exactly k_i clients of each zone.
      rounds: T.
      algorithm: `fedavg`, or `fedsgd` for one full-batch gradient a client.
      local_epochs: Passes over a client's data.
      batch_size: Examples a batch.
      client_optimizer: One of `OPTIMIZERS`.
      client_learning_rate: Its rate.
      server_optimizer: One of `OPTIMIZERS`.
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
      target_observer: One of `OBSERVERS`.
      delta: Of (epsilon, delta).
      runtime: One of `RUNTIMES`.
      cohort_chunk: How many clients of a zone are trained in one computation; 0
        trains each alone; None chooses by the size of the model, and 0 where
        model or optimizer cannot be stacked.
      seed: Fixes zones, partition, cohorts and initial weights for tests; noise
        is never seeded. None draws all of it from the operating system.
      data_dir: Where local data packs lie.
      out: The run folder.

    Raises:
      ConfigError: If a setting is out of range or two contradict each other.
    """

    task: str = "digits"
    model: str | None = None
    privacy: str = "hdp"
    alpha: float | None = None
    beta: float | None = None
    zones: int = 10
    num_clients: int | None = None
    partition: str | None = None
    dirichlet_alpha: float | None = None
    clients_per_round: float = 100
    sampling: str = "poisson"
    rounds: int = 200
    algorithm: str = "fedavg"
    local_epochs: int = 5
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
    delta: float = 1e-5
    runtime: str = "in_process"
    cohort_chunk: int | None = None
    seed: int | None = None
    data_dir: str | None = None
    out: str = "runs/train"

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        self._check_privacy()

    def to_dict(self) -> dict[str, Any]:
        """Every setting by flag name, ready for JSON."""
        return dataclasses.asdict(self)

    def _check_choices(self) -> None:
        for name, allowed in {
            "privacy": PRIVACY,
            "sampling": SAMPLING,
            "algorithm": ALGORITHMS,
            "client_optimizer": OPTIMIZERS,
            "server_optimizer": OPTIMIZERS,
            "clipping": CLIPPING,
            "estimator": (None, *ESTIMATORS),
            "weighting": WEIGHTING,
            "target_observer": OBSERVERS,
            "runtime": RUNTIMES,
        }.items():
            if getattr(self, name) not in allowed:
                names = ", ".join(a for a in allowed if a)
                raise _error(name, getattr(self, name), names)

    def _check_numbers(self) -> None:
        for name in ("zones", "rounds", "local_epochs", "batch_size", "pilot_rounds"):
            if getattr(self, name) < 1:
                raise _error(name, getattr(self, name), "a whole number >= 1")
        for name in ("num_clients", "example_cap"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise _error(name, getattr(self, name), "a whole number >= 1")
        if self.cohort_chunk is not None and self.cohort_chunk < 0:
            raise _error("cohort_chunk", self.cohort_chunk, "a whole number >= 0")
        for name in (
            "clients_per_round",
            "client_learning_rate",
            "server_learning_rate",
        ):
            self._check_positive(name)
        for name in ("target_epsilon", "dirichlet_alpha"):
            if getattr(self, name) is not None:
                self._check_positive(name)
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise _error("seed", self.seed, f"0..{2**32 - 1}")
        if self.clip_norm != "auto":
            self._check_positive("clip_norm", "a finite number > 0, or auto")
        if not 0.0 < self.delta < 1.0:
            raise _error("delta", self.delta, "(0, 1)")

    def _check_positive(
        self, name: str, allowed: str = "a finite number greater than 0"
    ) -> None:
        value = getattr(self, name)
        if isinstance(value, str) or not (math.isfinite(value) and value > 0):
            raise _error(name, value, allowed)

    def _check_privacy(self) -> None:
        for name, users in {"alpha": ("c5", "c7"), "beta": ("c3", "c6", "c7")}.items():
            given = getattr(self, name)
            if self.privacy in users and given is None:
                raise _error(name, given, f"[0, 1], needed by --privacy={self.privacy}")
            if self.privacy not in users and given is not None:
                raise _error(name, given, f"only with --privacy={', '.join(users)}")
            if given is not None and not 0.0 <= given <= 1.0:
                raise _error(name, given, "[0, 1]")
        z, target = self.noise_multiplier, self.target_epsilon
        if self.privacy == "none":
            if z is not None or target is not None:
                name = "noise_multiplier" if z is not None else "target_epsilon"
                raise _error(name, z or target, "nothing with --privacy=none")
        elif (z is None) == (target is None):
            raise _error(
                "noise_multiplier",
                z,
                f"either it or --target_epsilon with --privacy={self.privacy}",
            )
        elif z is not None:
            self._check_positive("noise_multiplier")
            if not 1e-6 <= z <= 1e6:
                raise _error("noise_multiplier", z, "1e-6..1e6")
        if self.clipping == "adaptive" and self.privacy not in ("cdp", "c4"):
            raise _error(
                "clipping", "adaptive", "flat or per_layer unless --privacy=cdp"
            )
        if self.algorithm == "fedsgd" and self.local_epochs != 1:
            raise _error("local_epochs", self.local_epochs, "1 with --algorithm=fedsgd")


def flag_error(error: ValueError, fallback: str) -> ConfigError:
    """A library's ValueError, `argument is value; ...`, in the words of the flags.

    Args:
      error: What the library raised.
      fallback: `--flag is value`, for messages about no flag's namesake.
    """
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    text = str(error)
    return ConfigError(
        f"--{text}" if text.split(" ")[0] in names else f"{fallback}; {text}"
    )


def _error(name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"--{name} is {value}; allowed: {allowed}")
