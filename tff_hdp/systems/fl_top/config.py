"""What a training run of FL-TOP or a scheme beside it is asked. No TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tff_hdp.errors import check_left
from tff_hdp.privacy.planned_noise import check_multiplier
from tff_hdp.privacy.secure import DEFAULT_BITS, FEWEST_BITS, LEAST_CLIENTS
from tff_hdp.protocols.secagg.rounds import PROTOCOLS
from tff_hdp.simulation.config import RunConfig

if TYPE_CHECKING:
    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System

SCHEMES = ("fl_std", "fl_basic", "fl_cs", "fl_top")
PRIVATE_SUFFIX = "_dp"
# Gives the epsilons that the FL-TOP paper prints, by the accountant of its time.
PAPER_SIGMA = 1.54
# The one task of MNIST's shape whose clients hold none of its images.
MNIST_IS_PUBLIC_FOR = "fashion_mnist"
DEFAULT_RATIO = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlTopConfig(RunConfig):
    """Every setting of FL-TOP on top of `RunConfig`; field names are flag names.

    Attributes:
      scheme: Who trains and sends what: all weights (`fl_std`), a random subset
        a round (`fl_basic`), measurements of all (`fl_cs`), the Top-K weights
        (`fl_top`); with `_dp`, clipped and noised by the clients.
      ratio: r; K = floor(r n). None means .05, and 1 for FL-STD.
      clients_per_round: Clients of a round, exactly so many; C is their share.
      local_epochs: Passes over a client's data.
      batch_size: Examples a batch.
      client_learning_rate: Of the clients' SGD, and of the server's on public data.
      public_data: The server's own examples: `mnist`, for Fashion-MNIST alone,
        whose clients hold none of it; or `held_out`, those of clients who then
        never take part. None means `mnist` for Fashion-MNIST.
      public_examples: How many of them.
      selection_steps: T_init, steps on them that find the Top-K weights.
      noise_multiplier: sigma, of the secure sum; None means 1.54 with `_dp`.
      clip_norm: S as a number, or `auto` for the norm of the compressed update of
        one round on public data.
      secure_aggregation_protocol: How a round's secure sum is taken with `_dp`:
        `none` in floating point, in the clear; `intrinsic` on integers, by TFF's
        secure sum; `bonawitz` or `graph` by that protocol, among simulated parties.
      sign_messages: Whether the parties of `bonawitz` sign all they say, against
        parties and channels that lie.
      secure_bits: Size of the ring that integers are summed in; None means 30.
      recovery_iterations: Of FL-CS, on the server.
      coefficients: Which cosine coefficients FL-CS measures: `random` ones of every
        round, or those `largest` in an update on public data.
      cohort_chunk: How many clients are trained in one computation; None chooses
        by the size of the model.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "fl_top"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "scheme": (*SCHEMES, *(scheme + PRIVATE_SUFFIX for scheme in SCHEMES)),
        "public_data": ("mnist", "held_out"),
        "coefficients": ("random", "largest"),
        "secure_aggregation_protocol": ("none", "intrinsic", *PROTOCOLS),
    }
    setting_of: ClassVar[Mapping[str, str]] = {
        "sigma": "noise_multiplier",
        "per_round": "clients_per_round",
        "clients": "num_clients",
        "bits": "secure_bits",
    }

    scheme: str = "fl_top"
    ratio: float | None = None
    clients_per_round: int = 100
    local_epochs: int = 5
    batch_size: int = 10
    client_learning_rate: float = 0.1
    public_data: str | None = None
    public_examples: int = 10
    selection_steps: int = 50
    noise_multiplier: float | None = None
    clip_norm: float | str = "auto"
    secure_aggregation_protocol: str = "none"
    sign_messages: bool = False
    secure_bits: int | None = None
    recovery_iterations: int = 30
    coefficients: str = "random"
    cohort_chunk: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count(
            "clients_per_round",
            "local_epochs",
            "batch_size",
            "public_examples",
            "selection_steps",
            "recovery_iterations",
            "cohort_chunk",
        )
        self._check_positive("client_learning_rate")
        if self.public_data is None:
            mnist = self.task == MNIST_IS_PUBLIC_FOR
            self._set("public_data", "mnist" if mnist else "held_out")
        ok = self.public_data != "mnist" or self.task == MNIST_IS_PUBLIC_FOR
        self._require(ok, "public_data", f"held_out with task={self.task}")
        if self.compression != "fl_cs":
            names = ("coefficients", "recovery_iterations")
            check_left(self, names, "nothing but with fl_cs or fl_cs_dp")
        if self.compression != "fl_top":
            allowed = "nothing but with fl_top or fl_top_dp"
            check_left(self, ("selection_steps",), allowed)
        self._check_ratio()
        self._check_privacy()
        self._check_secure_sum()

    def build(self, folder: "RunFolder") -> "System":
        """See base class."""
        from tff_hdp.systems.fl_top.run import FlTop

        return FlTop(self, folder)

    def new_ledger(self) -> "RoundLedger":
        """See base class."""
        from tff_hdp.systems.fl_top.plan import FlTopLedger

        return FlTopLedger()

    @property
    def label(self) -> str:
        """Scheme and compression."""
        ratio = self.ratio if self.ratio is not None else self._default_ratio
        return f"{self.scheme}_{ratio:g}"

    @property
    def is_private(self) -> bool:
        """Whether clients clip and noise."""
        return self.scheme.endswith(PRIVATE_SUFFIX)

    @property
    def compression(self) -> str:
        """The scheme without its `_dp`."""
        return self.scheme.removesuffix(PRIVATE_SUFFIX)

    @property
    def _default_ratio(self) -> float:
        return 1.0 if self.compression == "fl_std" else DEFAULT_RATIO

    def _check_secure_sum(self) -> None:
        protocol, bits = self.secure_aggregation_protocol, self.secure_bits
        ok = protocol == "none" or self.is_private
        self._require(ok, "secure_aggregation_protocol", f"none with {self.scheme}")
        where = "secure_aggregation_protocol=bonawitz"
        self._check_used(protocol == "bonawitz", where, "sign_messages")
        where = "a secure_aggregation_protocol"
        self._check_used(protocol != "none", where, "secure_bits")
        ok = bits is None or FEWEST_BITS <= bits <= DEFAULT_BITS
        self._require(ok, "secure_bits", f"{FEWEST_BITS}..{DEFAULT_BITS}")
        ok = protocol == "none" or self.clients_per_round >= LEAST_CLIENTS
        allowed = (
            f"at least {LEAST_CLIENTS} with secure_aggregation_protocol={protocol}"
        )
        self._require(ok, "clients_per_round", allowed)

    def _check_ratio(self) -> None:
        if self.ratio is None:
            self._set("ratio", self._default_ratio)
        self._require(0.0 < self.ratio <= 1.0, "ratio", "(0, 1]")
        ok = self.compression != "fl_std" or self.ratio == 1.0
        self._require(ok, "ratio", "1 with scheme=fl_std")

    def _check_privacy(self) -> None:
        self._check_norm_or_auto("clip_norm")
        if not self.is_private:
            names = ("noise_multiplier", "clip_norm")
            check_left(self, names, f"nothing with {self.scheme}")
        elif self.noise_multiplier is None:
            self._set("noise_multiplier", PAPER_SIGMA)
        else:
            check_multiplier(self.noise_multiplier)
