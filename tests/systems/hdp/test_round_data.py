"""What clients work on in a round, each alone and in chunks."""

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.privacy import Clipping, FullParticipation, configurations
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.systems.hdp.attendance import Attendance
from tff_hdp.systems.hdp.clients import chunks_span_zones
from tff_hdp.systems.hdp.federation import build_federation
from tff_hdp.systems.hdp.round_data import Chunking, chunking, round_data


def build(config, **clipping):
    return build_federation(
        config,
        config.load_task(0),
        partition_seed=0,
        clipping=Clipping(clip_norm=0.5, **clipping),
    )


def data_of(config, federation, cohort, how):
    sampler = CohortSampler(plan=federation.plan, zoning=federation.zoning, entropy=9)
    present = Attendance(
        cohort=np.array(cohort),
        byzantine=np.zeros(len(cohort), bool),
        dropped=(0,) * federation.zoning.num_zones,
        skipped=0,
        seats=[],
        carried={},
        metrics={},
    )
    return round_data(
        config,
        federation,
        present,
        chunking=how,
        rng_of=sampler.batch_generators(4),
    )


def test_removing_a_client_leaves_the_others_batches(hdp_config, tmp_path):
    config = hdp_config(tmp_path)
    federation = build(config)

    def batches(cohort):
        data = data_of(config, federation, cohort, Chunking(0))
        return {
            client: np.concatenate(
                [y for _, y in entry["examples"].as_numpy_iterator()]
            )
            for client, entry in zip(cohort, data, strict=True)
        }

    everybody, without = batches([3, 8, 21, 30]), batches([3, 21, 30])
    for client, labels in without.items():
        np.testing.assert_array_equal(labels, everybody[client])


@pytest.mark.parametrize("across", [False, True])
def test_each_client_is_in_one_chunk_with_its_own_zone(hdp_config, tmp_path, across):
    config = hdp_config(tmp_path, clients_per_round=60)
    federation = build(config)
    cohort, zone_of = np.arange(0, 60), np.asarray(federation.zoning.zone_of)
    chunks = [
        data.get_single_element()
        for data in data_of(config, federation, cohort, Chunking(25, across))
    ]
    sizes = [len(chunk["zone"]) for chunk in chunks]
    assert sum(sizes) == 60 and max(sizes) <= 25
    assert across == any(len(set(chunk["zone"].numpy())) > 1 for chunk in chunks)
    assert not across or sizes == [25, 25, 10]
    lengths = [np.sum(chunk["order"].numpy() >= 0, (1, 2)) for chunk in chunks]
    if across:
        # Those of like size are together.
        joined = np.concatenate(lengths)
        assert len(set(joined)) > 1 and (np.diff(joined) >= 0).all()
    train, found = federation.task.train, []
    for chunk in chunks:
        for features, zone in zip(chunk["features"], chunk["zone"], strict=True):
            first = features.numpy()[0]
            (client,) = (c for c in cohort if (train.examples(c)[0][0] == first).all())
            assert zone_of[client] == zone
            found.append(client)
    assert sorted(found) == cohort.tolist()


@pytest.mark.parametrize(
    ("changes", "clipping", "across"),
    [
        ({}, {}, True),
        ({"privacy": "ldp"}, {}, True),
        ({"privacy": "cdp"}, {"kind": "adaptive"}, False),
        ({"client_optimizer": "adam"}, {}, False),
        ({"secure_aggregation": "zone"}, {}, False),
    ],
)
def test_zones_share_chunks_where_norms_decide(
    hdp_config, tmp_path, changes, clipping, across
):
    config = hdp_config(tmp_path, **changes)
    assert chunking(config, build(config, **clipping)).across_zones is across


def test_clients_that_convolve_share_chunks_within_zones():
    layers = tf.keras.layers
    convolving = StackedModel(
        tf.keras.Sequential(
            [layers.InputLayer([4, 4, 1]), layers.Conv2D(2, 2), layers.Flatten()]
        )
    )
    dense = StackedModel(tf.keras.Sequential([layers.InputLayer([4]), layers.Dense(2)]))
    plan = configurations.none(zone_sizes=(2, 2), sampling=FullParticipation())
    assert chunks_span_zones(plan, dense) and not chunks_span_zones(plan, convolving)
