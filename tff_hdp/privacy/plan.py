"""The noise plan: who adds noise to what, in which zone, and how sums are taken.

The aggregator is built from a `NoisePlan` and epsilon is computed from the same
value, so what is accounted is what is added. What is assumed of the parties is
not in it: see `tff_hdp.privacy.threat`.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from tff_hdp.errors import ArgumentError, check_names, entries, from_fields
from tff_hdp.privacy.parts import (
    Clipping,
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
    Sampling,
)
from tff_hdp.privacy.plan_checks import check_plan
from tff_hdp.privacy.planned_noise import Level, PlannedNoise
from tff_hdp.protocols.secagg import FixedPoint

# Of the expected clients, as TFF has it for adaptive clipping.
_COUNT_STDDEV_SHARE = 0.05

_SAMPLING = {
    "poisson": PoissonSampling,
    "fixed_size": FixedSizeSampling,
    "full": FullParticipation,
}

# The size of updates that a plan allows where it is not told theirs.
MOST_COORDINATES = 10**8


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisePlan(PlannedNoise):
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

    sampling: Sampling
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
        super().__post_init__()
        check_plan(self)

    # Derived quantities -----------------------------------------------------

    @property
    def drawn_numbers(self) -> int:
        """How many numbers all parties' noise has in a round, at most."""
        nodes = [noise for level in self.node_noise for noise in level]
        parties = sum(self.noise_carriers)
        # Whoever passes a sum on adds some more to what was noised before.
        passing = len(nodes) if parties or any(nodes[:-1]) else 0
        return self.size * (parties + sum(map(bool, nodes)) + passing)

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
    def share_of_sum(self) -> float:
        """How much of what the server shows adaptive clipping's sum shows.

        The server's z is that of the sum, of sensitivity S, and of the count of
        unclipped updates, to which a client adds -1/2 or 1/2, together (Andrew et al.
        2021, Theorem 1): z^-2 is the sum of both. 0 if the count shows as much alone.
        """
        # Exactly 1 at twice the count's, and less where z is an ulp less.
        of_count = self.server_noise.noise_multiplier / (2.0 * self.count_stddev)
        return max(0.0, (1.0 - of_count) * (1.0 + of_count))

    @property
    def relative_step(self) -> float:
        """The step of the encoding's grid, in units of S."""
        return self.encoding.step / self.clipping.clip_norm

    @property
    def most_summed(self) -> int:
        """How many clients' updates one of the plan's sums may hold."""
        return self.num_clients if self.secure_server else max(self.zone_sizes)

    @property
    def discrete_steps(self) -> float:
        """The least noise that a party draws on the encoding's grid, in its steps.

        0 where nobody draws noise there.
        """
        if self.encoding is None:
            return 0.0
        client = (self.client_noise,) if self.clients_carry_noise else ()
        zones = self.zone_noise if self.secure_server else ()
        noises = [noise for noise in (*client, *zones) if noise]
        steps = (noise.in_steps(self.encoding.step) for noise in noises)
        return min(steps, default=0.0)

    @property
    def noise_is_discrete(self) -> bool:
        """Whether a party draws noise on the encoding's grid."""
        return self.discrete_steps > 0.0

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


# As JSON types, and back, exactly ----------------------------------------------


def plan_to_dict(plan: NoisePlan) -> dict[str, Any]:
    """Every field of `plan` as JSON types; `plan_from_dict` is the inverse."""
    return json.loads(_written(plan))


@functools.lru_cache(maxsize=256)
def _written(plan: NoisePlan) -> str:
    fields = dataclasses.asdict(plan)
    kind = next(k for k, cls in _SAMPLING.items() if isinstance(plan.sampling, cls))
    fields["sampling"]["kind"] = kind
    return json.dumps(fields)


@functools.lru_cache(maxsize=256)
def plan_digest(plan: NoisePlan) -> int:
    """A whole number below 2^63 that tells plans apart: of all fields' SHA-256."""
    text = json.dumps(plan_to_dict(plan), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def plan_from_dict(fields: Mapping[str, Any]) -> NoisePlan:
    """The plan that `plan_to_dict` wrote.

    Args:
      fields: What `plan_to_dict` returned, possibly through JSON.

    Raises:
      ArgumentError: If a field is unknown, missing or out of range.
    """
    check_names("plan", fields, {f.name for f in dataclasses.fields(NoisePlan)})
    values = dict(fields)
    sampling = dict(values["sampling"])
    kind = sampling.pop("kind")
    if kind not in _SAMPLING:
        raise ArgumentError("sampling.kind", kind, ", ".join(_SAMPLING))
    values["sampling"] = from_fields(_SAMPLING[kind], sampling)
    values["clipping"] = from_fields(Clipping, values["clipping"])
    if values["encoding"] is not None:
        values["encoding"] = from_fields(FixedPoint, values["encoding"])
    values["upper_levels"] = entries(
        "upper_levels", values["upper_levels"], lambda _, each: from_fields(Level, each)
    )
    return from_fields(NoisePlan, values)
