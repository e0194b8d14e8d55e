"""tensorflow-privacy's queries: with noise worth the account, and one for every level.

Their own draw from TensorFlow's generator, all of which follows from 32 bits of a
process, and whose normals end at 5.68 standard deviations.

A `DpEvent` tells noise in units of a clip norm. What else could make it say too much is
refused here: sums that are rescaled, records that nobody clips, noise that is uneven
between parts which others clip otherwise, grids that the plan does not know of.
"""

import collections
import copy
import dataclasses
import itertools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_hdp.errors import ArgumentError, require
from tff_hdp.noise import add_gaussian
from tff_hdp.privacy.plan import NoisePlan

# Whose noise is known.
_KNOWN = ("tensorflow_privacy", "tff_hdp")
# What a class does to records before they are summed.
_BEFORE = ("preprocess_record", "preprocess_record_impl")
# What it is accounted by, and does to them afterwards.
_AFTER = (
    *("initial_global_state", "derive_sample_params", "initial_sample_state"),
    *("accumulate_record", "accumulate_preprocessed_record", "merge_sample_states"),
)
# Noise of up to so many times the plan's lies on a grid of which a party with the
# plan's own noise still has eight steps and more to a standard deviation.
_MOST_NOISE = 4.0
_RESCALES = (tfp.NormalizedQuery, tfp.NoPrivacyAverageQuery)


class GaussianSumQuery(tfp.GaussianSumQuery):
    """Clips and noises as tensorflow-privacy's, by `tff_hdp.noise`."""

    def preprocess_record_impl(self, params: Any, record: Any) -> tuple[Any, tf.Tensor]:
        """See base class."""
        return _clip(params, record)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
        """See base class."""
        noise_multiplier = global_state.stddev / global_state.l2_norm_clip
        event = dp_accounting.GaussianDpEvent(noise_multiplier)
        noised = add_gaussian(sample_state, global_state.stddev)
        return noised, global_state, event


def _clip(
    most: tf.Tensor, record: Any, *, stacked: bool = False
) -> tuple[Any, tf.Tensor]:
    """A record clipped to a norm, [] or each client's [C], and its norm before."""
    # In float32 squares vanish of what a clip that adapts may come to cut.
    parts = [tf.cast(t, tf.float64) for t in tf.nest.flatten(record)]
    norm = global_norm(parts, stacked=stacked)
    # A norm that is not a number makes the record none either.
    shrunk = tf.math.divide_no_nan(tf.cast(most, tf.float64), norm)
    factor = tf.minimum(tf.ones_like(norm), shrunk)
    clipped = tf.nest.map_structure(lambda t: t * tf.cast(factor, t.dtype), record)
    return clipped, tf.cast(norm, tf.float32)


def preprocess(
    query: tfp.DPQuery, params: Any, record: Any, *, stacked: bool = False
) -> Any:
    """What a query makes of a record before it is summed.

    Args:
      query: Any; where stacked, one of ours, or a nest of ours with one a tensor.
      params: The query's `derive_sample_params`; each may be [C] where stacked.
      record: Structure of tensors.
      stacked: Whether of C clients', see `global_norm`.
    """
    if not stacked:
        return query.preprocess_record(params, record)
    if isinstance(query, GaussianSumQuery):
        return _clip(params, record, stacked=True)[0]
    parts = zip(*map(tf.nest.flatten, (query._queries, params, record)), strict=True)
    clipped = [preprocess(*part, stacked=True) for part in parts]
    return tf.nest.pack_sequence_as(record, clipped)


def global_norm(tensors: Sequence[tf.Tensor], *, stacked: bool = False) -> tf.Tensor:
    """The L2 norm of all tensors together, in the widest of float32 and theirs.

    In float16 the squares of 256 and more would overflow.

    Args:
      tensors: Of any shapes.
      stacked: Whether they are of C clients, of whom each has one number in each
        tensor, [C].

    Returns:
      The norm, []; each client's, [C], where stacked.
    """
    tensors = list(map(tf.convert_to_tensor, tensors))
    dtypes = [tf.float32, *(tensor.dtype for tensor in tensors)]
    widest = max(dtypes, key=lambda dtype: dtype.size)
    squares = [tf.square(tf.cast(t, widest)) for t in tensors]
    if not stacked:
        squares = [tf.reduce_sum(square) for square in squares]
    return tf.sqrt(tf.add_n(squares))


def with_secure_noise(query: tfp.DPQuery) -> tfp.DPQuery:
    """A query like the given one whose Gaussian noise is that of `tff_hdp.noise`.

    Reaches tensorflow-privacy's `GaussianSumQuery` wherever it stands in others:
    nested, normalised, in adaptive clipping. A class of that library that draws noise
    in a way of its own, such as a tree's, stays as it is; its events are not taken for
    Gaussian.

    Raises:
      ArgumentError: If there is a class of anybody else's that does more than to change
        records before a `GaussianSumQuery` clips them: nobody can tell what its events
        are worth.
    """
    if type(query) is tfp.GaussianSumQuery:
        return GaussianSumQuery(query._l2_norm_clip, query._stddev)
    if isinstance(query, tfp.GaussianSumQuery):
        return _with_this_noise(query)
    _refuse_own(query, (*_BEFORE, *_AFTER, "get_noised_result"))
    changed = copy.copy(query)
    for name, value in vars(query).items():
        if any(isinstance(leaf, tfp.DPQuery) for leaf in tf.nest.flatten(value)):
            setattr(changed, name, tf.nest.map_structure(_leaf, value))
    return changed


def _with_this_noise(query: tfp.GaussianSumQuery) -> tfp.DPQuery:
    """A query of a class that does more to records than its base.

    What it makes of a record is clipped once more: its own clip nobody can tell.
    """
    kind, result = type(query), "get_noised_result"
    own = getattr(kind, result)
    ours = own is GaussianSumQuery.get_noised_result
    theirs = own is tfp.GaussianSumQuery.get_noised_result
    allowed = f"a GaussianSumQuery without a {result} of its own"
    require(ours or theirs, "query", kind.__name__, allowed)
    _refuse_own(query, _AFTER)
    bases = GaussianSumQuery, tfp.GaussianSumQuery
    base = next(base for base in bases if issubclass(kind, base))
    reclips = any(getattr(kind, step) is not getattr(base, step) for step in _BEFORE)
    if ours and not reclips:
        return query
    changed = copy.copy(query)
    changed.get_noised_result = types.MethodType(
        GaussianSumQuery.get_noised_result, changed
    )
    if reclips:
        changed.preprocess_record = types.MethodType(_reclipped, changed)
        changed.preprocess_record_impl = types.MethodType(_reclipped_impl, changed)
    return changed


def _refuse_own(query: tfp.DPQuery, steps: Sequence[str]) -> None:
    """Raises ArgumentError if a class of anybody else's takes one of the steps."""
    kind = type(query)
    for step in steps:
        # Whose class it is counts, not where a function says it is from.
        owner = next((each for each in kind.__mro__ if step in vars(each)), None)
        known = owner is None or owner.__module__.partition(".")[0] in _KNOWN
        allowed = f"one that leaves {step} to tensorflow-privacy or tff_hdp"
        require(known, "query", kind.__name__, allowed)


def _reclipped(query: tfp.GaussianSumQuery, params: Any, record: Any) -> Any:
    made = type(query).preprocess_record(query, params, record)
    return GaussianSumQuery.preprocess_record_impl(query, params, made)[0]


def _reclipped_impl(query: tfp.GaussianSumQuery, params: Any, record: Any) -> Any:
    made, norm = type(query).preprocess_record_impl(query, params, record)
    clipped, _ = GaussianSumQuery.preprocess_record_impl(query, params, made)
    return clipped, norm


def clip_of(state: Any) -> tf.Tensor:
    """The norm to which a query clips, float32 [], from its global state.

    Where it clips parts of a record apart, that is the root of their squares' sum;
    infinite where it does not clip.
    """
    norms = _clips(state)
    return tf.norm(tf.stack(norms)) if norms else tf.constant(float("inf"))


def _clips(state: Any) -> list[tf.Tensor]:
    # Adaptive clipping counts by a query of its own.
    state = getattr(state, "sum_state", state)
    if hasattr(state, "l2_norm_clip"):
        return [tf.cast(state.l2_norm_clip, tf.float32)]
    if isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, list | tuple):
        return [norm for part in state for norm in _clips(part)]
    return []


def _leaf(value: Any) -> Any:
    return with_secure_noise(value) if isinstance(value, tfp.DPQuery) else value


# Levels ----------------------------------------------------------------------


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
        nodes = [len(level.noise_multipliers) for level in plan.upper_levels]
        for name, found, wanted in (
            ("zones", len(self.zones), plan.num_zones),
            ("upper", list(map(len, self.upper)), nodes),
        ):
            allowed = f"{wanted}, one for each node, or none"
            require(not found or found == wanted, f"queries.{name}", found, allowed)
        if not plan.is_noisy:
            return
        if plan.clipping.kind == "adaptive" and (
            self.client or self.zones or self.upper
        ):
            allowed = "the server's alone with clipping=adaptive"
            raise ArgumentError("queries", "of other levels", allowed)
        if self.server is not None:
            _check_counts(self.server, plan)
        clip = [query for query in (self.client, self.server) if query is not None]
        everybody = any(map(_clips_all, clip))
        everybody |= bool(self.zones) and all(map(_clips_all, self.zones))
        allowed = "some that clip whole records at clients, zones or server"
        require(everybody, "queries", "none that clips", allowed)
        zones, *upper, server = plan.node_stddevs
        client = [plan.client_stddev if plan.clients_carry_noise else 0.0]
        for level, queries, planned in (
            ("client", [self.client], client),
            ("zones", self.zones, zones),
            *(("upper", *pair) for pair in zip(self.upper, upper, strict=False)),
            ("server", [self.server], server),
        ):
            for query, most in zip(queries, planned, strict=False):
                for _, stddev in [] if query is None else _gaussians(query):
                    ok = 0.0 <= stddev <= _MOST_NOISE * most
                    allowed = f"0..{_MOST_NOISE * most:g}, {_MOST_NOISE:g} times the "
                    allowed += "plan's"
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
