"""Every system in small, with room for one odd client among honest ones.

Used by `scripts/parts/torture_clients.py`.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import tensorflow as tf

from scripts.parts.torture_cohort import (
    CLASSES,
    CLIENTS,
    FEATURES,
    HIDDEN,
    NUMBERS,
    ODD,
    TEXT,
    ZONE,
    ZONES,
    Client,
    Reader,
    build_model,
    chunk,
    cohort,
    order,
)
from tff_hdp.clients.batches import chunk_type, client_batches
from tff_hdp.clients.client_work import (
    build_optimizer,
    client_profile,
    model_fn_from_keras,
)
from tff_hdp.privacy import Clipping, PoissonSampling, configurations
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.systems.fl_top.compressors import FixedSubset
from tff_hdp.systems.fl_top.process import build_fl_top
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.process import build_gfl, cohort_type
from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
from tff_hdp.systems.hdp.process import build_hdp
from tff_hdp.systems.hfl_dp import process as hfl_dp
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, rounds_of
from tff_hdp.systems.secure_sums import ProtocolData, SecureSums
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.process import build_udp_hypernet, user_type
from tff_hdp.topology.mixing import metropolis

RATE, S = 0.2, 0.3
# How far one of all clients moves their mean, and a hundredth for rounding.
MOST = 1.01 * S / (CLIENTS * ZONES)


@dataclasses.dataclass(frozen=True)
class System:
    """A learning process and a round of it.

    Attributes:
      process: The process.
      kinds: What of a client it reads, besides labels.
      data: The round's data, with the odd client or without it (None).
      model: What the others have of a state, a vector.
      rejected: How many a round rejected, of its metrics.
      limit: How far one client may move the model, in L2.
      as_if_absent: Whether a rejected client is one that did not come.
    """

    process: Any
    kinds: tuple[str, ...]
    data: Callable[[Client | None], Any]
    model: Callable[[Any], np.ndarray]
    rejected: Callable[[Any], float]
    limit: float
    as_if_absent: bool


SHAPES = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)


def systems() -> dict[str, Callable[[], System]]:
    """What builds each, by name."""
    return {
        "hdp single": lambda: _hdp(_alone),
        "hdp stacked": lambda: _hdp(_together),
        "hdp zones": lambda: _hdp(functools.partial(_together, mixed=True)),
        "hdp span": lambda: _hdp(functools.partial(_together, epochs=8)),
        "hdp text single": lambda: _hdp(_alone, reader=TEXT),
        "hdp text stacked": lambda: _hdp(_together, reader=TEXT),
        "hdp secure": lambda: _hdp(_together, _secure_plan()),
        "hdp protocol": lambda: _hdp(_together, _secure_plan(), protocol="bonawitz"),
        "hfl_dp": _hfl_dp,
        "gfl": _gfl,
        "fl_top": _fl_top,
        "fl_top protocol": lambda: _fl_top("bonawitz"),
        "udp_hypernet": _udp_hypernet,
    }


def _vector(weights: Any) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in tf.nest.flatten(weights)])


def _trainable(state: Any) -> np.ndarray:
    return _vector(list(state.global_model_weights.trainable))


def _in_aggregator(metrics: Any) -> int:
    return metrics["aggregator"]["rejected"]


def _hdp_plan() -> NoisePlan:
    """The server clips to S, and its noise is nothing."""
    return configurations.c1(
        zone_sizes=(CLIENTS,) * ZONES,
        sampling=PoissonSampling((1.0,) * ZONES),
        clipping=Clipping(clip_norm=S),
        noise_multiplier=1e-7,
    )


def _secure_plan() -> NoisePlan:
    return _secured(_hdp_plan(), SIZE)


def _secured(plan: NoisePlan, size: int) -> NoisePlan:
    plan = dataclasses.replace(plan, secure_aggregation=True, min_zone_clients=2)
    return with_encoding(plan, size=size)


def _alone(reader: Reader) -> tuple[Any, Any]:
    spec = (
        tf.TensorSpec([None, reader.width], reader.dtype),
        tf.TensorSpec([None], tf.int32),
    )
    clients = single_clients(
        model_fn=model_fn_from_keras(reader.build_model, spec),
        client_optimizer=build_optimizer("sgd", RATE),
    )

    def data(odd: Client | None) -> list[Any]:
        return [
            collections.OrderedDict(
                examples=client_batches(*reader.examples(c), order()),
                profile=client_profile(weight=c.weight, zone=zone, carries_noise=False),
            )
            for zone, members in cohort(odd)
            for c in members
        ]

    return clients, data


def _together(
    reader: Reader, *, epochs: int = 1, mixed: bool = False
) -> tuple[Any, Any]:
    """In stacks, of a zone or of all; in many epochs it pays to train in the span."""
    clients = stacked_clients(
        build_model=reader.build_model,
        data_type=chunk_type((reader.width,), reader.dtype),
        client_learning_rate=RATE,
    )

    def data(odd: Client | None) -> list[Any]:
        groups: Any = cohort(odd)
        if mixed:
            pairs = [(zone, one) for zone, members in groups for one in members]
            groups = [tuple(map(list, zip(*pairs, strict=True)))]
        return [
            tf.data.Dataset.from_tensors(
                chunk(zone, members, epochs=epochs, reader=reader)
            )
            for zone, members in groups
        ]

    return clients, data


def _hdp(
    make: Any,
    plan: NoisePlan | None = None,
    *,
    reader: Reader = NUMBERS,
    protocol: Any = None,
) -> System:
    clients, data = make(reader)
    process = build_hdp(
        clients=clients,
        plan=plan or _hdp_plan(),
        server_optimizer=build_optimizer("sgd", 1.0),
        secure_sums=protocol and SecureSums(protocol),
    )

    def of_protocol(odd: Client | None) -> ProtocolData:
        return ProtocolData(data(odd), (0,) * ZONES)

    return System(
        process=process,
        kinds=(reader.field, "weight", "zone"),
        data=of_protocol if protocol else data,
        model=_trainable,
        rejected=_in_aggregator,
        limit=MOST,
        as_if_absent=True,
    )


def _fl_top(protocol: Any = None) -> System:
    plan = configurations.c1(
        zone_sizes=(CLIENTS * ZONES,),
        sampling=PoissonSampling((1.0,)),
        clipping=Clipping(clip_norm=S),
        noise_multiplier=2e-7,
    )
    initial = np.random.default_rng(5).normal(0, 0.3, SIZE).astype(np.float32)
    kept = np.arange(0, SIZE, 2)
    process = build_fl_top(
        build_model=build_model,
        data_type=chunk_type((FEATURES,), np.float32),
        plan=_secured(plan, len(kept)) if protocol else plan,
        compressor=FixedSubset(initial, kept),
        client_learning_rate=RATE,
        secure_sums=protocol and SecureSums(protocol),
    )

    def data(odd: Client | None) -> Any:
        # Its one zone is the first: what is odd is any other.
        chunks = [
            tf.data.Dataset.from_tensors(
                chunk(0 if 0 <= zone < ZONES else zone, members)
            )
            for zone, members in cohort(odd)
        ]
        return ProtocolData(chunks, (0,)) if protocol else chunks

    return System(
        process=process,
        kinds=("features", "weight", "zone"),
        data=data,
        model=_trainable,
        rejected=_in_aggregator,
        limit=MOST,
        as_if_absent=True,
    )


def _hfl_dp() -> System:
    edge, cloud = rounds_of(HflDpNoise(), n=CLIENTS, N=ZONES, C=10.0)
    process = hfl_dp.build_hfl_dp(
        build_model=build_model,
        data_type=hfl_dp.chunk_type((FEATURES,), np.float32),
        edge_round=edge,
        cloud_round=cloud,
        k2=2,
        local_steps=1,
        learning_rate=RATE,
    )

    def data(odd: Client | None) -> list[Any]:
        chunks = []
        for zone, members in cohort(odd):
            fields = chunk(zone, members) | {"zone": np.array([zone], np.int32)}
            chunks.append(
                tf.data.Dataset.from_tensors(
                    collections.OrderedDict(
                        (name, fields[name]) for name in hfl_dp.CHUNK_FIELDS
                    )
                )
            )
        return chunks

    return System(
        process=process,
        kinds=("features", "zone"),
        data=data,
        model=lambda state: np.ravel(state.global_model_weights),
        rejected=lambda metrics: metrics["rejected"],
        limit=1.01 * 2 * 10.0 / CLIENTS,
        as_if_absent=False,
    )


def _gfl() -> System:
    plan = GflPlan(
        scheme="hybrid",
        mu=RATE,
        B=1.0,
        sigma_g=1e-7,
        dimension=SIZE,
        clients=CLIENTS,
        per_round=CLIENTS,
    )
    process = build_gfl(
        build_model=build_model,
        data_type=cohort_type((FEATURES,), np.float32, plan=plan),
        plan=plan,
        mixing=metropolis(nx.path_graph(ZONES)),
    )

    def data(odd: Client | None) -> list[Any]:
        rows = []
        for zone, members in cohort(odd):
            names = [str(k) for k in range(len(members))]
            masks = np.zeros([1, SIZE], np.int64)
            if len(names) > 1:
                masks = PairwiseMasks(names).draw(names, 0, SIZE).astype(np.int64)
            rows.append(
                tf.data.Dataset.from_tensors(
                    collections.OrderedDict(
                        features=np.stack([c.features for c in members])[np.newaxis],
                        labels=np.stack([c.labels for c in members])[np.newaxis],
                        zone=np.array([zone], np.int32),
                        masks=masks[np.newaxis],
                    )
                )
            )
        return rows

    return System(
        process=process,
        kinds=("features", "zone"),
        data=data,
        model=lambda state: np.ravel(state.global_model_weights),
        rejected=lambda metrics: metrics["rejected"],
        limit=1.01 * RATE / CLIENTS,
        as_if_absent=False,
    )


def _udp_hypernet() -> System:
    network = Hypernetwork(descriptor_dim=3, width=7, targets=SHAPES)
    process = build_udp_hypernet(
        build_model=build_model,
        data_type=user_type((FEATURES,), np.float32),
        hypernetwork=network,
        plan=udp_alg.plan(users=CLIENTS * ZONES, q=1.0, sigma=1e-8, S=S),
        client_learning_rate=RATE,
        server_learning_rate=1.0,
        descriptor_learning_rate=1.0,
    )

    def data(odd: Client | None) -> list[Any]:
        return [
            tf.data.Dataset.from_tensors(
                chunk(0 if 0 <= zone < ZONES else zone, [c])
                | {"user": np.array([c.user], np.int32)}
            )
            for zone, members in cohort(odd)
            for c in members
        ]

    def others(state: Any) -> np.ndarray:
        """All of phi and of the descriptors, but for the odd client's own."""
        descriptors = np.delete(state["descriptors"], ZONE * CLIENTS + ODD, 0)
        return np.append(_vector(list(state["phi"])), descriptors)

    return System(
        process=process,
        kinds=("features", "weight", "zone", "user"),
        data=data,
        model=others,
        rejected=_in_aggregator,
        limit=MOST,
        as_if_absent=True,
    )
