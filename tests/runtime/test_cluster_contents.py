"""What a worker has had of clients' data is not sent to it again."""

import collections
import contextlib
import threading

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_federated.proto.v0 import executor_pb2

from tff_hdp.clients.batches import make_chunk
from tff_hdp.runtime.cluster import ClusterContext, contents
from tff_hdp.runtime.cluster.connection import Connection

ROWS = 400
ELEMENT = collections.OrderedDict(
    features=tff.TensorType(np.uint8, [None, None, 64]),
    labels=tff.TensorType(np.int32, [None, None]),
)
DATA = tff.SequenceType(ELEMENT)


@tff.tensorflow.computation(DATA, np.float32)
def weighed(data, factor):
    def add(total, element):
        features = tf.cast(element["features"], tf.float32)
        places = tf.range(tf.size(features), dtype=tf.float32)
        labels = tf.cast(tf.reduce_sum(element["labels"]), tf.float32)
        return (
            total + labels + tf.reduce_sum(tf.sin(places) * tf.reshape(features, [-1]))
        )

    return factor * data.reduce(tf.constant(0.0), add)


@tff.federated_computation(
    tff.FederatedType(DATA, tff.CLIENTS), tff.FederatedType(np.float32, tff.SERVER)
)
def total(data, factor):
    everywhere = tff.federated_broadcast(factor)
    return tff.federated_sum(tff.federated_map(weighed, (data, everywhere)))


def client(number, size=ROWS):
    """A client's own examples: 25 kB for 400 of them."""
    rng = np.random.default_rng(number)
    return rng.integers(1, 256, [size, 64], np.uint8), rng.integers(0, 9, size)


def chunk(*members):
    orders = [np.zeros([1, 1], np.int32)] * len(members)
    made = make_chunk(members, orders, weights=orders, carries_noise=orders, zone=0)
    return tf.data.Dataset.from_tensors(
        collections.OrderedDict((name, made[name]) for name in ELEMENT)
    )


@pytest.fixture
def worker(host_worker):
    """Makes a context of one worker, and says how many bytes it was sent."""
    with host_worker("--port=0") as host:
        made = []

        def make(**options):
            context = ClusterContext([host.address], **options)
            made.append(context)
            return context, lambda: context.members[0].connection.bytes_sent

        yield make
        for context in made:
            context.close()


def test_a_client_is_known_in_whatever_company(worker, in_process_context, run_on):
    context, sent = worker()
    a, b, c = client(1), client(2, ROWS + 100), client(3, ROWS - 50)
    rounds = (
        ([chunk(a, b), chunk(c)], 3),
        ([chunk(c, a), chunk(b)], 0),  # padded otherwise, in other places
        ([chunk(a, client(4))], 1),
    )
    # The computations go along at first, and labels, 1.6 kB a client, always.
    extra = 60_000
    for data, new in rounds:
        before = sent()
        found = run_on(context, total, data, 0.5)
        expected = run_on(in_process_context, total, data, 0.5)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert new * 22_400 < sent() - before < new * 32_000 + extra
        extra = 12_000


def test_other_examples_of_the_same_client_are_sent(worker, run_on):
    """It is by content, not by who or where."""
    context, sent = worker()
    features, labels = client(1)
    first = run_on(context, total, [chunk((features, labels))], 1.0)
    before = sent()
    changed = features.copy()
    changed[-1, -1] ^= 255
    second = run_on(context, total, [chunk((changed, labels))], 1.0)
    assert sent() - before > features.size
    assert first != second
    assert run_on(context, total, [chunk((features, labels))], 1.0) == first


# A run of eight clients that ends as programs do.
RUN = """
import sys
from tests.runtime import test_cluster_contents as here
from tff_hdp import runtime
runtime.set_context("cluster", workers=(sys.argv[1],))
here.total([here.chunk(here.client(i)) for i in range(8)], 1.0)
"""


def test_a_run_that_ended_left_nothing(host_worker, run_program):
    """Who asks the worker then for all it may have gets no client's examples."""
    with host_worker("--port=0") as host:
        # Another run's executor is the same one: it is not freed with this run.
        other = Connection(host.address, 0)
        other.open(10.0)
        done = run_program("-c", RUN, host.address)
        assert done.returncode == 0, done.stderr
        texts, type_ = [], tff.TensorType(np.str_)
        for number in range(300):
            ref = executor_pb2.ValueRef(id=str(number))
            request = executor_pb2.ComputeRequest(
                executor=other._executor, value_ref=ref
            )
            with contextlib.suppress(grpc.RpcError, TypeError):
                value = other._stub.compute(request).value
                texts.append(tff.framework.deserialize_value(value, type_)[0])
        other.close()
    assert not texts


def test_beyond_the_capacity_the_oldest_goes(worker, in_process_context, run_on):
    context, sent = worker(bytes_kept=60_000)
    clients = [chunk(client(number)) for number in range(6)]
    expected = run_on(in_process_context, total, clients, 1.0)
    kept = context.members[0].connection.contents
    # All at once are more than fits: what is in use stays, and goes afterwards.
    np.testing.assert_allclose(run_on(context, total, clients, 1.0), expected, 1e-6)
    assert 0 < kept.bytes <= 60_000

    def costs(number):
        before = sent()
        run_on(context, total, [clients[number]], 1.0)
        return sent() - before

    # Which of the six were last is up to threads; of these 2 and 3 stay.
    for number in (1, 2, 3):
        costs(number)
    assert costs(0) > 25_000
    assert costs(1) > 25_000
    assert costs(0) < 10_000
    assert costs(2) > 25_000  # for which 1 went
    assert costs(0) < 10_000
    assert costs(1) > 25_000


def test_without_capacity_nothing_is_kept(worker, in_process_context, run_on):
    context, sent = worker(bytes_kept=0)
    data = [chunk(client(1), client(2)), chunk(client(1))]
    expected = run_on(in_process_context, total, data, 1.0)
    for _ in range(2):
        before = sent()
        np.testing.assert_allclose(run_on(context, total, data, 1.0), expected, 1e-6)
        assert sent() - before > 2 * 25_600
        assert context.members[0].connection.contents.bytes == 0


def test_a_returned_worker_is_sent_all_again(host_worker, run_on):
    """What the one before it had is not taken for its own."""
    data = [chunk(client(1))]
    with host_worker("--port=0") as first, host_worker("--port=0") as second:
        context = ClusterContext([first.address, second.address])
        expected = run_on(context, total, data * 4, 1.0)
        first.end()
        run_on(context, total, data * 4, 1.0)
        port = first.address.rpartition(":")[2]
        with host_worker(f"--port={port}"):
            for _ in range(200):
                assert run_on(context, total, data * 4, 1.0) == expected
                if context.members[0].connection.contents.bytes:
                    break
            else:
                pytest.fail("the worker did not come back")
        context.close()


def test_many_pieces_are_put_together_in_order(worker, in_process_context, run_on):
    context, sent = worker()
    members = [client(number, 260) for number in range(contents.GROUP + 3)]
    data = [chunk(*members)]
    expected = run_on(in_process_context, total, data, 1.0)
    for _ in range(2):
        before = sent()
        np.testing.assert_allclose(run_on(context, total, data, 1.0), expected, 1e-6)
    assert sent() - before < 16_640 * len(members) / 5


class Worker:
    """What a worker holds, and what it was sent."""

    def __init__(self):
        self.held, self.sent, self._lock = {}, 0, threading.Lock()

    def create(self, value):
        with self._lock:
            self.sent += 1
            self.held[self.sent] = bytes(value.array.string_list.value[0])
            return self.sent

    def discard(self, *refs):
        for ref in refs:
            del self.held[ref]


def test_what_is_in_use_stays_and_is_sent_once_by_many_threads():
    worker = Worker()
    kept = contents.Contents(worker.create, worker.discard, capacity=30)
    texts = [bytes([65 + i]) * 10 for i in range(5)]
    wrong = []

    def use(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            chosen = [texts[i] for i in rng.integers(0, len(texts), 3)]
            with kept.hold(chosen) as refs:
                wrong.extend(
                    text
                    for ref, text in zip(refs, chosen, strict=True)
                    if worker.held.get(ref) != text
                )

    threads = [threading.Thread(target=use, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert kept.bytes == sum(map(len, worker.held.values())) <= 30
    assert len(set(worker.held.values())) == len(worker.held)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=5),
    width=st.sampled_from([1, 64]),
    dtype=st.sampled_from([np.uint8, np.float32, np.int32]),
    blank=st.booleans(),
    batched=st.booleans(),
)
def test_pieces_are_the_graph(sizes, width, dtype, blank, batched):
    rng = np.random.default_rng(sum(sizes))
    array = np.zeros([len(sizes), max(sizes), width], dtype)
    for row, size in zip(array, sizes, strict=True):
        row[:size] = 0 if blank else rng.integers(1, 100, [size, width])
    element = {"x": array, "y": np.float32(3.0), "z": array[:1]}
    dataset = tf.data.Dataset.from_tensors(element)
    if batched:
        dataset = tf.data.Dataset.from_tensor_slices(array).repeat(2).batch(2)
    graph = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset)
    ).numpy()
    pieces = contents.cut(graph)
    assert b"".join(piece.before + piece.kept for piece in pieces) == graph
    lengths = {len(piece.kept) for piece in pieces[:-1]}
    assert all(length >= contents.LEAST_BYTES for length in lengths)
    assert pieces[-1].kept == b""
