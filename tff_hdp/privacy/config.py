"""What an account of HDP is asked. Imports nothing heavy before it accounts."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tff_hdp.errors import (
    ArgumentError,
    check_delta,
    check_fields,
    check_left,
    check_whole_numbers,
    require,
)
from tff_hdp.privacy.configurations import (
    CONFIGURATIONS,
    SAMPLINGS,
    even_levels,
    even_sizes,
    given_levels,
    plan_of,
    sampling_of,
    shares_of,
)
from tff_hdp.privacy.parts import FullParticipation
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned_noise import check_multiplier
from tff_hdp.privacy.secure import SECURE_SUMS, secure_fields
from tff_hdp.privacy.threat import (
    ALL_OBSERVERS,
    CLIENT_KINDS,
    NEIGHBOURS,
    ThreatModel,
)

if TYPE_CHECKING:
    from tff_hdp.privacy.accountant import AccountRow
    from tff_hdp.privacy.planned import Planned
    from tff_hdp.topology import Zoning

DEFAULT_CLIENTS, DEFAULT_ZONES, DEFAULT_COHORT = 500, 10, 100.0
MOST_ROUNDS = 10**9
# Beyond these an account takes minutes, or numbers leave what a float holds.
MOST_CLIENTS, MOST_ZONES, MOST_DRAWN = 10**9, 10**4, 10**5
LEAST_COHORT = 1e-9
# All else that an account is asked, a plan's file decides.
BESIDE_PLAN = ("plan", "format")
# A comparison is of plans of its own, by all methods against everybody.
OF_CALIBRATION = ("observer", "client_kind", "method")
LEFT_OUT_BY_COMPARE = (
    *("privacy", "alpha", "beta", "noising_levels", "plan", "calibrate"),
    *OF_CALIBRATION,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederationConfig:
    """Zones, sampling and what is assumed of the parties; field names are flag names.

    Attributes:
      clients: n, at most 1e9; None means 500, or the sum of zone_sizes.
      clients_per_round: k, the expected cohort, 1e-9 or more and with fixed sampling
        at most 1e5; q = k/n in every zone. None means 100, or all with full sampling.
      zones: s zones, at most 1e4, of sizes that differ by at most one; None means 10,
        or as many as zone_sizes or zoning_file has.
      zone_sizes: n_i, as 10,20,30, in place of clients and zones.
      zoning_file: client,zone,... as CSV, or nested JSON, in place of those; brings
        its own levels.
      levels: Nodes of every level between zones and server, innermost first, as 5,2.
      mixing: Weights p_i of the zones.
      sampling: How cohorts are drawn; `revealed` is Poisson with participation known
        to every observer; `full` has all clients in every round.
      cohort_known: Whether the aggregator learns who takes part.
      peers_known: Whether a client that takes part learns which others of its zone
        do, as from a masking protocol.
      neighbours: Neighbour relation; None takes what fits the noise.
      secure_aggregation: Whose sums are secure: those of every `zone`, so that a
        super-node sees only its clients' sum; that over zones, so that the `server`
        sees only the total; `both` or `none`.
      min_zone_clients: A zone with fewer participants is left out.
      colluding_super_nodes: How many collude with the observer.
      colluding_clients: How many noising clients collude with it.
      elected_super_nodes: Whether super-nodes are clients themselves.
      dropout_rate: Probability, at most, that a drawn client never delivers.
      rounds: T.
      delta: Of (epsilon, delta).
      format: How to print.

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
      FileError: If zoning_file cannot be read as a zoning.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mixing": ("weighted", "equal"),
        "sampling": SAMPLINGS,
        "neighbours": NEIGHBOURS,
        "secure_aggregation": SECURE_SUMS,
        "format": ("table", "csv", "json"),
    }

    clients: int | None = None
    clients_per_round: float | None = None
    zones: int | None = None
    zone_sizes: tuple[int, ...] = ()
    zoning_file: str | None = None
    levels: tuple[int, ...] = ()
    mixing: str = "weighted"
    sampling: str = "poisson"
    cohort_known: bool = False
    peers_known: bool = False
    neighbours: str | None = None
    secure_aggregation: str = "none"
    min_zone_clients: int = 1
    colluding_super_nodes: int = 0
    colluding_clients: int = 0
    elected_super_nodes: bool = False
    dropout_rate: float = 0.0
    rounds: int = 200
    delta: float = 1e-5
    format: str = "table"

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in self.choices.items():
            value = getattr(self, name)
            ok = value is None or value in allowed
            require(ok, name, value, ", ".join(allowed))
        for name in ("zone_sizes", "levels"):
            numbers = check_whole_numbers(name, getattr(self, name))
            object.__setattr__(self, name, numbers)
        self._check_sizes()
        self._check_cohort()
        self._check_sum_over_zones()
        ok = 0 <= self.rounds <= MOST_ROUNDS
        require(ok, "rounds", self.rounds, f"a whole number, 0..{MOST_ROUNDS}")
        check_delta("delta", self.delta)
        # Refuses what is out of range, and what does not fit the zones.
        zones = NoisePlan(zone_sizes=self.sizes, sampling=FullParticipation())
        self.threat.check_fits(zones)

    @functools.cached_property
    def zoning(self) -> "Zoning | None":
        """What zoning_file holds."""
        if self.zoning_file is None:
            return None
        from tff_hdp.topology import load_zones

        try:
            return load_zones(self.zoning_file)
        except ArgumentError as error:
            raise error.renamed({"path": "zoning_file"}) from error

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_i of every zone."""
        if self.zoning is not None:
            return tuple(self.zoning.zone_sizes)
        if self.zone_sizes:
            return self.zone_sizes
        return even_sizes(self.clients or DEFAULT_CLIENTS, self.zones or DEFAULT_ZONES)

    @property
    def cohort(self) -> float:
        """The expected cohort, k."""
        if self.sampling == "full":
            return sum(self.sizes)
        given = self.clients_per_round
        return DEFAULT_COHORT if given is None else given

    @property
    def threat(self) -> ThreatModel:
        """What is assumed of the parties."""
        names = (
            *("neighbours", "cohort_known", "peers_known", "dropout_rate"),
            *("colluding_super_nodes", "colluding_clients", "elected_super_nodes"),
        )
        return ThreatModel(
            participation_revealed=self.sampling == "revealed",
            **{name: getattr(self, name) for name in names},
        )

    def options(self, noise: Mapping[int, float] | None = None) -> dict[str, Any]:
        """The fields of `NoisePlan` but for noise beneath the levels above zones.

        Args:
          noise: Multiplier of each noising level's nodes, from 2 on.
        """
        zoning = self.zoning
        if zoning is None or not zoning.parents:
            levels = even_levels(len(self.sizes), self.levels, noise or {})
        else:
            levels = given_levels(zoning.parents, noise or {})
        return {
            "zone_sizes": self.sizes,
            "sampling": sampling_of(self.sampling, self.cohort, self.sizes),
            "upper_levels": levels,
            "mixing": self.mixing,
            **secure_fields(self.secure_aggregation),
            "min_zone_clients": self.min_zone_clients,
        }

    def _check_sizes(self) -> None:
        if self.zoning is not None:
            n = sum(self.sizes)
            check_left(self, ("zone_sizes", "levels"), "none with zoning_file")
            ok = self.clients in (None, n)
            require(ok, "clients", self.clients, f"{n}, as zoning_file has")
        elif self.zone_sizes:
            total = sum(self.zone_sizes)
            ok = self.clients in (None, total)
            require(ok, "clients", self.clients, f"{total}, as zone_sizes sum to")
        else:
            clients = DEFAULT_CLIENTS if self.clients is None else self.clients
            ok = 1 <= clients <= MOST_CLIENTS
            require(ok, "clients", clients, f"1..{MOST_CLIENTS}")
            zones = DEFAULT_ZONES if self.zones is None else self.zones
            most = min(clients, MOST_ZONES)
            ok = 1 <= zones <= most
            require(ok, "zones", zones, f"1..{most} (the clients, or the most)")
        n, s = sum(self.sizes), len(self.sizes)
        name = "zoning_file" if self.zoning is not None else "zone_sizes"
        require(self.zones in (None, s), "zones", self.zones, f"{s}, as {name} has")
        ok = n <= MOST_CLIENTS and s <= MOST_ZONES
        allowed = f"at most {MOST_CLIENTS} clients in {MOST_ZONES} zones"
        require(ok, name, f"{n} clients in {s} zones", allowed)

    def _check_sum_over_zones(self) -> None:
        if not secure_fields(self.secure_aggregation)["secure_server"]:
            return
        where = f"with secure_aggregation={self.secure_aggregation}"
        zones, levels = len(self.sizes), bool(self.levels)
        require(zones > 1, "zones", zones, f"at least 2 {where}")
        require(not levels, "levels", self.levels, f"none {where}")
        levels = self.zoning is not None and bool(self.zoning.parents)
        allowed = f"one without levels {where}"
        require(not levels, "zoning_file", self.zoning_file, allowed)
        weighted = self.mixing == "weighted"
        require(weighted, "mixing", self.mixing, f"weighted {where}")

    def _check_cohort(self) -> None:
        n, k = sum(self.sizes), self.cohort
        if self.sampling == "full":
            given = self.clients_per_round
            allowed = f"{n}, all, with full sampling"
            require(given in (None, n), "clients_per_round", given, allowed)
        else:
            ok = LEAST_COHORT <= k <= n
            allowed = f"{LEAST_COHORT:g}..{n} (the clients)"
            require(ok, "clients_per_round", k, allowed)
        if self.sampling == "fixed":
            ok = k == int(k) and len(self.sizes) <= k <= MOST_DRAWN
            allowed = (
                f"a whole number up to {MOST_DRAWN}, one or more a zone, with fixed "
                "sampling"
            )
            require(ok, "clients_per_round", k, allowed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountConfig(FederationConfig):
    """A federation, its noise, and what to tell of it; field names are flag names.

    Attributes:
      privacy: Who adds noise (Table I); `levels` if only the noising_levels do.
      alpha: Share alpha of Table I, for c5, c7 and ldp_hdp.
      beta: Share beta of Table I, for c3, c6 and c7.
      noising_levels: Which of the levels add noise besides the parties of privacy,
        as 2 or 2,3; 2 is the first above the zones.
      noise_multiplier: z of every party that adds noise.
      plan: A file that scripts/plan.py wrote: its federation, noise, threat, rounds
        and delta in place of all those here, none of which may be given then.
      calibrate: Find the z for this epsilon instead.
      observer: Against whom, for calibrate.
      client_kind: For whom, for calibrate; None for those worst off.
      method: The account that calibrate must meet.
      compare: Compare ldp, hdp and cdp instead: every party with
        noise_multiplier, or every released model with it.
      figure: Also draw it to this file (epsilon over rounds).

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "privacy": (*(name for name in CONFIGURATIONS if name != "none"), "levels"),
        **FederationConfig.choices,
        "observer": ALL_OBSERVERS,
        "client_kind": CLIENT_KINDS,
        "method": ("rdp", "pld"),
        "compare": ("multiplier", "release"),
    }

    privacy: str = "hdp"
    alpha: float | None = None
    beta: float | None = None
    noising_levels: tuple[int, ...] = ()
    noise_multiplier: float = 1.0
    plan: str | None = None
    calibrate: float | None = None
    observer: str = "released_model"
    client_kind: str | None = None
    method: str = "rdp"
    compare: str | None = None
    figure: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = check_whole_numbers("noising_levels", self.noising_levels)
        object.__setattr__(self, "noising_levels", numbers)
        shares_of(self.privacy, alpha=self.alpha, beta=self.beta)
        if self.privacy == "levels" and not self.noising_levels:
            raise ArgumentError("noising_levels", (), "a level, needed by levels")
        fields = dataclasses.fields(self)
        changed = [f.name for f in fields if getattr(self, f.name) != f.default]
        self.check_given(changed)
        check_multiplier(self.noise_multiplier)

    def noise_plan(self, noise_multiplier: float | None = None) -> NoisePlan:
        """The noise plan of the flags, with another multiplier if one is given.

        Raises:
          ArgumentError: If the shares do not fit the zones.
        """
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        options = self.options(dict.fromkeys(self.noising_levels, z))
        return plan_of(self.privacy, z, alpha=self.alpha, beta=self.beta, **options)

    def check_given(self, names: Sequence[str]) -> None:
        """Raises ArgumentError if a field does nothing, even where it is its default.

        Args:
          names: Of the fields that were given.
        """
        of_plan = {f.name for f in dataclasses.fields(self)} - set(BESIDE_PLAN)
        compared = "nothing beside compare, of ldp, hdp and cdp"
        found = "nothing beside calibrate, which finds it"
        for applies, left, allowed in (
            (self.compare, LEFT_OUT_BY_COMPARE, compared),
            (self.plan is not None, of_plan, "nothing beside plan, whose file says"),
            (self.calibrate is None, OF_CALIBRATION, "only with calibrate"),
            (self.calibrate is not None, ("noise_multiplier",), found),
        ):
            for name in names:
                if applies and name in left:
                    raise ArgumentError(name, getattr(self, name), allowed)

    @functools.cached_property
    def asked(self) -> "Planned":
        """What is accounted: the flags', or what the file of `plan` holds.

        Raises:
          FileError: If `plan` is no plan's file.
        """
        from tff_hdp.privacy.planned import Planned, read_plan

        if self.plan is not None:
            return read_plan(self.plan)
        return Planned(
            plan=self.noise_plan(),
            threat=self.threat,
            rounds=self.rounds,
            delta=self.delta,
        )

    def rows(self, methods: Sequence[str] | None = None) -> list["AccountRow"]:
        """The account, by all methods unless some are given.

        Raises:
          FileError: If `plan` is no plan's file.
        """
        from tff_hdp.privacy.accountant import METHODS, account

        asked = self.asked
        methods = METHODS if methods is None else methods
        return account(
            asked.plan, asked.rounds, asked.delta, methods, threat=asked.threat
        )

    def calibrated(self) -> "AccountConfig":
        """With the multiplier that meets `calibrate`."""
        from tff_hdp.privacy.calibration import calibrate

        try:
            z = calibrate(
                self.noise_plan,
                target_epsilon=self.calibrate,
                observer=self.observer,
                client_kind=self.client_kind,
                rounds=self.rounds,
                delta=self.delta,
                method=self.method,
                threat=self.threat,
            )
        except ArgumentError as error:
            raise error.renamed({"target_epsilon": "calibrate"}) from error
        asked = ("calibrate", *OF_CALIBRATION)
        defaults = {name: getattr(AccountConfig, name) for name in asked}
        return dataclasses.replace(self, noise_multiplier=z, **defaults)
