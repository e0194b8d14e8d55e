"""The noise plan: who adds noise to what, in which zone, and how sums are taken.

The aggregator is built from a `NoisePlan` and epsilon is computed from the same
value, so what is accounted is what is added. What is assumed of the parties is
not in it: see `tff_hdp.privacy.threat`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tff_hdp.errors import (
    ArgumentError,
    check_bool,
    check_count,
    check_nonnegative,
    check_positive,
    check_word,
    entries,
    require,
)
from tff_hdp.privacy.parts import (
    LEAST_WEIGHT,
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    Level,
    PoissonSampling,
    Sampling,
    check_in_plan,
    check_zone_sizes,
)
from tff_hdp.protocols.secagg import FixedPoint

# From this standard deviation on, in steps, sums of discrete Gaussians differ from
# one discrete Gaussian, and sums of those with continuous ones from a Gaussian, by
# less than e^-900 at any point (Kairouz, Liu and Steinke 2021, Theorem 1).
MIN_STEPS = 10.0

# Of the expected clients, as TFF has it for adaptive clipping.
_COUNT_STDDEV_SHARE = 0.05

# The size of updates that a plan allows where it is not told theirs.
MOST_COORDINATES = 10**8


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Who adds Gaussian noise where.

    Zone i outputs X_i = (sum_k w_k clip(Delta_k) + noise) / D_i and the server
    releases sum_i p_i X_i + noise, with weights w_k in [0, 1] (Algorithm 1 of the
    HDP paper with its estimators corrected: the denominator is fixed and public).
    Multipliers are standard deviations in units of the sensitivity of the value they
    are added to.

    Attributes:
      zone_sizes: n_i, registered clients of each zone.
      sampling: How each zone draws its cohort.
      client_noise_multiplier: z_L, of each noising client on its own update.
      noising_clients: How many of zone i's clients noise their own update: the
        first so many in the zoning's order.
      zone_noise_multipliers: z_H per zone, added by its super-node.
      server_noise_multiplier: z_C, added by the server.
      upper_levels: Further levels between zones and server, innermost first.
      clipping: The bound on one client's update.
      estimator: `fixed` divides by D_i = q_i W_i; `bounded` by
        max(q_i W_i, sum w), with twice the sensitivity; `realised` by sum w,
        which has no bounded sensitivity and so allows no noise.
      zone_weights: W_i, the public sum of w over the whole zone; None means
        uniform weights, W_i = n_i.
      mixing: `weighted` (p_i proportional to D_i), `equal` (1/s), or p itself.
      secure_aggregation: Whether zones' sums are taken by secure aggregation, which
        shows a super-node its zone's sum and nothing else.
      secure_server: Whether the sum over zones is, which shows the server that sum
        and nothing else.
      encoding: The fixed point in which those sums are taken; client noise, and
        with `secure_server` zone noise, is then discrete Gaussian on its grid.
        None accounts as if sums were real numbers.
      min_zone_clients: A zone with fewer participants than this is left out of
        the round; its super-node then adds its noise to zero.
      top_up: Whether each super-node tops its zone's client noise up to that of
        all its noising clients, so that the total does not show who came; also of a
        zone that is left out.
      size: d, coordinates of an update, at most: what the finite precision of noise
        costs grows with its root. Whoever draws the noise refuses longer updates.

    Raises:
      ArgumentError: If any field is out of range.
    """

    zone_sizes: tuple[int, ...]
    sampling: Sampling
    client_noise_multiplier: float = 0.0
    noising_clients: tuple[int, ...] | None = None
    zone_noise_multipliers: tuple[float, ...] | None = None
    server_noise_multiplier: float = 0.0
    upper_levels: tuple[Level, ...] = ()
    clipping: Clipping = Clipping()
    estimator: Literal["fixed", "bounded", "realised"] = "fixed"
    zone_weights: tuple[float, ...] | None = None
    mixing: Literal["weighted", "equal"] | tuple[float, ...] = "weighted"
    secure_aggregation: bool = False
    secure_server: bool = False
    encoding: FixedPoint | None = None
    min_zone_clients: int = 1
    top_up: bool = False
    size: int = MOST_COORDINATES

    def __post_init__(self) -> None:
        for name in ("secure_aggregation", "secure_server", "top_up"):
            self._set(name, check_bool(name, getattr(self, name)))
        self._check_zones()
        self._check_noise()
        self._check_estimator()
        self._check_sums()

    # Derived quantities -----------------------------------------------------

    @property
    def num_zones(self) -> int:
        """Number of zones, s."""
        return len(self.zone_sizes)

    @property
    def num_clients(self) -> int:
        """Number of clients, n."""
        return sum(self.zone_sizes)

    @property
    def server_level(self) -> int:
        """The server's level: clients are at 0, zones' super-nodes at 1."""
        return len(self.upper_levels) + 2

    def nodes_at(self, level: int) -> list[int]:
        """For every zone the node of `level` that it is beneath, its own at level 1.

        Raises:
          ArgumentError: If there are no nodes at such a level.
        """
        server = self.server_level
        require(1 <= level <= server, "level", level, f"1..{server}, which have nodes")
        if level == server:
            return [0] * self.num_zones
        nodes = list(range(self.num_zones))
        for upper in self.upper_levels[: level - 1]:
            nodes = [upper.parents[node] for node in nodes]
        return nodes

    @property
    def noise_carriers(self) -> tuple[int, ...]:
        """How many of each zone's clients have noise of their own to add."""
        noises = self.client_noise_multiplier > 0
        return self.noising_clients if noises else (0,) * self.num_zones

    @property
    def clients_carry_noise(self) -> bool:
        """Whether clients noise their own updates."""
        return any(self.noise_carriers)

    @property
    def node_noise_multipliers(self) -> tuple[tuple[float, ...], ...]:
        """Noise multipliers of every level's nodes: zones first, the server last."""
        upper = (level.noise_multipliers for level in self.upper_levels)
        return (self.zone_noise_multipliers, *upper, (self.server_noise_multiplier,))

    @property
    def is_noisy(self) -> bool:
        """Whether anybody adds noise."""
        return self.clients_carry_noise or any(map(any, self.node_noise_multipliers))

    @property
    def drawn_numbers(self) -> int:
        """How many numbers all parties' noise has in a round, at most."""
        nodes = [z for level in self.node_noise_multipliers for z in level]
        parties = sum(self.noise_carriers)
        # Whoever passes a sum on adds some more to what was noised before.
        passing = len(nodes) if parties or any(nodes[:-1]) else 0
        return self.size * (parties + sum(z > 0 for z in nodes) + passing)

    @property
    def client_stddev(self) -> float:
        """Standard deviation of each noise carrier's noise, in an update's units."""
        return self.client_noise_multiplier * self.clipping.clip_norm

    @property
    def node_stddevs(self) -> tuple[tuple[float, ...], ...]:
        """Standard deviations of nodes' noise on a value of sensitivity S, by level."""
        norm = self.clipping.clip_norm
        return tuple(
            tuple(z * norm for z in level) for level in self.node_noise_multipliers
        )

    @property
    def expected_clients(self) -> float:
        """How many clients take part in a round, on average."""
        pairs = zip(self.participation, self.zone_sizes, strict=True)
        return float(sum(q * n for q, n in pairs))

    @property
    def count_stddev(self) -> float:
        """Standard deviation of noise on adaptive clipping's sum of -1/2s and 1/2s."""
        return _COUNT_STDDEV_SHARE * self.expected_clients

    @property
    def relative_step(self) -> float:
        """The step of the encoding's grid, in units of S."""
        return self.encoding.step / self.clipping.clip_norm

    @property
    def most_summed(self) -> int:
        """How many clients' updates one of the plan's sums may hold."""
        return self.num_clients if self.secure_server else max(self.zone_sizes)

    @property
    def discrete_stddevs(self) -> tuple[float, ...]:
        """Standard deviations of the noise that parties draw on the encoding's grid."""
        if self.encoding is None:
            return ()
        client = (self.client_stddev,) if self.clients_carry_noise else ()
        zones = self.node_stddevs[0] if self.secure_server else ()
        return tuple(stddev for stddev in (*client, *zones) if stddev > 0)

    @property
    def participation(self) -> tuple[float, ...]:
        """Per zone, the probability that a given client is drawn in a round."""
        if isinstance(self.sampling, PoissonSampling):
            return self.sampling.probabilities
        if isinstance(self.sampling, FixedSizeSampling):
            pairs = zip(self.sampling.sizes, self.zone_sizes, strict=True)
            return tuple(k / n for k, n in pairs)
        return (1.0,) * self.num_zones

    @property
    def denominators(self) -> tuple[float, ...]:
        """D_i = q_i W_i, which is its floor for `bounded`."""
        weights = self.zone_weights or tuple(map(float, self.zone_sizes))
        return tuple(q * w for q, w in zip(self.participation, weights, strict=True))

    @property
    def zone_sensitivities(self) -> tuple[float, ...]:
        """L2 sensitivity of each zone's output X_i: S/D_i, twice it if bounded."""
        factor = 2.0 if self.estimator == "bounded" else 1.0
        return tuple(factor * self.clipping.clip_norm / d for d in self.denominators)

    @property
    def mixing_weights(self) -> tuple[float, ...]:
        """p_i, summing to 1."""
        if self.mixing == "weighted":
            total = sum(self.denominators)
            return tuple(d / total for d in self.denominators)
        if self.mixing == "equal":
            return (1.0 / self.num_zones,) * self.num_zones
        return self.mixing

    @property
    def released_sensitivities(self) -> tuple[float, ...]:
        """How far one client of zone i can move the released average, p_i * S_i."""
        if self.mixing == "weighted":
            # p_i undoes D_i; multiplied out, equal values would differ by rounding.
            moved = self.zone_sensitivities[0] * self.denominators[0]
            return (moved / sum(self.denominators),) * self.num_zones
        pairs = zip(self.mixing_weights, self.zone_sensitivities, strict=True)
        return tuple(p * u for p, u in pairs)

    @property
    def released_units(self) -> tuple[float, ...]:
        """`released_sensitivities` in units of S."""
        return tuple(u / self.clipping.clip_norm for u in self.released_sensitivities)

    def with_node_noise(self, multipliers: Sequence[Sequence[float]]) -> "NoisePlan":
        """The same with other noise of nodes, as `node_noise_multipliers` has it."""
        zones, *upper, (server,) = multipliers
        levels = zip(self.upper_levels, upper, strict=True)
        return dataclasses.replace(
            self,
            zone_noise_multipliers=zones,
            upper_levels=[Level(level.parents, own) for level, own in levels],
            server_noise_multiplier=server,
        )

    def without_noise(self) -> "NoisePlan":
        """The same zones and sums, where nobody adds noise."""
        none = [(0.0,) * len(level) for level in self.node_noise_multipliers]
        return dataclasses.replace(
            self.with_node_noise(none), client_noise_multiplier=0.0
        )

    def without_server_noise(self) -> "NoisePlan":
        """The plan of what reaches the server."""
        return dataclasses.replace(self, server_noise_multiplier=0.0)

    # Validation -------------------------------------------------------------

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _set_per_zone(
        self, name: str, values: Any, checked: Callable[[str, Any], Any]
    ) -> tuple[Any, ...]:
        s, found = self.num_zones, entries(name, values, checked)
        require(len(found) == s, name, values, f"{s} entries, one for each zone")
        self._set(name, found)
        return found

    def _check_zones(self) -> None:
        sizes = check_zone_sizes(self.zone_sizes)
        require(bool(sizes), "zone_sizes", sizes, "a zone or more")
        self._set("zone_sizes", sizes)
        self._set("size", check_count("size", self.size, 1))
        ok = isinstance(self.clipping, Clipping)
        require(ok, "clipping", self.clipping, "a Clipping")
        if isinstance(self.sampling, PoissonSampling):
            drawn = self.sampling.probabilities
        elif isinstance(self.sampling, FixedSizeSampling):
            drawn = self.sampling.sizes
            for i, (k, n) in enumerate(zip(drawn, sizes, strict=False)):
                name = f"sampling.sizes[{i}]"
                require(k <= n, name, k, f"at most {n}, the zone's clients")
        else:
            ok = isinstance(self.sampling, FullParticipation)
            require(ok, "sampling", self.sampling, "a Sampling")
            return
        s = len(sizes)
        require(len(drawn) == s, "sampling", self.sampling, f"{s} entries, as zones")

    def _check_noise(self) -> None:
        for name in ("client_noise_multiplier", "server_noise_multiplier"):
            self._set(name, check_in_plan(name, getattr(self, name)))
        for name, checked in (
            ("noising_clients", check_count),
            ("zone_noise_multipliers", check_in_plan),
        ):
            given = getattr(self, name)
            none = (0,) * self.num_zones
            self._set_per_zone(name, none if given is None else given, checked)
        counts = self.noising_clients
        for i, (count, n) in enumerate(zip(counts, self.zone_sizes, strict=True)):
            require(count <= n, f"noising_clients[{i}]", count, f"0..{n}")
        below = self.num_zones
        is_several = isinstance(self.upper_levels, list | tuple)
        require(is_several, "upper_levels", self.upper_levels, "Levels")
        self._set("upper_levels", tuple(self.upper_levels))
        for j, level in enumerate(self.upper_levels):
            ok = isinstance(level, Level)
            require(ok, f"upper_levels[{j}]", level, "a Level")
            require(
                len(level.parents) == below,
                f"upper_levels[{j}].parents",
                level.parents,
                f"{below} entries, one for each node beneath",
            )
            below = len(level.noise_multipliers)
        if self.clipping.kind == "adaptive":
            alone = not (
                self.client_noise_multiplier
                or any(self.zone_noise_multipliers)
                or self.upper_levels
            )
            require(
                alone or not self.is_noisy,
                "clipping.kind",
                "adaptive",
                "flat or per_layer unless the server alone adds noise (cdp, c4), with "
                "no levels between it and the zones",
            )

    def _check_estimator(self) -> None:
        allowed = ("fixed", "bounded", "realised")
        check_word("estimator", self.estimator, allowed)
        if self.estimator == "realised" and self.is_noisy:
            raise ArgumentError(
                "estimator",
                "realised",
                "fixed or bounded with noise; its sensitivity is unbounded",
            )
        if self.top_up and self.estimator == "bounded" and self.clients_carry_noise:
            raise ArgumentError(
                "top_up",
                True,
                "False with estimator bounded, whose random denominator scales noise",
            )
        if self.zone_weights is not None:
            given = self.zone_weights
            weights = self._set_per_zone("zone_weights", given, check_positive)
            for i, (w, n) in enumerate(zip(weights, self.zone_sizes, strict=True)):
                ok = LEAST_WEIGHT <= w <= n * (1 + 1e-9)
                allowed = f"{LEAST_WEIGHT:g}..{n}, weights being <= 1"
                require(ok, f"zone_weights[{i}]", w, allowed)
        if isinstance(self.mixing, str):
            ok = self.mixing in ("weighted", "equal")
            require(ok, "mixing", self.mixing, "weighted, equal or p_i")
            return
        mixing = self._set_per_zone("mixing", self.mixing, check_nonnegative)
        for i, p in enumerate(mixing):
            allowed = f"0, or {LEAST_WEIGHT:g} and more"
            require(p == 0 or p >= LEAST_WEIGHT, f"mixing[{i}]", p, allowed)
            ok = p > 0 or self.clipping.kind != "adaptive"
            allowed = "above 0 with adaptive clipping, which counts every client"
            require(ok, f"mixing[{i}]", p, allowed)
        ok = math.isclose(sum(mixing), 1.0, rel_tol=1e-6)
        require(ok, "mixing", mixing, f"numbers that sum to 1, not {sum(mixing):g}")

    def _check_sums(self) -> None:
        least, sizes = self.min_zone_clients, self.zone_sizes
        least = check_count("min_zone_clients", least)
        self._set("min_zone_clients", least)
        if isinstance(self.sampling, FixedSizeSampling):
            sizes = self.sampling.sizes
        require(
            1 <= least <= min(sizes),
            "min_zone_clients",
            least,
            f"1..{min(sizes)}, the clients of the smallest zone or fixed cohort",
        )
        if self.secure_server:
            self._check_secure_server()
        if self.encoding is not None:
            self._check_encoding(self.encoding)

    def _check_secure_server(self) -> None:
        equal = True
        if self.estimator == "realised":
            equal = self.mixing == "weighted"
        elif self.estimator == "fixed":
            units = self.released_sensitivities
            equal = math.isclose(min(units), max(units), rel_tol=1e-9)
        for ok, allowed in (
            (not self.upper_levels, "False with upper_levels: it sums zones"),
            (self.num_zones > 1, "False with 1 zone, whose output is the sum"),
            (
                self.estimator != "bounded",
                "False with estimator bounded, which divides each zone's sum by its "
                "own random denominator; use fixed",
            ),
            (equal, f"False with mixing {self.mixing}: zones' sums count differently"),
        ):
            require(ok, "secure_server", True, allowed)

    def _check_encoding(self, encoding: FixedPoint) -> None:
        ok = isinstance(encoding, FixedPoint)
        require(ok, "encoding", encoding, "a FixedPoint or None")
        if not (self.secure_aggregation or self.secure_server):
            raise ArgumentError("encoding", encoding, "None without secure aggregation")
        if self.clipping.kind == "adaptive":
            raise ArgumentError(
                "clipping.kind",
                "adaptive",
                "flat or per_layer with an encoding, which is for one clip norm",
            )
        most, largest = self.most_summed, encoding.max_clients
        ok = largest >= most
        require(ok, "encoding.max_clients", largest, f"at least {most}, as in a sum")
        noise = {"client_noise_multiplier": self.client_noise_multiplier}
        if self.secure_server:
            for i, z in enumerate(self.zone_noise_multipliers):
                noise[f"zone_noise_multipliers[{i}]"] = z
            noise["server_noise_multiplier"] = self.server_noise_multiplier
        least = MIN_STEPS * self.relative_step
        for name, z in noise.items():
            require(
                z == 0 or z >= least,
                name,
                z,
                f"0 or at least {least:.3g} with an encoding of step "
                f"{encoding.step:.3g}; use more bits",
            )
