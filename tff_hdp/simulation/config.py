"""What every training run is asked, whichever system it trains. No TensorFlow."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import tasks
from tasks.models import with_convolutions_in
from tasks.partition import check_alpha
from tff_hdp.errors import (
    ArgumentError,
    check_delta,
    check_fields,
    check_left,
    check_path,
    check_seed,
    require,
)
from tff_hdp.privacy.parts import check_norm
from tff_hdp.runtime import RUNTIMES
from tff_hdp.runtime.environment import multiplies_bfloat16

if TYPE_CHECKING:
    import tensorflow as tf

    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System


# Nobody means more, and sizes of arrays that are made of several overflow.
MOST_COUNTED = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings that all systems share; field names are flag names.

    A subclass names its `system`, adds to `choices` what its own fields may be,
    checks them in `__post_init__`, builds what is run in `build`, and says which ledger
    keeps its rounds in `new_ledger`.

    Attributes:
      task: Name of a task in `tasks`, or module:NAME of a `tasks.Dataset` of one's own.
      model: Name of one of the task's models; None takes its default.
      num_clients: n; None takes the task's own number.
      partition: How examples are split over clients; None takes the task's own.
      dirichlet_alpha: Concentration of the `dirichlet` partition.
      rounds: T.
      delta: Of (epsilon, delta).
      compute_dtype: What convolutions of clients' training multiply in: `float32`, or
        `bfloat16` on CPUs and GPUs that have it. Weights, updates, clip and noise are
        float32 all the same, and so is what is tested and saved.
      runtime: Where TFF computations run.
      workers: host:port of every worker, for runtime=cluster.
      seed: Fixes partition, cohorts and initial weights for tests; noise is never
        seeded. None draws all of it from the operating system.
      data_dir: Where local data packs lie; None reads $TFF_HDP_DATA.
      out: The run folder; None names one under runs/.
      evaluate_every: Tests the model after each so many rounds, and after the last.
      log_every: Says how far it is in a line each so many rounds, instead of by a
        bar; None shows a bar on a terminal, and twenty lines elsewhere.
      quiet: Does not say how far it is.
      plan: A file that scripts/plan.py wrote. Refused where a system's noise is its
        own and not that of a plan for zones under one server.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str]
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "task": tuple(tasks.TASKS),
        "compute_dtype": ("float32", "bfloat16"),
        "runtime": RUNTIMES,
    }
    # Settings that may be `module:NAME` too, of what a user has.
    own: ClassVar[frozenset[str]] = frozenset({"task"})
    # Settings of files that may lie elsewhere when a run goes on: it remembers what it
    # read from them.
    files: ClassVar[frozenset[str]] = frozenset()
    # Arguments of the library that a setting gives under another name.
    setting_of: ClassVar[Mapping[str, str]] = {}
    takes_plans: ClassVar[bool] = False
    # What observers that no other system has are, in plain words.
    observers: ClassVar[Mapping[str, str]] = {}

    task: str = "digits"
    model: str | None = None
    num_clients: int | None = None
    partition: str | None = None
    dirichlet_alpha: float | None = None
    rounds: int = 200
    delta: float = 1e-5
    compute_dtype: str = "float32"
    runtime: str = "in_process"
    workers: tuple[str, ...] = ()
    seed: int | None = None
    data_dir: str | None = None
    out: str | None = None
    evaluate_every: int = 1
    log_every: int | None = None
    quiet: bool = False
    plan: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in self.choices.items():
            value = getattr(self, name)
            if name in self.own and ":" in (value or ""):
                continue  # whether it is there, loading it says
            also = ", or module:NAME of yours" if name in self.own else ""
            ok = value is None or value in allowed
            self._require(ok, name, ", ".join(allowed) + also)
        self._check_count("rounds", "num_clients", "evaluate_every", "log_every")
        if self.dirichlet_alpha is not None:
            check_alpha(self.dirichlet_alpha)
        check_delta("delta", self.delta)
        if self.seed is not None:
            check_seed("seed", self.seed)
        if self.plan is not None:
            allowed = f"nothing with {self.system}, whose noise is its own; a plan is "
            allowed += "for zones under one server"
            self._require(self.takes_plans, "plan", allowed)
        self._set("workers", tuple(self.workers))
        ok = bool(self.workers) == (self.runtime == "cluster")
        allowed = "host:port,... with runtime=cluster, and only then"
        self._require(ok, "workers", allowed)
        if self.out is not None:
            check_path("out", self.out)
        else:
            named = self.task.replace(":", ".")
            self._set("out", f"runs/{named}_{self.label}")

    def build(self, folder: "RunFolder") -> "System":
        """The system of these settings, ready to train. Imports TensorFlow.

        Args:
          folder: Remembers what is drawn, measured and calibrated.

        Raises:
          ArgumentError: If a setting does not fit the task or the folder.
          DataNotFoundError: If the task's data is missing; says what to get.
          FileError: If a file does not hold what it should.
          FileNotFoundError: If a file is missing.
        """
        raise NotImplementedError(f"{type(self).__name__} trains no system")

    def new_ledger(self) -> "RoundLedger":
        """An empty ledger of the system's rounds. Imports no TensorFlow."""
        raise NotImplementedError(f"{type(self).__name__} keeps no ledger")

    def load_task(self, partition_seed: int) -> tasks.Task:
        """Loads the task, split over clients.

        Args:
          partition_seed: Decides which example goes to which client.

        Raises:
          ArgumentError: If a setting does not fit the task.
          DataNotFoundError: If its data is missing; says what to get.
        """
        return tasks.load(
            self.task,
            model=self.model,
            data_dir=self.data_dir,
            num_clients=self.num_clients,
            partition=self.partition,
            dirichlet_alpha=self.dirichlet_alpha,
            seed=partition_seed,
        )

    def training_model(self, task: tasks.Task) -> "Callable[[], tf.keras.Model]":
        """What clients train: the task's model, by `compute_dtype`. Imports TensorFlow.

        Raises:
          ArgumentError: If there is no convolution to compute so, or no machine for it;
            if Keras would make layers of another dtype than float32.
        """
        import tensorflow as tf

        policy = tf.keras.mixed_precision.global_policy().name
        allowed = "float32, by set_global_policy and set_floatx of Keras"
        require(policy == "float32", "tf.keras's global policy", policy, allowed)
        if self.compute_dtype == "float32":
            return task.build_model
        ok = self.runtime == "cluster" or multiplies_bfloat16()
        allowed = "float32 on a machine that multiplies no bfloat16 numbers"
        self._require(ok, "compute_dtype", allowed)

        def build() -> "tf.keras.Model":
            return with_convolutions_in(self.compute_dtype, task.build_model())

        try:
            build()
        except ValueError as error:
            allowed = f"float32 with model={task.model_name}: {error}"
            raise ArgumentError("compute_dtype", self.compute_dtype, allowed) from error
        return build

    def check_plan(self) -> None:
        """Reads the plan's file, of systems that take one. Imports no TensorFlow."""

    @property
    def label(self) -> str:
        """What to call the run beside others of its task."""
        return self.system

    @property
    def fixes_rounds(self) -> bool:
        """Whether the noise was chosen for just so many rounds: none more or fewer."""
        return False

    @property
    def bounds_rounds(self) -> bool:
        """Whether the noise was chosen for at most so many rounds."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Every setting by flag name, ready for JSON."""
        return dataclasses.asdict(self)

    def _set(self, name: str, value: Any) -> None:
        """Replaces a setting by what it means; for `__post_init__` alone."""
        object.__setattr__(self, name, value)

    def _require(self, ok: bool, name: str, allowed: str) -> None:
        """Refuses a setting as it is unless `ok`."""
        require(ok, name, getattr(self, name), allowed)

    def _check_count(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None:
                self._require(value >= 1, name, "a whole number >= 1")
                self._require(value <= MOST_COUNTED, name, f"at most {MOST_COUNTED}")

    def _check_used(self, holds: bool, where: str, *names: str) -> None:
        """Refuses settings that are changed where they would do nothing."""
        if not holds:
            check_left(self, names, f"only with {where}")

    def _check_positive(
        self, *names: str, allowed: str = "a finite number greater than 0"
    ) -> None:
        for name in names:
            value = getattr(self, name)
            ok = not isinstance(value, str) and math.isfinite(value) and value > 0
            self._require(ok, name, allowed)

    def _check_norm(
        self, name: str, allowed: str = "a finite number greater than 0"
    ) -> None:
        """Refuses now what a plan would, once there is a run folder."""
        self._check_positive(name, allowed=allowed)
        check_norm(name, getattr(self, name))

    def _check_norm_or_auto(self, name: str) -> None:
        """Makes text of a number one, as a command line gives it, and checks it."""
        if getattr(self, name) != "auto":
            with contextlib.suppress(ValueError):
                self._set(name, float(getattr(self, name)))
            self._check_norm(name, allowed="a finite number > 0, or auto")
