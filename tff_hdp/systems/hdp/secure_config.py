"""What a run is asked about secure aggregation. Imports no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from tff_hdp.protocols.secagg.rounds import PROTOCOLS
from tff_hdp.simulation.config import RunConfig

FEWEST_BITS, DEFAULT_BITS = 16, 30
# A sum of one client is that client's update.
LEAST_CLIENTS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureConfig(RunConfig):
    """Which sums are secure, and how; field names are flag names.

    Attributes:
      secure_aggregation: Whose sums are secure: those of every `zone`, so that a
        super-node sees only its clients' sum; that over zones, so that the
        `server` sees only the total; `both` or `none`. Noise under the mask is
        then discrete Gaussian.
      secure_aggregation_protocol: `intrinsic` takes TFF's secure sums; `bonawitz`
        (all pairs) and `graph` (a sparse graph) run the protocol itself among the
        cohort, and what came out is the round.
      secure_bits: Sums are modulo 2^bits, 16..30; None means 30.
      secure_range: Bound on a coordinate of an update in a secure sum, beyond
        which it is cut and counted as saturated; None takes the clip norm, or 1
        with --privacy=none.
      min_zone_clients: With fewer participants a zone with secure sums reveals
        nothing and is left out of the round; None means 2.

    Raises:
      ConfigError: If a setting is out of range or two contradict each other.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "secure_aggregation": ("none", "zone", "server", "both"),
        "secure_aggregation_protocol": ("intrinsic", *PROTOCOLS),
    }

    secure_aggregation: str = "none"
    secure_aggregation_protocol: str = "intrinsic"
    secure_bits: int | None = None
    secure_range: float | None = None
    min_zone_clients: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, default in _WITHOUT.items():
            value = getattr(self, name)
            if self.secure_aggregation == "none" and value != default:
                raise self._error(
                    name, value, "only with --secure_aggregation=zone, server or both"
                )
        bits = self.secure_bits
        if bits is not None and not FEWEST_BITS <= bits <= DEFAULT_BITS:
            raise self._error("secure_bits", bits, f"{FEWEST_BITS}..{DEFAULT_BITS}")
        if self.secure_range is not None:
            self._check_positive("secure_range")
        least = self.min_zone_clients
        if least is not None and not self.zones_are_secure:
            raise self._error(
                "min_zone_clients", least, "only with --secure_aggregation=zone or both"
            )
        if least is not None and least < LEAST_CLIENTS:
            raise self._error("min_zone_clients", least, f"at least {LEAST_CLIENTS}")

    @property
    def zones_are_secure(self) -> bool:
        """Whether super-nodes see only their zones' sums."""
        return self.secure_aggregation in ("zone", "both")

    @property
    def server_is_secure(self) -> bool:
        """Whether the server sees only the sum over zones."""
        return self.secure_aggregation in ("server", "both")

    @property
    def secure_plan(self) -> dict[str, Any]:
        """The fields of `NoisePlan` that follow, but for the encoding."""
        least = self.min_zone_clients or LEAST_CLIENTS
        return {
            "secure_aggregation": self.zones_are_secure,
            "secure_server": self.server_is_secure,
            "min_zone_clients": least if self.zones_are_secure else 1,
        }

    def without_secure_sums(self) -> dict[str, Any]:
        """What to replace for the same run with plain sums."""
        return {"secure_aggregation": "none", **_WITHOUT}


_WITHOUT = {
    "secure_aggregation_protocol": "intrinsic",
    "secure_bits": None,
    "secure_range": None,
    "min_zone_clients": None,
}
