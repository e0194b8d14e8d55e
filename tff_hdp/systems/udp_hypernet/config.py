"""What a training run of UDP-Alg is asked. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tff_hdp.privacy.planned_noise import check_multiplier
from tff_hdp.simulation.config import RunConfig

if TYPE_CHECKING:
    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System


@dataclasses.dataclass(frozen=True, kw_only=True)
class UdpHypernetConfig(RunConfig):
    """Every setting of UDP-Alg on top of `RunConfig`; field names are flag names.

    Attributes:
      privacy: `udp_alg`, or `none` for the paper's Noiseless: no clip, no noise.
      sampling_rate: q, the probability that a user takes part in a round.
      clip_norm: S, bounds a user's pulled-back update in L2 norm.
      sigma: Standard deviation of the noise on the average; or give z.
      noise_multiplier: z = sigma q W / S; or give sigma.
      target_epsilon: Chooses z instead, for the released hypernetwork after
        `rounds`.
      weighting: `uniform`, or `examples` for w = min(n_u / cap, 1).
      example_cap: That cap; None takes the largest user, as public knowledge.
      local_steps: K, batches of local SGD a round.
      batch_size: Examples a batch.
      client_learning_rate: eta, of the local models.
      server_learning_rate: lambda, of the hypernetwork.
      descriptor_learning_rate: zeta, of the users' descriptors; 0 leaves them as they
        were drawn, so that no user's data is in them.
      descriptor_dim: Entries of a descriptor.
      hidden_width: Units of each of the hypernetwork's three hidden layers.
      tests_per_user: At most so many of a user's own test examples each round, the
        same ones; None takes all, as the end of the run does anyway.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "udp_hypernet"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "privacy": ("udp_alg", "none"),
        "weighting": ("uniform", "examples"),
    }
    observers: ClassVar[Mapping[str, str]] = {
        "descriptors": "whoever sees a user's own descriptor or model",
    }
    setting_of: ClassVar[Mapping[str, str]] = {
        "q": "sampling_rate",
        "probabilities": "sampling_rate",
        "S": "clip_norm",
        "users": "num_clients",
    }

    privacy: str = "udp_alg"
    sampling_rate: float = 0.1
    clip_norm: float = 0.1
    sigma: float | None = None
    noise_multiplier: float | None = None
    target_epsilon: float | None = None
    weighting: str = "uniform"
    example_cap: int | None = None
    local_steps: int = 50
    batch_size: int = 64
    client_learning_rate: float = 0.001
    server_learning_rate: float = 0.01
    descriptor_learning_rate: float = 0.01
    descriptor_dim: int = 32
    hidden_width: int = 100
    tests_per_user: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_count(
            *("local_steps", "batch_size", "descriptor_dim", "hidden_width"),
            *("example_cap", "tests_per_user"),
        )
        self._check_norm("clip_norm")
        self._check_positive("client_learning_rate", "server_learning_rate")
        if self.descriptor_learning_rate != 0:
            self._check_positive(
                "descriptor_learning_rate", allowed="a finite number >= 0"
            )
        self._require(0.0 < self.sampling_rate <= 1.0, "sampling_rate", "(0, 1]")
        weighs = self.weighting == "examples"
        self._check_used(weighs, "weighting=examples", "example_cap")
        is_private = self.privacy == "udp_alg"
        self._check_used(is_private, "privacy=udp_alg", "clip_norm")
        self._check_noise()

    def build(self, folder: "RunFolder") -> "System":
        """See base class."""
        from tff_hdp.systems.udp_hypernet.run import UdpHypernet

        return UdpHypernet(self, folder)

    def new_ledger(self) -> "RoundLedger":
        """See base class."""
        from tff_hdp.systems.udp_hypernet.plan import UdpLedger

        return UdpLedger(descriptors_stepped=self.descriptor_learning_rate > 0)

    @property
    def label(self) -> str:
        """`udp_alg`, or `none`."""
        return self.privacy

    @property
    def bounds_rounds(self) -> bool:
        """See base class."""
        return self.target_epsilon is not None

    def _check_noise(self) -> None:
        names = ("sigma", "noise_multiplier", "target_epsilon")
        given = [name for name in names if getattr(self, name) is not None]
        for name in given:
            self._check_positive(name)
            self._require(self.privacy != "none", name, "nothing with privacy=none")
        if self.sigma is not None:
            # S q / W times z, and bounded like S.
            self._check_norm("sigma")
        if self.noise_multiplier is not None:
            check_multiplier(self.noise_multiplier)
        allowed = "exactly one of sigma, noise_multiplier and target_epsilon with "
        allowed += f"privacy={self.privacy}"
        ok = self.privacy == "none" or len(given) == 1
        self._require(ok, given[-1] if given else "sigma", allowed)
