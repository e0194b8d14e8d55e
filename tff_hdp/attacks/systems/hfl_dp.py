"""HFL-DP under attack: by the edge, its clients, the cloud, and who gets the model."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tff_hdp.attacks.setting import (
    NONE,
    Example,
    Round,
    Setting,
    SystemUnderAttack,
    first_round,
)
from tff_hdp.clients.batches import dataset_of_one
from tff_hdp.privacy.accountant import AccountRow
from tff_hdp.privacy.parts import check_norm
from tff_hdp.systems.hfl_dp import account as hfl_dp_account
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, HflDpRound, rounds_of
from tff_hdp.systems.hfl_dp.process import CHUNK_FIELDS, build_hfl_dp, chunk_type

# One that edges end alone, and one that the cloud ends.
_Rounds = tuple[HflDpRound, HflDpRound]


def under_attack(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """HFL-DP.

    Noise is the clients', of `noise_multiplier` times 2C, the most that a clipped model
    can move.

    Args:
      setting: Without a clip norm it is the norm of the target's weights.
      examples: Not looked at.

    Raises:
      ArgumentError: If HFL-DP does not take the setting.
    """
    del examples
    n = setting.per_zone
    initial = np.concatenate([w.ravel() for w in setting.target.weights])
    C = setting.config.given_clip_norm or float(np.linalg.norm(initial))
    check_norm("clip_norm", C)
    rounds = _rounds(setting, n, C, setting.config.noise_multiplier)
    return SystemUnderAttack(
        round=_round(setting, rounds),
        quiet=_round(setting, _rounds(setting, n, C, NONE)),
        account=functools.partial(_account, rounds),
        clip_norm=C,
    )


def _rounds(setting: Setting, n: int, C: float, noise_multiplier: float) -> _Rounds:
    """Of n clients an edge, who alone add noise."""
    sigma = noise_multiplier * 2 * C
    noise = HflDpNoise(sigma_u1=sigma, sigma_u2=sigma)
    return rounds_of(noise, n=n, N=setting.config.zones, C=C)


def _round(setting: Setting, rounds: _Rounds) -> Round:
    """From clients to the model, of fewer or more of them, that each observer holds."""
    n = rounds[0].n
    # The cloud aggregates after every second edge round, or after each.
    edge, cloud = (_first_edge(setting, rounds, k2) for k2 in (2, 1))

    def held(clients: Sequence[Example]) -> dict[str, np.ndarray]:
        return {
            "super_node": edge(clients[:1]),
            # The last client subtracts its own model, noise and all.
            "edge_broadcast": edge(clients[: n - 1]),
            "aggregator": edge(clients[:n]),
            "released_model": cloud(clients),
        }

    return held


def _first_edge(
    setting: Setting, rounds: _Rounds, k2: int
) -> Callable[[Sequence[Example]], np.ndarray]:
    """From clients, edge by edge, to what the first edge's go on from, [d]."""
    target, (edge_round, cloud_round) = setting.target, rounds
    process = build_hfl_dp(
        build_model=setting.build_model,
        data_type=chunk_type(target.features.shape[1:], target.features.dtype),
        edge_round=edge_round,
        cloud_round=cloud_round,
        k2=k2,
        local_steps=target.local_steps,
        learning_rate=target.learning_rate,
    )
    models_after = first_round(process, target)
    return lambda clients: np.asarray(models_after(_cohort(setting, clients))[0])


def _cohort(setting: Setting, clients: Sequence[Example]) -> list[tf.data.Dataset]:
    """A data set of `chunk_type` for each edge that has clients."""
    data = []
    for zone, own in enumerate(setting.by_zone(clients)):
        chunk = setting.chunk(own, zone) | {"zone": np.array([zone], np.int32)}
        data.append(dataset_of_one({name: chunk[name] for name in CHUNK_FIELDS}))
    return data


def _account(rounds: _Rounds, delta: float) -> list[AccountRow]:
    """Of the edge's round, but of the cloud's for who gets its model."""
    edge, cloud = (
        {row.observer: row for row in hfl_dp_account.account([(plan, 1)], delta)}
        for plan in rounds
    )
    edge["released_model"] = cloud["released_model"]
    return list(edge.values())
