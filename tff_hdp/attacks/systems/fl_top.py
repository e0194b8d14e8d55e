"""FL-TOP-DP under attack: by whoever sees the secure sum, of K coordinates."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators.vectors import join
from tff_hdp.attacks.setting import (
    FREE,
    NONE,
    Example,
    Round,
    Setting,
    SystemUnderAttack,
    first_round,
    median_norm,
)
from tff_hdp.clients.batches import chunk_type, dataset_of_one
from tff_hdp.privacy.accountant import AccountRow
from tff_hdp.privacy.parts import Clipping
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top.compressors import FixedSubset
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.fl_top.public import accumulated_gradients, subset_size, top_k

# The server has this many public examples and makes this many steps on them.
_PUBLIC, _PUBLIC_STEPS = 10, 20


def under_attack(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """FL-TOP-DP.

    Args:
      setting: Without a clip norm it is the median of the examples' records.
      examples: The victim's candidates.

    Raises:
      ArgumentError: If FL-TOP does not take the setting.
    """
    kept = _kept(setting)
    clip_norm = setting.config.given_clip_norm or median_norm(
        _round(setting, kept, _plan(setting, *FREE)), examples
    )
    plan = _plan(setting, clip_norm, setting.config.noise_multiplier)
    return SystemUnderAttack(
        round=_round(setting, kept, plan),
        quiet=_round(setting, kept, _plan(setting, clip_norm, NONE)),
        account=functools.partial(_account, plan),
        clip_norm=clip_norm,
    )


def _kept(setting: Setting) -> np.ndarray:
    """The K coordinates that clients send, which public examples chose."""
    target = setting.target
    scores = accumulated_gradients(
        target.keras_model,
        target.weights,
        target.features[-_PUBLIC:],
        target.labels[-_PUBLIC:],
        steps=_PUBLIC_STEPS,
        learning_rate=target.learning_rate,
    )
    return top_k(scores, subset_size(setting.config.ratio, target.model.size))


def _plan(setting: Setting, clip_norm: float, noise_multiplier: float) -> NoisePlan:
    """All clients take part."""
    clients = setting.config.clients
    return fl_top_dp.plan(
        clients=clients,
        per_round=clients,
        sigma=noise_multiplier,
        clipping=Clipping(clip_norm=clip_norm),
    )


def _round(setting: Setting, kept: np.ndarray, plan: NoisePlan) -> Round:
    """From clients to the secure sum, whose mean steps the model for all to see."""
    target = setting.target
    initial = join(target.weights).numpy()
    process = build_fl_top(
        build_model=setting.build_model,
        data_type=chunk_type(target.features.shape[1:], target.features.dtype),
        plan=plan,
        compressor=FixedSubset(initial, kept),
        client_learning_rate=target.learning_rate,
    )
    weights_after = first_round(process, target)

    def held(clients: Sequence[Example]) -> dict[str, np.ndarray]:
        weights = weights_after([dataset_of_one(setting.chunk(clients))])
        after = join(tf.nest.flatten(weights.trainable)).numpy()
        seen = (initial - after)[kept] * setting.config.clients
        return dict.fromkeys(("super_node", "aggregator", "released_model"), seen)

    return held


def _account(plan: NoisePlan, delta: float) -> list[AccountRow]:
    ledger = fl_top_dp.FlTopLedger()
    # S is what noise is measured by here, and what a zeroed update moves.
    threat = dataclasses.replace(fl_top_dp.THREAT, neighbours="zero_out")
    ledger.record(plan, threat=threat)
    return ledger.account(delta)
