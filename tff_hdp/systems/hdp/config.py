"""What a training run of HDP is asked. Imports no TensorFlow."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tff_hdp.errors import check_left
from tff_hdp.privacy.coalitions import majority
from tff_hdp.privacy.configurations import CONFIGURATIONS, shares_of
from tff_hdp.privacy.planned_noise import check_multiplier
from tff_hdp.privacy.secure import (
    DEFAULT_BITS,
    FEWEST_BITS,
    LEAST_CLIENTS,
    SECURE_SUMS,
    secure_fields,
)
from tff_hdp.privacy.threat import OBSERVERS
from tff_hdp.protocols.secagg.rounds import PROTOCOLS
from tff_hdp.systems.hdp.zones_config import OF_ELECTIONS, ZonesConfig

if TYPE_CHECKING:
    from tff_hdp.privacy import RoundLedger
    from tff_hdp.simulation.run_folder import RunFolder
    from tff_hdp.simulation.system import System

# What says who adds which noise, and how sums are secure.
_OF_PRIVACY = (
    *("alpha", "beta", "noising_levels", "noise_multiplier", "target_epsilon"),
    *("target_observer", "estimator", "plan", "clipping"),
)
_NEEDS_SECURE_SUMS = (
    *("secure_aggregation_protocol", "sign_messages", "secure_bits", "secure_range"),
    "min_zone_clients",
)
_OF_SECURE_SUMS = ("secure_aggregation", *_NEEDS_SECURE_SUMS)
OPTIMIZERS = ("sgd", "sgdm", "adam", "yogi", "adagrad")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HdpConfig(ZonesConfig):
    """Every setting of HDP: noise, training and secure sums, on top of its zones'.

    Attributes:
      privacy: Who adds noise: `none`, `cdp`, `hdp`, `ldp` or `c1`..`c7` of Table I;
        `ldp_hdp`, super-nodes and a share of their clients; `levels` if only the
        noising_levels do.
      alpha: Share alpha of Table I, for c5, c7 and ldp_hdp.
      beta: Share beta of Table I, for c3, c6 and c7.
      clients_per_round: k, the expected cohort; q = k / n in every zone.
      sampling: `poisson`, or `fixed` for exactly k_i clients of each zone.
      algorithm: `fedavg`, or `fedsgd` for one full-batch gradient a client.
      local_epochs: Passes over a client's data; None means 5, or 1 with fedsgd.
      batch_size: Examples a batch.
      client_optimizer: Optimizer of local training.
      client_learning_rate: Its rate; fedsgd has none.
      server_optimizer: Optimizer applied to the aggregated update.
      server_learning_rate: Its rate.
      clipping: `flat`, `per_layer`, or `adaptive` (server noise only, no levels). With
        privacy=none nothing is clipped.
      clip_norm: S as a number, or `auto` for the mean update norm of a pilot
        without noise, which is itself not private. The start of `adaptive`. Of no
        effect with privacy=none.
      pilot_rounds: Length of that pilot.
      estimator: `fixed` or `bounded`; None means `fixed` with noise and the
        realised mean without.
      weighting: `uniform`, or `examples` for w = min(n_k / cap, 1).
      example_cap: That cap; None takes the largest client, as public knowledge.
      noise_multiplier: z, used by every party that adds noise.
      plan: A file that scripts/plan.py wrote: who adds noise in place of `privacy`
        and noise_multiplier. Zones, sampling and sums must be those it is for.
      target_epsilon: Chooses z instead, for `target_observer` after `rounds`, by Renyi
        DP, so that the tighter account ends lower; scripts/account.py
        --calibrate --method=pld finds the least z.
      target_observer: Whose epsilon that is.
      cohort_known: Whether the aggregator is taken to know who takes part, as where
        clients report to it; accounted only.
      cohort_chunk: How many clients are trained in one computation; 0
        trains each alone; None chooses by model and cohort, and 0 where
        model or optimizer cannot be stacked.
      secure_aggregation: Whose sums are secure: those of every `zone`, so that a
        super-node sees only its clients' sum; that over zones, so that the
        `server` sees only the total; `both` or `none`. Noise under the mask is
        then discrete Gaussian.
      secure_aggregation_protocol: `intrinsic` takes TFF's secure sums; `bonawitz`
        (all pairs) and `graph` (a sparse graph) run the protocol itself among the
        cohort, and what came out is the round.
      sign_messages: Whether the parties of `bonawitz` sign all they say, against
        parties and channels that lie; None means where super-nodes are elected by
        election_fault_model=byzantine.
      secure_bits: Sums are modulo 2^bits, 16..30; None means 30.
      secure_range: Bound on a coordinate of an update in a secure sum, beyond
        which it is cut and counted as saturated; None takes the clip norm, or 1
        with privacy=none.
      min_zone_clients: With fewer participants a zone with secure sums reveals
        nothing and is left out of the round; None means 2, or 4 where super-nodes
        are elected and parties sign.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    system: ClassVar[str] = "hdp"
    takes_plans: ClassVar[bool] = True
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ZonesConfig.choices,
        "privacy": (*CONFIGURATIONS, "levels"),
        "sampling": ("poisson", "fixed"),
        "algorithm": ("fedavg", "fedsgd"),
        "client_optimizer": OPTIMIZERS,
        "server_optimizer": OPTIMIZERS,
        "clipping": ("flat", "per_layer", "adaptive"),
        "estimator": ("fixed", "bounded"),
        "weighting": ("uniform", "examples"),
        "target_observer": OBSERVERS,
        "secure_aggregation": SECURE_SUMS,
        "secure_aggregation_protocol": ("intrinsic", *PROTOCOLS),
    }
    setting_of: ClassVar[Mapping[str, str]] = {
        "client_noise_multiplier": "noise_multiplier",
        "zone_noise_multipliers": "noise_multiplier",
        "server_noise_multiplier": "noise_multiplier",
        "clipping.kind": "clipping",
        "dropout_rate": "drop_rate",
        "probabilities": "clients_per_round",
        "observer": "target_observer",
        "secure_server": "secure_aggregation",
        "largest": "secure_range",
        "bits": "secure_bits",
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
    cohort_known: bool = False
    cohort_chunk: int | None = None
    secure_aggregation: str = "none"
    secure_aggregation_protocol: str = "intrinsic"
    sign_messages: bool | None = None
    secure_bits: int | None = None
    secure_range: float | None = None
    min_zone_clients: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_epochs is None:
            self._set("local_epochs", 1 if self.algorithm == "fedsgd" else 5)
        self._check_numbers()
        self._check_noise()
        ok = self.clipping != "adaptive" or self.privacy in ("cdp", "c4")
        self._require(ok, "clipping", "flat or per_layer unless privacy=cdp")
        ok = self.clipping != "adaptive" or not self.levels
        self._require(ok, "clipping", "flat or per_layer with levels")
        self._check_secure_sums()
        self._check_secure_server()
        fedavg = self.algorithm == "fedavg"
        unused = ("client_learning_rate", "batch_size")
        self._check_used(fedavg, "algorithm=fedavg", *unused)
        if not fedavg:
            one = self.local_epochs == 1
            self._require(one, "local_epochs", "1 with algorithm=fedsgd")
            # Others would not leave the gradient as it is.
            ok = self.client_optimizer in ("sgd", "sgdm")
            self._require(ok, "client_optimizer", "sgd with algorithm=fedsgd")

    def build(self, folder: "RunFolder") -> "System":
        """See base class."""
        from tff_hdp.systems.hdp.run import build

        return build(self, folder)

    def new_ledger(self) -> "RoundLedger":
        """See base class."""
        from tff_hdp.privacy import Ledger

        return Ledger()

    @property
    def label(self) -> str:
        """Who adds noise."""
        return self.privacy if self.plan is None else "plan"

    @property
    def bounds_rounds(self) -> bool:
        """See base class."""
        return self.target_epsilon is not None

    def check_plan(self) -> None:
        """See base class.

        A run that began has a copy, which it reads itself.

        Raises:
          FileError: If the file holds no plan.
          FileNotFoundError: If it is not there.
        """
        copied = (pathlib.Path(self.out) / "plan.json").exists()
        if self.plan is not None and not copied:
            from tff_hdp.privacy.planned import read_plan

            read_plan(self.plan)

    @property
    def runs_protocol(self) -> bool:
        """Whether secure sums, if any, are taken by a protocol for real."""
        return self.secure_aggregation_protocol != "intrinsic"

    @property
    def parties_sign(self) -> bool:
        """Whether the parties of that protocol sign."""
        if self.sign_messages is not None:
            return self.sign_messages
        elects = self.elect_super_nodes != "none"
        byzantine = self.election_fault_model == "byzantine"
        return self.runs_protocol and elects and byzantine

    def most_unmasked(self, colluders: np.ndarray) -> np.ndarray:
        """Of so many colluders in a sum, the most parties in all that they unmask.

        A third of them may tell each half of the rest something else where parties
        sign; a majority's shares unmask where they do not (`secagg.masking_graph`),
        and those of more than a tenth of a sparse graph, or more than one.
        """
        if self.parties_sign:
            return 3 * colluders
        if self.secure_aggregation_protocol == "graph":
            return np.where(colluders > 1, 10 * colluders - 1, 0)
        return majority(colluders)

    @property
    def least_zone_clients(self) -> int:
        """Participants of a zone below which its secure sum reveals nothing.

        One liar, such as an elected super-node, is too many for three that sign.
        """
        if self.min_zone_clients is not None:
            return self.min_zone_clients
        lies = self.parties_sign and self.elect_super_nodes != "none"
        return 4 if lies else LEAST_CLIENTS

    @property
    def zones_are_secure(self) -> bool:
        """Whether super-nodes see only their zones' sums."""
        return secure_fields(self.secure_aggregation)["secure_aggregation"]

    @property
    def server_is_secure(self) -> bool:
        """Whether the server sees only the sum over zones."""
        return secure_fields(self.secure_aggregation)["secure_server"]

    @property
    def secure_plan(self) -> dict[str, Any]:
        """The fields of `NoisePlan` that follow, but for the encoding."""
        return {
            **secure_fields(self.secure_aggregation),
            "min_zone_clients": self.least_zone_clients if self.zones_are_secure else 1,
        }

    def without_privacy(self) -> "HdpConfig":
        """The same training, without noise, elections or secure sums."""
        left_out = {*_OF_PRIVACY, *OF_ELECTIONS, *_OF_SECURE_SUMS}
        if self.zoning != "capability":
            left_out.add("capability_file")
        defaults = {name: getattr(HdpConfig, name) for name in left_out}
        return dataclasses.replace(self, **defaults | {"privacy": "none"})

    def _check_secure_sums(self) -> None:
        self._check_used(
            self.secure_aggregation != "none",
            "secure_aggregation=zone, server or both",
            *_NEEDS_SECURE_SUMS,
        )
        bits, least = self.secure_bits, self.min_zone_clients
        ok = bits is None or FEWEST_BITS <= bits <= DEFAULT_BITS
        self._require(ok, "secure_bits", f"{FEWEST_BITS}..{DEFAULT_BITS}")
        if self.secure_range is not None:
            self._check_positive("secure_range")
        where = "secure_aggregation=zone or both"
        self._check_used(self.zones_are_secure, where, "min_zone_clients")
        ok = least is None or least >= LEAST_CLIENTS
        self._require(ok, "min_zone_clients", f"at least {LEAST_CLIENTS}")
        where = "secure_aggregation_protocol=bonawitz"
        self._check_used(self.runs_protocol, where, "sign_messages")
        self._require(
            not (self.parties_sign and self.secure_aggregation_protocol == "graph"),
            "secure_aggregation_protocol",
            "bonawitz with sign_messages, the default where super-nodes are elected by "
            "election_fault_model=byzantine: who lies may choose a client's neighbours",
        )
        ok = self.secure_aggregation == "none" or self.clipping != "adaptive"
        self._require(ok, "clipping", "flat or per_layer with secure_aggregation")

    def _check_secure_server(self) -> None:
        if not self.server_is_secure:
            return
        unequal = {
            "zone_sizes": (len(self.zone_sizes) == 1, "at least 2"),
            "zones": (self.zones == 1, "at least 2"),
            "levels": (bool(self.levels), "none"),
            "estimator": (self.estimator == "bounded", "fixed"),
            "mixing": (self.mixing != "weighted", "weighted"),
        }
        where = f"with secure_aggregation={self.secure_aggregation}"
        for name, (refused, allowed) in unequal.items():
            self._require(not refused, name, f"{allowed} {where}")

    def _check_numbers(self) -> None:
        self._check_count("local_epochs", "batch_size", "pilot_rounds", "example_cap")
        weighs = self.weighting == "examples"
        self._check_used(weighs, "weighting=examples", "example_cap")
        self._check_used(self.clip_norm == "auto", "clip_norm=auto", "pilot_rounds")
        aims = self.target_epsilon is not None
        self._check_used(aims, "target_epsilon", "target_observer")
        ok = self.cohort_chunk is None or self.cohort_chunk >= 0
        self._require(ok, "cohort_chunk", "a whole number >= 0")
        self._check_positive("clients_per_round")
        ok = self.sampling != "fixed" or self.clients_per_round % 1 == 0
        self._require(ok, "clients_per_round", "a whole number with sampling=fixed")
        self._check_positive("client_learning_rate", "server_learning_rate")
        if self.target_epsilon is not None:
            self._check_positive("target_epsilon")
        self._check_norm_or_auto("clip_norm")

    def _check_noise(self) -> None:
        if self.plan is not None:
            asked = ("privacy", "alpha", "beta", "noising_levels")
            asked += ("noise_multiplier", "target_epsilon")
            check_left(self, asked, "nothing beside plan")
            return
        shares_of(self.privacy, alpha=self.alpha, beta=self.beta)
        ok = self.privacy != "none" or not self.noising_levels
        self._require(ok, "noising_levels", "none with privacy=none")
        ok = self.privacy != "levels" or bool(self.noising_levels)
        self._require(ok, "noising_levels", "a level, needed by privacy=levels")
        z, target = self.noise_multiplier, self.target_epsilon
        if self.privacy == "none":
            asked = ("noise_multiplier", "target_epsilon")
            check_left(self, asked, "nothing with privacy=none")
            return
        allowed = "exactly one of noise_multiplier and target_epsilon with "
        allowed += f"privacy={self.privacy}"
        self._require((z is None) != (target is None), "noise_multiplier", allowed)
        if z is not None:
            check_multiplier(z)
