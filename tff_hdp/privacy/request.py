"""What a user asks an account of, in the words of the command line."""

import dataclasses
import functools
import math
from collections.abc import Callable

from tff_hdp.privacy.accountant import METHODS, AccountRow, account
from tff_hdp.privacy.calibration import calibrate
from tff_hdp.privacy.configurations import CONFIGURATIONS, even_levels
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.rounding import largest_remainder
from tff_hdp.privacy.sampling import (
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    Sampling,
)

PRIVACY = (*(name for name in CONFIGURATIONS if name != "none"), "levels")
SAMPLING = ("poisson", "revealed", "fixed", "full")
USERS_OF_SHARES = {"alpha": ("c5", "c7"), "beta": ("c3", "c6", "c7")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountRequest:
    """A federation and its noise, by a few numbers.

    Attributes:
      privacy: One of `PRIVACY`.
      alpha: Table I's alpha, for c5 and c7.
      beta: Table I's beta, for c3, c6 and c7.
      clients: n; None means 500, or the sum of `zone_sizes`.
      clients_per_round: k, the expected cohort: q = k/n in every zone.
      zones: s zones of sizes that differ by at most one.
      zone_sizes: n_i, in place of `clients` and `zones`.
      levels: Nodes of every level between zones and server, innermost first.
      noising_levels: Which of those add noise besides the parties of `privacy`: 2
        is the first above the zones. With `levels` nobody else adds any.
      mixing: `weighted` or `equal`.
      sampling: One of `SAMPLING`; `revealed` is Poisson with participation known
        to every observer.
      cohort_hidden: Whether the aggregator does not learn who takes part.
      neighbours: As `NoisePlan.neighbours`.
      secure_aggregation: As in `NoisePlan`.
      secure_server: As in `NoisePlan`.
      min_zone_clients: As in `NoisePlan`.
      colluding: Super-nodes that collude with the observer.
      colluding_clients: Noising clients that do.
      elected_super_nodes: As in `NoisePlan`.
      dropout_rate: As in `NoisePlan`.
      noise_multiplier: z of every party that adds noise.
      rounds: T.
      delta: Of (epsilon, delta).

    Raises:
      ValueError: If a field is out of range, as `--field is value; allowed: ...`.
    """

    privacy: str = "hdp"
    alpha: float | None = None
    beta: float | None = None
    clients: int | None = None
    clients_per_round: float = 100.0
    zones: int = 10
    zone_sizes: tuple[int, ...] | None = None
    levels: tuple[int, ...] = ()
    noising_levels: tuple[int, ...] = ()
    mixing: str = "weighted"
    sampling: str = "poisson"
    cohort_hidden: bool = True
    neighbours: str | None = None
    secure_aggregation: bool = False
    secure_server: bool = False
    min_zone_clients: int = 1
    colluding: int = 0
    colluding_clients: int = 0
    elected_super_nodes: bool = False
    dropout_rate: float = 0.0
    noise_multiplier: float = 1.0
    rounds: int = 200
    delta: float = 1e-5

    def __post_init__(self) -> None:
        self._check_shares()
        self._check_sizes()
        for name, ok, allowed in (
            ("noise_multiplier", _positive(self.noise_multiplier), "finite and > 0"),
            ("rounds", self.rounds >= 0, "a whole number >= 0"),
            ("delta", 0.0 < self.delta < 1.0, "(0, 1)"),
            ("dropout_rate", 0.0 <= self.dropout_rate < 1.0, "[0, 1)"),
            (
                "colluding",
                0 <= self.colluding <= len(self.sizes),
                f"0..{len(self.sizes)} (the zones)",
            ),
            (
                "colluding_clients",
                0 <= self.colluding_clients < sum(self.sizes),
                f"0..{sum(self.sizes) - 1}",
            ),
            ("privacy", self.privacy in PRIVACY, ", ".join(PRIVACY)),
            ("sampling", self.sampling in SAMPLING, ", ".join(SAMPLING)),
            (
                "noising_levels",
                bool(self.noising_levels) or self.privacy != "levels",
                "a level, needed by --privacy=levels",
            ),
        ):
            if not ok:
                raise _error(name, getattr(self, name), allowed)

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_i of every zone."""
        if self.zone_sizes is not None:
            return self.zone_sizes
        n = 500 if self.clients is None else self.clients
        return tuple((n + i) // self.zones for i in reversed(range(self.zones)))

    def plan(self, noise_multiplier: float | None = None) -> NoisePlan:
        """The noise plan, with another multiplier if one is given.

        Raises:
          ValueError: If the shares do not fit the zones.
        """
        shares = {
            name: getattr(self, name)
            for name, users in USERS_OF_SHARES.items()
            if self.privacy in users
        }
        z = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        configuration: Callable[..., NoisePlan] = NoisePlan
        if self.privacy != "levels":
            configuration = functools.partial(
                CONFIGURATIONS[self.privacy], noise_multiplier=z
            )
        noise = dict.fromkeys(self.noising_levels, z)
        return configuration(
            zone_sizes=self.sizes,
            sampling=self._sampling(),
            upper_levels=even_levels(len(self.sizes), self.levels, noise),
            mixing=self.mixing,
            cohort_hidden=self.cohort_hidden,
            participation_revealed=self.sampling == "revealed",
            neighbours=self.neighbours,
            secure_aggregation=self.secure_aggregation,
            secure_server=self.secure_server,
            min_zone_clients=self.min_zone_clients,
            colluding_super_nodes=self.colluding,
            colluding_clients=self.colluding_clients,
            elected_super_nodes=self.elected_super_nodes,
            dropout_rate=self.dropout_rate,
            **shares,
        )

    def rows(self, methods: tuple[str, ...] = METHODS) -> list[AccountRow]:
        """The account of `rounds` rounds."""
        return account(self.plan(), self.rounds, self.delta, methods)

    def calibrated(
        self,
        target_epsilon: float,
        *,
        observer: str,
        client_kind: str | None = None,
        method: str = "rdp",
    ) -> "AccountRequest":
        """The same request with the multiplier that meets a target epsilon."""
        try:
            z = calibrate(
                self.plan,
                target_epsilon=target_epsilon,
                observer=observer,
                client_kind=client_kind,
                rounds=self.rounds,
                delta=self.delta,
                method=method,
            )
        except ValueError as error:
            message = str(error).replace("target_epsilon", "--calibrate", 1)
            raise ValueError(message) from error
        return dataclasses.replace(self, noise_multiplier=z)

    def _sampling(self) -> Sampling:
        n = sum(self.sizes)
        if self.sampling == "full":
            return FullParticipation()
        if self.sampling == "fixed":
            exact = [self.clients_per_round * size / n for size in self.sizes]
            return FixedSizeSampling(tuple(max(1, k) for k in largest_remainder(exact)))
        return PoissonSampling((self.clients_per_round / n,) * len(self.sizes))

    def _check_shares(self) -> None:
        for name, users in USERS_OF_SHARES.items():
            given = getattr(self, name)
            if self.privacy in users and given is None:
                raise _error(name, given, f"[0, 1], needed by --privacy={self.privacy}")
            if self.privacy not in users and given is not None:
                raise _error(name, given, f"only with --privacy={', '.join(users)}")
            if given is not None and not 0.0 <= given <= 1.0:
                raise _error(name, given, "[0, 1]")

    def _check_sizes(self) -> None:
        if self.zone_sizes is not None:
            if not self.zone_sizes or min(self.zone_sizes) < 1:
                raise _error("zone_sizes", self.zone_sizes, "whole numbers >= 1")
            total = sum(self.zone_sizes)
            if self.clients not in (None, total):
                raise _error("clients", self.clients, f"{total}, as --zone_sizes sums")
        elif self.clients is not None and self.clients < 1:
            raise _error("clients", self.clients, "a whole number >= 1")
        elif not 1 <= self.zones <= (self.clients or 500):
            raise _error("zones", self.zones, f"1..{self.clients or 500} (the clients)")
        n, k = sum(self.sizes), self.clients_per_round
        if self.sampling != "full" and not (_positive(k) and k <= n):
            raise _error("clients_per_round", k, f"(0, {n}] (the clients)")
        if self.sampling == "fixed" and (k != int(k) or k < len(self.sizes)):
            raise _error(
                "clients_per_round",
                k,
                f"a whole number, one or more a zone, with --sampling={self.sampling}",
            )


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _error(name: str, value: object, allowed: str) -> ValueError:
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return ValueError(f"--{name} is {value}; allowed: {allowed}")
