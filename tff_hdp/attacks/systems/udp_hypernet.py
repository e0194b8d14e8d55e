"""UDP-Alg under attack: by the server, who sees a descriptor, and who gets phi."""

import collections
import functools
from collections.abc import Sequence
from typing import Any

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
    median_norm,
)
from tff_hdp.clients.batches import dataset_of_one
from tff_hdp.privacy.accountant import AccountRow
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.simulation.classifier import seeded
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.process import build_udp_hypernet, user_type

_DESCRIPTOR_DIM, _WIDTH = 16, 32


def under_attack(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """UDP-Alg.

    Args:
      setting: Without a clip norm it is the median of the examples' records.
      examples: The victim's candidates.

    Raises:
      ArgumentError: If UDP-Alg does not take the setting.
    """
    network = Hypernetwork(
        descriptor_dim=_DESCRIPTOR_DIM, width=_WIDTH, targets=setting.target.shapes
    )
    initial = _initial(setting, network)
    clip_norm = setting.config.given_clip_norm or median_norm(
        _round(setting, network, initial, _plan(setting, *FREE)), examples
    )
    plan = _plan(setting, clip_norm, setting.config.noise_multiplier)
    noisy = _round(setting, network, initial, plan)
    quiet = _round(setting, network, initial, _plan(setting, clip_norm, NONE))
    return SystemUnderAttack(
        round=_with_server(noisy, quiet),
        quiet=_with_server(quiet, quiet),
        account=functools.partial(_account, plan),
        clip_norm=clip_norm,
    )


def _initial(setting: Setting, network: Hypernetwork) -> dict[str, Any]:
    """phi, whose models are like the target's, and every client's descriptor."""
    with seeded(setting.config.seed):
        return collections.OrderedDict(
            phi=network.initial([tf.constant(w) for w in setting.target.weights]),
            descriptors=tf.random.normal([setting.config.clients, _DESCRIPTOR_DIM]),
        )


def _plan(setting: Setting, clip_norm: float, noise_multiplier: float) -> NoisePlan:
    """All clients take part."""
    users = setting.config.clients
    # sigma = z S / (q W), with q = 1 and W = users.
    return udp_alg.plan(
        users=users, q=1.0, sigma=noise_multiplier * clip_norm / users, S=clip_norm
    )


def _round(
    setting: Setting, network: Hypernetwork, initial: dict[str, Any], plan: NoisePlan
) -> Round:
    """From clients to the sum that steps phi, and the first one's descriptor's step."""
    target = setting.target
    process = build_udp_hypernet(
        build_model=setting.build_model,
        data_type=user_type(target.features.shape[1:], target.features.dtype),
        hypernetwork=network,
        plan=plan,
        client_learning_rate=target.learning_rate,
        server_learning_rate=1.0,
        descriptor_learning_rate=1.0,
    )
    start = process.set_model_weights(process.initialize(), initial)

    def held(clients: Sequence[Example]) -> dict[str, np.ndarray]:
        state = process.next(start, _cohort(setting, clients)).state
        moved = [a - b for a, b in zip(initial["phi"], state["phi"], strict=True)]
        stepped = initial["descriptors"] - state["descriptors"]
        return {
            "released_model": setting.config.clients * join(moved).numpy(),
            "descriptors": stepped[0].numpy(),
        }

    return held


def _cohort(setting: Setting, clients: Sequence[Example]) -> list[tf.data.Dataset]:
    chunks = (
        setting.chunk([example]) | {"user": np.array([user], np.int32)}
        for user, example in enumerate(clients)
    )
    return list(map(dataset_of_one, chunks))


def _with_server(run: Round, quiet: Round) -> Round:
    """As `run`, and the server, who subtracts its own noise and all others' updates."""
    return lambda clients: (
        {"aggregator": quiet(clients[:1])["released_model"]} | run(clients)
    )


def _account(plan: NoisePlan, delta: float) -> list[AccountRow]:
    ledger = udp_alg.UdpLedger()
    ledger.record(plan)
    return ledger.account(delta)
