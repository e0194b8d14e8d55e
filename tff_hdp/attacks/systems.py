"""The four neighbour systems, each as one round that can be run again and again.

All starts from one model, all clients take part with one example each, and all but the
victim's are known to every observer. What observers hold comes out of the system's own
process; each is named as in the system's account.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators.vectors import join
from tff_hdp.attacks.setting import (
    Example,
    Round,
    Setting,
    SystemUnderAttack,
    median_norm,
    started,
)
from tff_hdp.clients.batches import chunk_type, dataset_of_one
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.accountant import AccountRow
from tff_hdp.privacy.parts import Clipping, check_norm
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.simulation.classifier import seeded
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top.compressors import FixedSubset
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.fl_top.public import accumulated_gradients, subset_size, top_k
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.process import build_gfl, cohort_type, noised
from tff_hdp.systems.hfl_dp import account as hfl_dp_account
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, rounds_of
from tff_hdp.systems.hfl_dp.process import CHUNK_FIELDS, build_hfl_dp
from tff_hdp.systems.hfl_dp.process import chunk_type as edge_type
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.process import build_udp_hypernet, user_type

# Noise that is none: what an attacker computes for itself, with every clip in it.
_NONE = 1e-9
# A clip that cuts nothing and noise beside which updates of norm .01 are exact.
_FREE = 1e4, 1e-13
# FL-TOP's server has this many public examples and makes this many steps on them.
_PUBLIC, _PUBLIC_STEPS = 10, 20
_DESCRIPTOR_DIM, _WIDTH = 16, 32


def fl_top(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """FL-TOP-DP: whoever sees the secure sum, of K coordinates."""
    target, size = setting.target, setting.target.model.size
    initial = join([tf.constant(w) for w in target.weights]).numpy()
    scores = accumulated_gradients(
        target.keras_model,
        target.weights,
        target.features[-_PUBLIC:],
        target.labels[-_PUBLIC:],
        steps=_PUBLIC_STEPS,
        learning_rate=target.learning_rate,
    )
    kept = top_k(scores, subset_size(setting.config.ratio, size))

    def build(clip_norm: float, multiplier: float) -> tuple[Any, Round]:
        plan = fl_top_dp.plan(
            clients=setting.config.clients,
            per_round=setting.config.clients,
            sigma=multiplier,
            clipping=Clipping(clip_norm=clip_norm),
        )
        process = build_fl_top(
            build_model=setting.build_model,
            data_type=chunk_type(target.features.shape[1:], target.features.dtype),
            plan=plan,
            compressor=FixedSubset(initial, kept),
            client_learning_rate=target.learning_rate,
        )
        start = started(process, target)

        def run(clients: Sequence[Example]) -> dict[str, np.ndarray]:
            state = process.next(start, [dataset_of_one(setting.chunk(clients))]).state
            after = join(tf.nest.flatten(state.global_model_weights.trainable)).numpy()
            seen = (initial - after)[kept] * setting.config.clients
            return dict.fromkeys(("super_node", "aggregator", "released_model"), seen)

        return plan, run

    clip_norm = setting.clip_norm or median_norm(build(*_FREE)[1], examples)
    plan, noisy = build(clip_norm, setting.config.noise_multiplier)

    def account(delta: float) -> list[AccountRow]:
        ledger = fl_top_dp.FlTopLedger()
        # S is what noise is measured by here, and what a zeroed update moves.
        threat = dataclasses.replace(fl_top_dp.THREAT, neighbours="zero_out")
        ledger.record(plan, threat=threat)
        return ledger.account(delta)

    quiet = build(clip_norm, _NONE)[1]
    return SystemUnderAttack(noisy, quiet, account, clip_norm)


def udp_hypernet(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """UDP-Alg: the server, who sees a descriptor, and who gets phi."""
    target, users = setting.target, setting.config.clients
    network = Hypernetwork(
        descriptor_dim=_DESCRIPTOR_DIM, width=_WIDTH, targets=target.shapes
    )
    with seeded(setting.config.seed):
        phi = network.initial([tf.constant(w) for w in target.weights])
        descriptors = tf.random.normal([users, _DESCRIPTOR_DIM])
    weights = collections.OrderedDict(phi=phi, descriptors=descriptors)

    def data(user: int, example: Example) -> tf.data.Dataset:
        return dataset_of_one(
            setting.chunk([example]) | {"user": np.array([user], np.int32)}
        )

    def build(clip_norm: float, multiplier: float) -> tuple[Any, Round]:
        # sigma = z S / (q W), with q = 1 and W = users.
        plan = udp_alg.plan(
            users=users, q=1.0, sigma=multiplier * clip_norm / users, S=clip_norm
        )
        process = build_udp_hypernet(
            build_model=setting.build_model,
            data_type=user_type(target.features.shape[1:], target.features.dtype),
            hypernetwork=network,
            plan=plan,
            client_learning_rate=target.learning_rate,
            server_learning_rate=1.0,
            descriptor_learning_rate=1.0,
        )
        start = process.set_model_weights(process.initialize(), weights)

        def run(clients: Sequence[Example]) -> dict[str, np.ndarray]:
            cohort = [data(user, example) for user, example in enumerate(clients)]
            state = process.next(start, cohort).state
            moved = [a - b for a, b in zip(phi, state["phi"], strict=True)]
            return {
                "released_model": users * join(moved).numpy(),
                "descriptors": (descriptors - state["descriptors"])[0].numpy(),
            }

        return plan, run

    def alone(run: Round) -> Round:
        return lambda clients: run(clients[:1])

    clip_norm = setting.clip_norm or median_norm(build(*_FREE)[1], examples)
    plan, noisy = build(clip_norm, setting.config.noise_multiplier)
    quiet = build(clip_norm, _NONE)[1]

    def with_server(run: Round) -> Round:
        # The server draws the noise itself: to it the round has none.
        server = alone(quiet)
        return lambda clients: (
            {"aggregator": server(clients)["released_model"]} | run(clients)
        )

    def account(delta: float) -> list[AccountRow]:
        ledger = udp_alg.UdpLedger()
        ledger.record(plan)
        return ledger.account(delta)

    return SystemUnderAttack(with_server(noisy), with_server(quiet), account, clip_norm)


def gfl(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """GFL, hybrid: the client's own server, all others together, and who gets all."""
    target, each, servers = setting.target, setting.per_zone, setting.config.zones
    one_step = target.local_steps == 1
    require(one_step, "local_steps", target.local_steps, "1 with GFL")
    del examples
    size, mu = target.model.size, target.learning_rate
    clip_norm = setting.clip_norm or target.median_norm()
    try:
        check_norm("B", clip_norm / mu)
    except ArgumentError as error:
        allowed = f"one that makes clip_norm / learning_rate {error.allowed}"
        raise ArgumentError("learning_rate", mu, allowed) from error
    names = [str(i) for i in range(each)]
    masks = PairwiseMasks(names)

    def data(zone: int, clients: Sequence[Example]) -> tf.data.Dataset:
        fields = collections.OrderedDict(
            features=np.stack([x for x, _ in clients])[np.newaxis, :, np.newaxis],
            labels=np.array([y for _, y in clients], np.int32)[np.newaxis, :, None],
            zone=np.array([zone], np.int32),
        )
        drawn = masks.draw(names, next(numbers), size).astype(np.int64)
        return dataset_of_one(fields | {"masks": drawn[np.newaxis]})

    numbers = itertools.count()

    def build(sigma_g: float) -> tuple[GflPlan, Round]:
        plan = GflPlan(
            scheme="hybrid",
            mu=mu,
            B=clip_norm / mu,
            sigma_g=sigma_g,
            dimension=size,
            clients=each,
            per_round=each,
        )
        shape, dtype = target.features.shape[1:], target.features.dtype
        mixed, bare = (
            build_gfl(
                build_model=setting.build_model,
                data_type=cohort_type(shape, dtype, plan=plan),
                plan=plan,
                mixing=mixing,
            )
            for mixing in (np.full([servers] * 2, 1 / servers), np.eye(servers))
        )
        starts = [started(process, target) for process in (mixed, bare)]

        def run(clients: Sequence[Example]) -> dict[str, np.ndarray]:
            after, psi = (
                process.next(
                    start,
                    [
                        data(p, clients[p * each : (p + 1) * each])
                        for p in range(servers)
                    ],
                ).state.global_model_weights
                for process, start in zip((mixed, bare), starts, strict=True)
            )
            # With nobody to mix with, a server's model is what it has by itself.
            sent, _ = noised(tf.constant(psi), sigma_g)
            return {
                "super_node": np.asarray(psi[0]),
                "other_servers": sent[0].numpy(),
                "released_model": np.mean(after, 0),
            }

        return plan, run

    plan, noisy = build(setting.config.noise_multiplier * 2 * clip_norm)
    return SystemUnderAttack(
        noisy,
        build(_NONE)[1],
        lambda delta: gfl_account.account([(plan, 1)], delta),
        clip_norm,
        frozenset({"other_servers"}),
    )


def hfl_dp(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """HFL-DP: the edge, another client of it, the cloud, and who gets its model.

    Noise is the clients', of `noise_multiplier` times 2C, the most that a clipped model
    can move.
    """
    target, each = setting.target, setting.per_zone
    del examples
    initial = np.linalg.norm(np.concatenate([w.ravel() for w in target.weights]))
    C = setting.clip_norm or float(initial)
    check_norm("clip_norm", C)

    def data(zone: int, clients: Sequence[Example]) -> tf.data.Dataset:
        chunk = setting.chunk(clients, zone) | {"zone": np.array([zone], np.int32)}
        return dataset_of_one({name: chunk[name] for name in CHUNK_FIELDS})

    def build(multiplier: float) -> tuple[list[Any], Round]:
        sigma = multiplier * 2 * C
        noise = HflDpNoise(sigma_u1=sigma, sigma_u2=sigma)
        rounds = rounds_of(noise, n=each, N=setting.config.zones, C=C)
        # The cloud aggregates after every second edge round, or after each.
        edge, cloud = (
            build_hfl_dp(
                build_model=setting.build_model,
                data_type=edge_type(target.features.shape[1:], target.features.dtype),
                edge_round=rounds[0],
                cloud_round=rounds[1],
                k2=k2,
                local_steps=target.local_steps,
                learning_rate=target.learning_rate,
            )
            for k2 in (2, 1)
        )
        starts = {process: started(process, target) for process in (edge, cloud)}

        def first(process: Any, clients: Sequence[Example]) -> np.ndarray:
            cohort = [
                data(zone, clients[zone * each : (zone + 1) * each])
                for zone in range(-(-len(clients) // each))
            ]
            state = process.next(starts[process], cohort).state
            return np.asarray(state.global_model_weights[0])

        def run(clients: Sequence[Example]) -> dict[str, np.ndarray]:
            return {
                "super_node": first(edge, clients[:1]),
                # The last client subtracts its own model, noise and all.
                "edge_broadcast": first(edge, clients[: each - 1]),
                "aggregator": first(edge, clients[:each]),
                "released_model": first(cloud, clients),
            }

        return rounds, run

    rounds, noisy = build(setting.config.noise_multiplier)
    edge_round, cloud_round = rounds

    def account(delta: float) -> list[AccountRow]:
        edge, cloud = (
            {row.observer: row for row in hfl_dp_account.account([(plan, 1)], delta)}
            for plan in (edge_round, cloud_round)
        )
        edge["released_model"] = cloud["released_model"]
        return list(edge.values())

    return SystemUnderAttack(noisy, build(_NONE)[1], account, C)


SYSTEMS: dict[str, Callable[[Setting, Sequence[Example]], SystemUnderAttack]] = {
    "fl_top": fl_top,
    "udp_hypernet": udp_hypernet,
    "gfl": gfl,
    "hfl_dp": hfl_dp,
}
