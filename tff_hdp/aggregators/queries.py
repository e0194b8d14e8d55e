"""tensorflow-privacy's queries, with noise worth the account.

Their own draw from TensorFlow's generator, all of which follows from 32 bits of a
process, and whose normals end at 5.68 standard deviations.
"""

import copy
import types
from collections.abc import Mapping, Sequence
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_hdp.aggregators.clipping import clip
from tff_hdp.errors import require
from tff_hdp.noise import add_gaussian

# Whose noise is known.
_KNOWN = ("tensorflow_privacy", "tff_hdp")
# What a class does to records before they are summed.
_BEFORE = ("preprocess_record", "preprocess_record_impl")
# What it is accounted by, and does to them afterwards.
_AFTER = (
    *("initial_global_state", "derive_sample_params", "initial_sample_state"),
    *("accumulate_record", "accumulate_preprocessed_record", "merge_sample_states"),
)


class GaussianSumQuery(tfp.GaussianSumQuery):
    """Clips and noises as tensorflow-privacy's, by `tff_hdp.noise`."""

    def preprocess_record_impl(self, params: Any, record: Any) -> tuple[Any, tf.Tensor]:
        """See base class."""
        return clip(record, params)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
        """See base class."""
        noise_multiplier = global_state.stddev / global_state.l2_norm_clip
        event = dp_accounting.GaussianDpEvent(noise_multiplier)
        noised = add_gaussian(sample_state, global_state.stddev)
        return noised, global_state, event


def preprocess(
    query: tfp.DPQuery, params: Any, record: Any, *, stacked: bool = False
) -> Any:
    """What a query makes of a record before it is summed.

    Args:
      query: Any; where stacked, one of ours, or a nest of ours with one a tensor.
      params: The query's `derive_sample_params`; each may be [C] where stacked.
      record: Structure of tensors.
      stacked: Whether of C clients', see `clipping.global_norm`.
    """
    if not stacked:
        return query.preprocess_record(params, record)
    if isinstance(query, GaussianSumQuery):
        return clip(record, params, stacked=True)[0]
    parts = zip(*map(tf.nest.flatten, (query._queries, params, record)), strict=True)
    clipped = [preprocess(*part, stacked=True) for part in parts]
    return tf.nest.pack_sequence_as(record, clipped)


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
