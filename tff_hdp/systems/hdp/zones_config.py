"""What a run in zones is asked: who is where, who leads, what fails. No TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from tff_hdp.errors import ArgumentError, check_whole_numbers
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.hdp.faults import Faults, parse_schedule

# Zonings that bring their own number of zones.
OWN_NUMBER = ("label", "key", "file")
NEEDS_FILE = ("key", "file")
TAKES_FILE = (*NEEDS_FILE, "overlay")
DEFAULT_ZONES = 10

# What says how super-nodes are elected.
_NEEDS_ELECTIONS = (
    "min_capability",
    "voters",
    "election_protocol",
    "election_fault_model",
)
OF_ELECTIONS = ("elect_super_nodes", *_NEEDS_ELECTIONS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZonesConfig(RunConfig):
    """Zones, levels above them, elections and faults; field names are flag names.

    Attributes:
      zoning: Who shares a zone: `iid` at random; clients of like `label`, the most
        frequent one; of like `key`, such as geography; of like `capability`;
        communities of a peer-to-peer `overlay`; or as a `file` says.
      zoning_file: What zoning reads. key: a CSV table of clients; overlay: a CSV
        of links a,b,weight (None makes a small world); file: client,zone,... as
        CSV, or nested JSON.
      zone_key: The column that zoning=key reads.
      zones: s; None means 10, or as many as the zoning brings.
      zone_sizes: n_i of zoning=iid; empty for sizes that differ by at most one.
      levels: Nodes of every further level between zones and server, innermost
        first, each level dealt evenly to the next; empty for none.
      noising_levels: Which levels add noise besides those of privacy: 2 is the
        first above the zones.
      mixing: Weights of the zones' outputs: `weighted` by D_i, `equal`, or numbers
        p_1,...,p_s that sum to 1.
      capability_file: A CSV table with the columns client and capability; None
        takes the number of examples a client holds.
      elect_super_nodes: `none` for given super-nodes; `persistent`: elected clients
        in power while online; `rotate`: new ones every round.
      election_fault_model: Which faults an election withstands.
      election_protocol: `pvss` holds elections in full; `drawn` draws winners by
        the same law, for long simulations.
      voters: Clients of a zone that are called to elect, online or not, at most.
      min_capability: Least capability of an eligible client.
      drop_rate: Probability that a drawn client never delivers, or that a voter
        falls silent.
      online_rate: Probability that a client is online in a round; who is not has no
        part in it, and is super-node no more.
      supernode_failure_rate: Probability that a zone's super-node is gone before
        it has the sum: another is elected, or the zone skipped.
      byzantine: Share of every zone's clients that misbehave, or ROUND:SHARE,...:
        proofs that fail, updates out of range, and as super-node silence.

    Raises:
      ArgumentError: If a setting is out of range or two contradict each other.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **RunConfig.choices,
        "zoning": ("iid", "label", "key", "capability", "overlay", "file"),
        "elect_super_nodes": ("none", "persistent", "rotate"),
        "election_fault_model": ("byzantine", "crash"),
        "election_protocol": ("pvss", "drawn"),
    }

    files: ClassVar[frozenset[str]] = frozenset({"zoning_file", "capability_file"})

    zoning: str = "iid"
    zoning_file: str | None = None
    zone_key: str = "region"
    zones: int | None = None
    zone_sizes: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()
    noising_levels: tuple[int, ...] = ()
    mixing: str = "weighted"
    capability_file: str | None = None
    elect_super_nodes: str = "none"
    election_fault_model: str = "byzantine"
    election_protocol: str = "pvss"
    voters: int = 10
    min_capability: float | None = None
    drop_rate: float = 0.0
    online_rate: float = 1.0
    supernode_failure_rate: float = 0.0
    byzantine: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("zone_sizes", "levels", "noising_levels"):
            self._set(name, check_whole_numbers(name, getattr(self, name)))
        self._set("byzantine", tuple(self.byzantine))
        self._check_zones()
        self._check_elections()
        # Refuses what is out of range.
        _ = self.faults, self.mixing_weights

    @property
    def faults(self) -> Faults:
        """The faults asked for."""
        return Faults(
            drop_rate=self.drop_rate,
            online_rate=self.online_rate,
            supernode_failure_rate=self.supernode_failure_rate,
            byzantine=parse_schedule(self.byzantine),
        )

    @property
    def mixing_weights(self) -> str | tuple[float, ...]:
        """`NoisePlan.mixing`."""
        if self.mixing in ("weighted", "equal"):
            return self.mixing
        try:
            return tuple(map(float, self.mixing.split(",")))
        except ValueError as error:
            raise ArgumentError(
                "mixing", self.mixing, "weighted, equal, or numbers p_1,...,p_s"
            ) from error

    @property
    def may_skip(self) -> bool:
        """Whether a fault may leave a zone out of a round."""
        return self.elect_super_nodes != "none" or self.supernode_failure_rate > 0

    @property
    def reads_examples(self) -> bool:
        """Whether clients' examples decide who is in a zone, or may be elected."""
        by_number = self.zoning == "capability" or self.min_capability is not None
        return self.zoning == "label" or (by_number and self.capability_file is None)

    def _check_zones(self) -> None:
        self._check_count("zones", "voters")
        ok = self.zoning not in NEEDS_FILE or self.zoning_file is not None
        self._require(ok, "zoning_file", f"a file, needed by zoning={self.zoning}")
        ok = self.zoning in TAKES_FILE or self.zoning_file is None
        self._require(ok, "zoning_file", f"only with zoning={', '.join(TAKES_FILE)}")
        self._check_used(self.zoning == "iid", "zoning=iid", "zone_sizes")
        self._check_used(self.zoning == "key", "zoning=key", "zone_key")
        number = len(self.zone_sizes)
        ok = not number or self.zones in (None, number)
        self._require(ok, "zones", f"{number}, as zone_sizes has")

    def _check_elections(self) -> None:
        self._check_used(
            self.elect_super_nodes != "none", "elect_super_nodes", *_NEEDS_ELECTIONS
        )
        uses = self.zoning == "capability" or self.min_capability is not None
        self._check_used(uses, "zoning=capability or min_capability", "capability_file")
