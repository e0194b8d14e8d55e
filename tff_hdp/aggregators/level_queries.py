"""The query of every level, checked against what a plan accounts.

A `DpEvent` tells noise in units of a clip norm. What else could make it say too much is
refused here: sums that are rescaled, records that nobody clips, noise that is uneven
between parts which others clip otherwise, grids that the plan does not know of.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp

from tff_hdp.aggregators.queries import with_secure_noise
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.plan import NoisePlan

# Noise of up to so many times the plan's lies on a grid of which a party with the
# plan's own noise still has eight steps and more to a standard deviation.
_MOST_NOISE = 4.0
_RESCALES = (tfp.NormalizedQuery, tfp.NoPrivacyAverageQuery)


@dataclasses.dataclass(frozen=True)
class LevelQueries:
    """The `DPQuery` of every level; None or empty where a level only sums.

    All queries of a plan must clip to the plan's S: a `DpEvent` tells a noise
    multiplier, not the clip norm it is relative to.

    Attributes:
      client: Run by a noising client on its own weighted record.
      zones: One query per zone; all of one class, so that one preprocessing
        with the zone's own parameters serves every client.
      upper: For each level between zones and server, one query per node. These
        only noise; they do not preprocess.
      server: Run on the sum over all zones.

    Raises:
      ArgumentError: If a query below the server rescales what it noises, an upper one
        noises parts of a record unevenly, or one of a zone does where zones clip
        their parts otherwise, or zones' queries are of several classes.
    """

    client: tfp.DPQuery | None = None
    zones: Sequence[tfp.DPQuery] = ()
    upper: Sequence[Sequence[tfp.DPQuery]] = ()
    server: tfp.DPQuery | None = None

    def __post_init__(self) -> None:
        upper = [query for nodes in self.upper for query in nodes]
        below = {
            "client": [self.client] if self.client else [],
            "zones": self.zones,
            "upper": upper,
        }
        for level, queries in below.items():
            for part in itertools.chain.from_iterable(map(_parts, queries)):
                keeps, kind = not isinstance(part, _RESCALES), type(part).__name__
                allowed = "a query that does not rescale, which only the server's may"
                require(keeps, f"queries.{level}", kind, allowed)
        clips = {tuple(clip for clip, _ in _gaussians(query)) for query in self.zones}
        for level, queries, shared in (
            ("zones", self.zones, len(clips) == 1),
            ("upper", upper, False),
        ):
            for query in queries:
                found = sorted({stddev for _, stddev in _gaussians(query)})
                allowed = "one for all parts of a record, which others clip otherwise"
                name = f"noise of queries.{level}"
                require(shared or len(found) <= 1, name, found, allowed)
        # All zones' records are preprocessed by the first one's.
        kinds = {tuple(map(type, _parts(query))) for query in self.zones}
        names = [type(query).__name__ for query in self.zones]
        require(len(kinds) <= 1, "queries.zones", names, "all of one class")

    def with_secure_noise(self) -> "LevelQueries":
        """The same, with all Gaussian noise drawn by `tff_hdp.noise`."""
        return LevelQueries(**self.each(with_secure_noise))

    def each(
        self, apply: Callable[..., Any], states: Mapping[str, Any] | None = None
    ) -> collections.OrderedDict[str, Any]:
        """What a function makes of every query, by level; those without are left out.

        Args:
          apply: From a query, and its own state if there are any.
          states: By level, each as this gives what is made of queries.
        """

        def made(level: Any, *own: Any) -> Any:
            if isinstance(level, tfp.DPQuery):
                return apply(level, *own)
            return [made(*pair) for pair in zip(level, *own, strict=True)]

        return collections.OrderedDict(
            (name, made(level, *([] if states is None else [states[name]])))
            for name in ("client", "zones", "upper", "server")
            if (level := getattr(self, name))
        )

    def check_fits(self, plan: NoisePlan) -> None:
        """Refuses queries of other nodes than the plan's, or not as it is accounted.

        Raises:
          ArgumentError: If not every zone has a query, or every node above them, where
            one has. Under a plan with noise, if nobody clips whole records, a level
            noises where the plan does not or far more than it does, clipped updates are
            counted where clipping does not adapt or with less noise than the plan's, or
            others than the server have queries where it does.
        """
        self._check_nodes(plan)
        if not plan.is_noisy:
            return
        if plan.clipping.kind == "adaptive" and (
            self.client or self.zones or self.upper
        ):
            allowed = "the server's alone with clipping=adaptive"
            raise ArgumentError("queries", "of other levels", allowed)
        if self.server is not None:
            _check_counts(self.server, plan)
        self._check_somebody_clips()
        self._check_noise(plan)

    def _check_nodes(self, plan: NoisePlan) -> None:
        nodes = [len(nodes) for nodes in plan.node_noise[1:-1]]
        for name, found, wanted in (
            ("zones", len(self.zones), plan.num_zones),
            ("upper", list(map(len, self.upper)), nodes),
        ):
            allowed = f"{wanted}, one for each node, or none"
            require(not found or found == wanted, f"queries.{name}", found, allowed)

    def _check_somebody_clips(self) -> None:
        of_all = [query for query in (self.client, self.server) if query is not None]
        clips = any(map(_clips_all, of_all))
        clips |= bool(self.zones) and all(map(_clips_all, self.zones))
        allowed = "some that clip whole records at clients, zones or server"
        require(clips, "queries", "none that clips", allowed)

    def _check_noise(self, plan: NoisePlan) -> None:
        zones, *upper, server = plan.node_noise
        client = [plan.client_noise if plan.clients_carry_noise else None]
        for level, queries, planned in (
            ("client", [self.client], client),
            ("zones", self.zones, zones),
            *(("upper", *pair) for pair in zip(self.upper, upper, strict=False)),
            ("server", [self.server], server),
        ):
            for query, own in zip(queries, planned, strict=False):
                most = _MOST_NOISE * own.stddev if own else 0.0
                for _, stddev in [] if query is None else _gaussians(query):
                    allowed = f"0..{most:g}, {_MOST_NOISE:g} times the plan's"
                    ok = 0.0 <= stddev <= most
                    require(ok, f"noise of queries.{level}", stddev, allowed)


def _parts(query: tfp.DPQuery) -> Iterator[tfp.DPQuery]:
    """The query, and all that it holds."""
    yield query
    for inner in _held(query):
        yield from _parts(inner)


def _held(query: tfp.DPQuery) -> list[tfp.DPQuery]:
    leaves = tf.nest.flatten(list(vars(query).values()))
    return [leaf for leaf in leaves if isinstance(leaf, tfp.DPQuery)]


def _gaussians(query: tfp.DPQuery) -> list[tuple[float, float]]:
    """Clip norm and standard deviation of the Gaussian queries it is made of."""
    gaussian = [p for p in _parts(query) if isinstance(p, tfp.GaussianSumQuery)]
    return [(float(part._l2_norm_clip), float(part._stddev)) for part in gaussian]


def _check_counts(query: tfp.DPQuery, plan: NoisePlan) -> None:
    """Refuses counts of clipped updates that the account does not know of.

    Zeroing an update moves a count by twice what its event says, so how much of the
    noise multiplier is the count's is no matter of the event alone.
    """
    counts = [p for p in _parts(query) if isinstance(p, tfp.QuantileEstimatorQuery)]
    if not counts:
        return
    kind = plan.clipping.kind
    allowed = f"one that counts no clipped updates with clipping={kind}"
    require(kind == "adaptive", "queries.server", type(query).__name__, allowed)
    noises = [stddev for count in counts for _, stddev in _gaussians(count)]
    seen = sum(stddev**-2 if stddev else math.inf for stddev in noises)
    together, least = seen**-0.5 if seen else math.inf, plan.count_stddev
    allowed = f"at least {least:g}, the plan's, in all counts together"
    ok = together >= least * (1 - 1e-6)
    require(ok, "noise of the count of queries.server", together, allowed)


def _clips_all(query: tfp.DPQuery) -> bool:
    """Whether every part of a record is clipped."""
    if isinstance(query, tfp.GaussianSumQuery | tfp.QuantileAdaptiveClipSumQuery):
        return True
    held = _held(query)
    return bool(held) and all(map(_clips_all, held))
