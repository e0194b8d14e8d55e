"""What clients work on in a round, each alone and in chunks."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.privacy import Clipping, FullParticipation, configurations
from tff_hdp.runtime import environment
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.systems.hdp.attendance import Attendance
from tff_hdp.systems.hdp.clients import chunks_span_zones
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import build_federation
from tff_hdp.systems.hdp.round_data import Chunking, chunking, round_data


def build(config, **clipping):
    return build_federation(
        config,
        config.load_task(0),
        partition_seed=0,
        clipping=Clipping(clip_norm=0.5, **clipping),
    )


def data_of(config, federation, cohort, how, byzantine=()):
    sampler = CohortSampler(plan=federation.plan, zoning=federation.zoning, entropy=9)
    present = Attendance(
        cohort=np.array(cohort),
        byzantine=np.isin(cohort, byzantine),
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


@pytest.mark.parametrize("how", [Chunking(0), Chunking(9, True)], ids=str)
def test_a_client_has_its_weight_and_a_byzantine_one_none_and_no_noise(
    hdp_config, tmp_path, how
):
    """In c5 the first of every zone's clients carry noise, here 40 %."""
    settings = {"privacy": "c5", "alpha": 0.4, "weighting": "examples"}
    config = hdp_config(tmp_path, **settings)
    federation = build(config)
    zone_of = np.asarray(federation.zoning.zone_of)
    n, sizes = len(zone_of), federation.task.train.sizes
    rank = np.array([np.sum(zone_of[:i] == zone_of[i]) for i in range(n)])
    weights, noises = sizes / sizes.max(), rank < 0.4 * 50
    assert federation.plan.noising_clients == (20,) * 4
    np.testing.assert_allclose(
        federation.plan.zone_weights,
        [weights[zone_of == zone].sum() for zone in range(4)],
    )
    bad = np.arange(0, n, 5)
    weights[bad], noises[bad] = 2.0, False
    found = {"weight": [], "carries_noise": [], "zone": []}
    for data in data_of(config, federation, np.arange(n), how, byzantine=bad):
        given = data["profile"] if isinstance(data, dict) else data
        for name, values in found.items():
            values.extend(np.ravel(given.get_single_element()[name]))
    expected = zip(zone_of, weights.astype(np.float32), noises, strict=True)
    names = ("zone", "weight", "carries_noise")
    found = zip(*(found[name] for name in names), strict=True)
    assert sorted(found) == sorted(expected)


def test_fedsgd_takes_one_batch_of_all_that_a_client_has(hdp_config, tmp_path):
    rate = HdpConfig.client_learning_rate  # another is refused
    settings = {"client_learning_rate": rate, "num_clients": 50}
    config = hdp_config(tmp_path, algorithm="fedsgd", **settings)
    federation = build(config)
    assert federation.task.train.sizes.min() > config.batch_size
    cohort = [3, 8, 21]
    data = data_of(config, federation, cohort, Chunking(0))
    for client, entry in zip(cohort, data, strict=True):
        (batch,) = entry["examples"].as_numpy_iterator()
        own = federation.task.train.examples(client)[1]
        np.testing.assert_array_equal(np.sort(batch[1]), np.sort(own))


def test_shapes_are_asked_of_one_model(hdp_config, tmp_path):
    config, built = hdp_config(tmp_path), []
    task = config.load_task(0)
    counted = dataclasses.replace(
        task, build_model=lambda: built.append(1) or task.build_model()
    )
    options = {"partition_seed": 0, "clipping": Clipping()}
    chunking(config, build_federation(config, counted, **options))
    assert len(built) == 1


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


@pytest.mark.parametrize("cohort", [31, 40, 47])
def test_cores_or_gpus_share_out_whoever_is_there(
    hdp_config, tmp_path, monkeypatch, cohort
):
    """A Poisson cohort larger than expected has no chunk more; nor has little work."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    halves = [cohort // 2, cohort - cohort // 2]
    for gpus, epochs, wanted in ((0, 40, halves), (1, 40, [cohort]), (0, 1, [cohort])):
        config = hdp_config(tmp_path, clients_per_round=40, local_epochs=epochs)
        federation = build(config)
        how = chunking(config, federation)
        monkeypatch.setattr(environment, "gpus", lambda gpus=gpus: gpus)
        made = data_of(config, federation, np.arange(cohort), how)
        sizes = [len(chunk.get_single_element()["zone"]) for chunk in made]
        assert sorted(sizes) == wanted


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
