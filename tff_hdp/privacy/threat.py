"""The threat model: who looks, and what is assumed of the parties of a noise plan.

A plan is run; a threat model is only accounted. Nothing is built from it.
"""

import dataclasses
import math
from typing import Literal, get_args

from tff_hdp.errors import (
    check_bool,
    check_count,
    check_number,
    check_word,
    require,
)
from tff_hdp.privacy.parts import FixedSizeSampling
from tff_hdp.privacy.plan import NoisePlan

Neighbours = Literal["add_or_remove", "zero_out", "replace_one"]
NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
# Whom a client relies on: itself, super-nodes, or the server.
ClientKind = Literal["ldp", "hdp", "trusting"]
CLIENT_KINDS: tuple[ClientKind, ...] = get_args(ClientKind)
# Who looks: a client's super-nodes, the server, and those who get the model.
Observer = Literal[
    "super_node",
    "aggregator",
    "released_model",
    "fellow_super_node",
    "fellow_client",
]
ALL_OBSERVERS: tuple[Observer, ...] = get_args(Observer)
# Of every plan; fellows are there where parties know noise of their own.
OBSERVERS: tuple[Observer, ...] = ("super_node", "aggregator", "released_model")
# Who sees the released model alone, whatever they know besides.
RECEIVERS: tuple[Observer, ...] = (
    "released_model",
    "fellow_super_node",
    "fellow_client",
)


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What an observer knows besides what it sees.

    Attributes:
      cohort: The assumption of `ThreatModel` under which it learns who takes part.
      is_client: Whether it is a client of whichever zone, and so knows when it takes
        part, and its own noise.
      is_super_node: Whether it is a super-node of another zone, or one above that, and
        so knows what that one sends up.
    """

    cohort: Literal["cohort_known", "peers_known"] | None = None
    is_client: bool = False
    is_super_node: bool = False


_KNOWLEDGE: dict[Observer, Knowledge] = {
    "super_node": Knowledge("cohort_known"),
    "aggregator": Knowledge("cohort_known"),
    "released_model": Knowledge(),
    "fellow_super_node": Knowledge(is_super_node=True),
    "fellow_client": Knowledge("peers_known", is_client=True),
}


def knowledge(observer: Observer) -> Knowledge:
    """What an observer knows besides what it sees.

    Raises:
      ArgumentError: If it is none of `ALL_OBSERVERS`, or nothing is said of it: to take
        it for ignorant would be to promise more.
    """
    check_word("observer", observer, tuple(_KNOWLEDGE))
    return _KNOWLEDGE[observer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What is assumed of the parties, and between which data sets epsilon is.

    Attributes:
      neighbours: How neighbouring data sets differ in one client; None takes the
        relation that fits the sampling and the noise.
      cohort_known: Whether the aggregator learns who took part, as it does where
        it draws the cohort or clients report to it, and so in TFF as it is deployed.
      peers_known: Whether a client that takes part learns which others of its zone
        do, as from a masking protocol that they run with each other.
      participation_revealed: Whether every observer learns who took part.
      dropout_rate: Probability, at most, that a sampled client never delivers: one
        for all, each independently of the others and of the data.
      colluding_super_nodes: How many super-nodes share what they know with the
        observer; their noise protects nobody from it.
      colluding_clients: How many noising clients do likewise.
      colluding_in_zone: How many clients of any one zone do, whether or not they noise:
        they know whether they took part and, with `peers_known`, who else did, and
        stay away where a zone of few is left out. None takes `colluding_clients`.
      elected_super_nodes: Whether super-nodes are clients elected by their
        peers; one of another zone then receives the released model too.
      skipped_zones: How many zones were skipped in the round and so added none of
        their noise, nor their clients'; whichever those are.
      secure_sums_hold: Whether the sums that the plan takes by secure aggregation
        hide all but themselves: parties are honest but curious, and fewer collude
        than the protocol's threshold. If not, they are seen as plain sums are; and
        so they are where those named here may be a majority of a sum's parties.

    Raises:
      ArgumentError: If a field is out of range.
    """

    neighbours: Neighbours | None = None
    cohort_known: bool = False
    peers_known: bool = False
    participation_revealed: bool = False
    dropout_rate: float = 0.0
    colluding_super_nodes: int = 0
    colluding_clients: int = 0
    colluding_in_zone: int | None = None
    elected_super_nodes: bool = False
    skipped_zones: int = 0
    secure_sums_hold: bool = True

    def __post_init__(self) -> None:
        if self.neighbours is not None:
            check_word("neighbours", self.neighbours, NEIGHBOURS)
        rate = check_number(
            "dropout_rate", self.dropout_rate, "[0, 1)", lambda x: 0.0 <= x < 1.0
        )
        object.__setattr__(self, "dropout_rate", rate)
        counts = ["colluding_super_nodes", "colluding_clients", "skipped_zones"]
        counts += ["colluding_in_zone"] * (self.colluding_in_zone is not None)
        flags = (
            *("cohort_known", "peers_known", "participation_revealed"),
            *("elected_super_nodes", "secure_sums_hold"),
        )
        for names, checked in ((counts, check_count), (flags, check_bool)):
            for name in names:
                object.__setattr__(self, name, checked(name, getattr(self, name)))

    @property
    def colluders_in_zone(self) -> int:
        """`colluding_in_zone`, or what stands for it."""
        given = self.colluding_in_zone
        return self.colluding_clients if given is None else given

    def sums_over(self, super_nodes: int) -> bool:
        """Whether secure sums over so many super-nodes hide all but themselves.

        A majority of them, and the server, have the shares that take every mask off.
        Of a zone that was skipped nobody is in the sum: colluders are among the others.
        """
        there = super_nodes - self.skipped_zones
        return self.secure_sums_hold and self.colluding_super_nodes <= there // 2

    def check_fits(self, plan: NoisePlan) -> None:
        """Raises ArgumentError unless this can be assumed of the parties of `plan`.

        It cannot where more parties are named than there are, or for a neighbour
        relation that cannot be had with the plan's sampling or with noise that
        participants carry.
        """
        zones, others = plan.num_zones, plan.num_clients - 1
        for name, found, most, of in (
            ("colluding_super_nodes", self.colluding_super_nodes, zones, "zones"),
            ("colluding_clients", self.colluding_clients, others, "other clients"),
            ("colluding_in_zone", self.colluders_in_zone, others, "other clients"),
            ("skipped_zones", self.skipped_zones, zones, "zones"),
        ):
            require(found <= most, name, found, f"0..{most} (the {of})")
        # Whichever zones they are of, some zone has as many.
        least = math.ceil(self.colluding_clients / plan.num_zones)
        found, allowed = self.colluders_in_zone, f"at least {least}, colluding_clients "
        allowed += f"being {self.colluding_clients} in {plan.num_zones} zones"
        require(found >= least, "colluding_in_zone", found, allowed)
        # Nor can more of a zone collude than carry no noise, unless those do who noise.
        zones_of = zip(plan.zone_sizes, plan.noise_carriers, strict=True)
        least = min(max(min(found, n) - (n - a), 0) for n, a in zones_of)
        allowed = (
            f"at least {least}, colluding_in_zone being {found} where so many noise"
        )
        known = self.colluding_clients
        require(known >= least, "colluding_clients", known, allowed)
        self._check_neighbours(plan)

    def _check_neighbours(self, plan: NoisePlan) -> None:
        given, carried = self.neighbours, plan.clients_carry_noise
        if plan.estimator == "bounded" and carried:
            allowed = "zero_out with estimator bounded, whose random denominator "
            allowed += "scales the noise that participants carry"
            require(given in (None, "zero_out"), "neighbours", given, allowed)
        elif given == "add_or_remove":
            allowed = "replace_one or zero_out with cohorts of a fixed size, where one "
            allowed += "client less changes everybody's chance"
            fixed_size = isinstance(plan.sampling, FixedSizeSampling)
            require(not fixed_size, "neighbours", given, allowed)
            allowed = "zero_out, replace_one or top_up where participants carry noise: "
            allowed += "without the client its noise is gone too"
            require(plan.top_up or not carried, "neighbours", given, allowed)


@dataclasses.dataclass(frozen=True)
class AccountedRound:
    """One round as it is accounted: what was run, and what is assumed.

    Attributes:
      plan: Who added noise to what.
      threat: What is assumed of the parties.

    Raises:
      ArgumentError: If the threat model does not fit the plan.
    """

    plan: NoisePlan
    threat: ThreatModel = ThreatModel()

    def __post_init__(self) -> None:
        for name, allowed in (("plan", NoisePlan), ("threat", ThreatModel)):
            given = getattr(self, name)
            require(isinstance(given, allowed), name, given, f"a {allowed.__name__}")
        self.threat.check_fits(self.plan)

    @property
    def zeroing(self) -> "AccountedRound":
        """The round with an account that composes with others' under zero-out.

        With a fixed denominator and clip a removed client and a zeroed one give the
        same sum, so an account under add-or-remove holds. Not where a zone may be left
        out: a zeroed client brings it in as well, and either of the two outputs may be
        the one that is like what is seen when the client does not come.
        """
        if self.plan.min_zone_clients == 1:
            return self
        threat = dataclasses.replace(self.threat, neighbours="zero_out")
        return dataclasses.replace(self, threat=threat)
