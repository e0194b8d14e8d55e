"""What GFL and HFL-DP share, with clients, edges and a way down that just count."""

import collections
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp import runtime
from tff_hdp.errors import ArgumentError, NoiseError
from tff_hdp.privacy import RoundLedger
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.run import Gfl
from tff_hdp.systems.hfl_dp import account as hfl_dp_account
from tff_hdp.systems.hfl_dp.plan import HflDpRound
from tff_hdp.systems.hfl_dp.run import HflDp
from tff_hdp.systems.zone_models import build_zoned_process, check_all_took_part

ZONES, SIZE = 3, 5


def build_model():
    layers = [tf.keras.layers.InputLayer([4]), tf.keras.layers.Dense(1)]
    return tf.keras.Sequential(layers)


def build(zones_of_a_chunk):
    """A client sends its zone's model times its own number; integers, as masks do."""

    def client(models, chunk, number):
        numbers = tf.cast(chunk["labels"], tf.float32)
        sent = models[:, tf.newaxis] * numbers[..., tf.newaxis]
        return tf.cast(sent, tf.int64), {"spoke": tf.reduce_sum(numbers)}

    def edge(models, sums, clients, number):
        return models + 1000.0 * clients + tf.cast(sums, tf.float32)

    def down(results, number):
        return tf.reverse(results, [0]) + 0.5 * tf.cast(number, tf.float32)

    return build_zoned_process(
        build_model=build_model,
        num_zones=ZONES,
        data_type=tff.SequenceType(
            collections.OrderedDict(
                labels=tff.TensorType(np.int32, [None, None]),
                zone=tff.TensorType(np.int32, [zones_of_a_chunk]),
            )
        ),
        client=client,
        edge=edge,
        down=down,
    )


def chunk(numbers, zones):
    fields = {"labels": np.int32(numbers), "zone": np.int32(zones)}
    return tf.data.Dataset.from_tensors(collections.OrderedDict(fields))


@pytest.fixture(params=["in_process", "native"])
def context(request):
    if request.param == "native":
        request.getfixturevalue("native_context")
    else:
        runtime.set_context("in_process")


@pytest.mark.parametrize(
    "chunks",
    [
        # Zone 1 has clients 2, 3 and 4 in two chunks, zone 2 client 5, zone 0 none.
        [([[2, 3]], [1]), ([[5]], [2]), ([[4]], [1])],
        [([[2, 3], [5, 0]], [1, 2]), ([[4], [0]], [1, 2])],
    ],
    ids=["a zone a chunk", "two zones a chunk"],
)
def test_every_zone_gets_the_sum_of_its_own_clients(context, chunks):
    process = build(len(chunks[0][1]))
    weights = tff.learning.models.ModelWeights(
        [np.full([4, 1], 7.0, np.float32), np.full([1], 7.0, np.float32)], []
    )
    state = process.set_model_weights(process.initialize(), weights)
    begun = np.float32([[7.0], [70.0], [700.0]]).repeat(SIZE, 1)
    state = state._replace(global_model_weights=begun, aggregator=np.int32(4))
    output = process.next(state, [chunk(*c) for c in chunks])
    clients = np.bincount(
        [
            z
            for numbers, zones in chunks
            for row, z in zip(numbers, zones, strict=True)
            for _ in row
        ],
        minlength=ZONES,
    )
    results = begun[:, 0] * [1, 1 + 2 + 3 + 4, 1 + 5] + 1000.0 * clients
    expected = results[::-1, np.newaxis].repeat(SIZE, 1) + 0.5 * 4
    np.testing.assert_array_equal(output.state.global_model_weights, expected)
    assert output.metrics["clients"].tolist() == clients.tolist()
    assert output.metrics["spoke"] == 14
    assert output.metrics["round"] == 5
    (kernel, bias) = process.get_model_weights(output.state).trainable
    np.testing.assert_allclose(kernel, np.full([4, 1], expected[:, 0].mean()))
    np.testing.assert_allclose(bias, [expected[:, 0].mean()])


def test_zones_start_with_one_keras_model(context):
    process = build(1)
    models = np.asarray(process.initialize().global_model_weights)
    assert models.shape == (ZONES, SIZE)
    assert np.ptp(models, axis=0).max() == 0.0
    assert np.abs(models[0, :4]).min() > 0.0 and models[0, 4] == 0.0


@pytest.mark.parametrize("came", [[5, 4], [5, 6], [5, 4, 6]])
def test_rounds_to_which_others_came_are_not_accounted(came):
    """Also where one zone has as many too few as another has too many."""
    check_all_took_part({"clients": np.float32([5, 5])}, 5)
    with pytest.raises(NoiseError, match=r"^[46] clients of zone 1 took .* is of 5 in"):
        check_all_took_part({"clients": np.float32(came)}, 5)


def test_a_client_of_no_zone_is_missing_in_its_own(context):
    process = build(1)
    chunks = [chunk([[1, 1]], [0]), chunk([[1]], [1]), chunk([[1]], [ZONES])]
    came = process.next(process.initialize(), chunks).metrics["clients"]
    assert came.tolist() == [3, 1, 0]


def test_gfl_records_no_round_that_lacks_clients():
    plan = GflPlan(
        scheme="iid",
        mu=0.1,
        B=1.0,
        sigma_g=0.2,
        dimension=2,
        clients=50,
        per_round=10,
    )
    system = Gfl.__new__(Gfl)
    system.plan = plan
    ledger = RoundLedger(plan_type=GflPlan, account=gfl_account.account)
    system.record(ledger, {"clients": [10, 10, 10]})
    with pytest.raises(NoiseError):
        system.record(ledger, {"clients": [11, 10, 9]})
    assert ledger.rounds == 1


def test_hfl_dp_records_no_round_that_lacks_clients():
    edge = HflDpRound(cloud=False, n=4, N=2, C=1.0, sigma_u=1.0)
    cloud = dataclasses.replace(edge, cloud=True)
    system = HflDp.__new__(HflDp)
    system.plan, system.cloud_plan = edge, cloud
    system.config = SimpleNamespace(k2=2)
    ledger = RoundLedger(plan_type=HflDpRound, account=hfl_dp_account.account)
    system.record(ledger, {"clients": [4, 4], "round": 1})
    system.record(ledger, {"clients": [4, 4], "round": 2})
    with pytest.raises(NoiseError):
        system.record(ledger, {"clients": [5, 3], "round": 3})
    assert [plan.cloud for plan, _ in ledger.history] == [False, True]


def test_a_type_that_is_none_of_data_is_refused():
    def nothing(*_):
        raise AssertionError("not traced")

    steps = dict.fromkeys(("client", "edge", "down"), nothing)
    with pytest.raises(ArgumentError, match="data_type is None; allowed: "):
        build_zoned_process(
            build_model=build_model, num_zones=ZONES, data_type=None, **steps
        )
