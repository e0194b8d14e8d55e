"""Workers die, come back, fail and run out; the round's result stays the same."""

import math
import os
import signal
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp import runtime
from tff_hdp.errors import ArgumentError
from tff_hdp.runtime.cluster import ClusterContext, ClusterError
from tff_hdp.runtime.cluster.connection import Connection

CLIENT_INTS = tff.FederatedType(np.int32, tff.CLIENTS)
CLIENTS = list(range(1, 13))


@tff.tensorflow.computation(np.int32, np.float32)
def slow_work(seed, start):
    """Takes long enough for a worker to be killed in the middle of it."""
    noise = tf.random.stateless_normal([64], [seed, 1])
    rounds = 10_000
    _, value = tf.while_loop(
        lambda i, _: i < rounds,
        lambda i, value: (i + 1, tf.sin(value + noise)),
        (0, start + noise),
    )
    return tf.reduce_sum(value)


@tff.federated_computation(CLIENT_INTS, tff.FederatedType(np.float32, tff.SERVER))
def slow_round(seeds, start):
    everywhere = tff.federated_broadcast(start)
    values = tff.federated_map(slow_work, (seeds, everywhere))
    return tff.federated_mean(values), values


@tff.federated_computation(CLIENT_INTS)
def doubled(values):
    double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)
    return tff.federated_map(double, values)


@pytest.fixture
def three(host_worker):
    """A cluster of three workers that a test may kill, and their hosts."""
    with (
        host_worker("--port=0") as first,
        host_worker("--port=0") as second,
        host_worker("--port=0") as third,
    ):
        hosts = first, second, third
        yield ClusterContext([host.address for host in hosts]), hosts


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


class TestDeath:
    def test_in_the_middle_of_a_round(self, three, in_process_context, run_on, same):
        context, hosts = three
        expected = run_on(in_process_context, slow_round, CLIENTS, 0.5)
        victim, interrupted = context.members[1], []

        def kill_when_busy():
            until(lambda: victim.completed >= 1 and victim.in_flight >= 1)
            interrupted.append(victim.in_flight)
            os.kill(hosts[1].worker_pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_when_busy)
        killer.start()
        actual = run_on(context, slow_round, CLIENTS, 0.5)
        killer.join()
        assert interrupted and not victim.is_up
        assert [member.is_up for member in context.members] == [True, False, True]
        assert sum(member.completed for member in context.members) == len(CLIENTS)
        same(actual, expected)
        # The host of a dead worker ends as well, and the next round goes on.
        assert hosts[1].process.wait(timeout=10) == 1
        done = victim.completed
        same(run_on(context, slow_round, CLIENTS, 0.5), expected)
        assert victim.completed == done

    def test_who_interrupts_a_silent_worker_does_not_wait_for_it(
        self, host_worker, run_on
    ):
        with host_worker("--port=0") as host:
            context = ClusterContext([host.address])
            assert run_on(context, doubled, [1, 2]) == [2, 4]
            os.kill(host.worker_pid, signal.SIGSTOP)
            interrupt = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                run_on(context, doubled, CLIENTS)
            # A connection that is silent counts as lost after a minute.
            assert time.monotonic() - began < 30
            os.kill(host.worker_pid, signal.SIGCONT)

            def answers():
                try:
                    return run_on(context, doubled, [1, 2]) == [2, 4]
                except ClusterError:
                    return False

            until(answers)

    def test_of_all_workers_is_one_line_naming_them(self, three, run_on):
        context, hosts = three
        assert run_on(context, doubled, [1, 2]) == [2, 4]
        for host in hosts:
            host.end()
        with pytest.raises(ClusterError, match=r"^all workers were lost") as error:
            run_on(context, doubled, [1, 2])
        for host in hosts:
            assert host.address in str(error.value)
        assert "\n" not in str(error.value)

    def test_a_worker_that_comes_back_takes_part(self, three, host_worker, run_on):
        context, hosts = three
        run_on(context, doubled, CLIENTS)
        hosts[0].end()
        run_on(context, doubled, CLIENTS)
        returned = context.members[0]
        assert not returned.is_up
        port = hosts[0].address.rpartition(":")[2]
        with host_worker(f"--port={port}"):
            done = returned.completed

            def takes_part():
                assert run_on(context, doubled, CLIENTS) == [2 * c for c in CLIENTS]
                return returned.completed > done

            until(takes_part)


# Ends in a forked process as far as Python does, and goes on in the other.
FORK = """
import atexit, os, signal
import numpy as np, tensorflow_federated as tff
from tff_hdp import runtime

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
    return tff.federated_sum(x)

runtime.set_context({arguments})
assert total([1, 2, 3]) == 6
child = os.fork()
signal.alarm(60)
if not child:
    atexit._run_exitfuncs()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert total([1, 2, 3]) == 6
print("done")
"""


@pytest.mark.parametrize("name", ["native", "cluster"])
def test_a_forked_process_leaves_the_workers_to_the_other(
    name, host_worker, run_python
):
    with host_worker("--port=0") as host:
        workers = (host.address,) if name == "cluster" else ()
        program = FORK.format(arguments=f"{name!r}, workers={workers!r}")
        assert run_python(program) == "done"


class TestWork:
    def test_is_spread(self, cluster_context, run_on):
        before = [member.completed for member in cluster_context.members]
        run_on(cluster_context, slow_round, CLIENTS, 0.0)
        after = [member.completed for member in cluster_context.members]
        assert min(np.subtract(after, before)) >= 2

    def test_that_fails_is_not_tried_elsewhere(self, cluster_context, run_on):
        @tff.tensorflow.computation(np.int32)
        def refuse_three(x):
            with tf.control_dependencies([tf.debugging.assert_none_equal(x, 3)]):
                return tf.identity(x)

        @tff.federated_computation(CLIENT_INTS)
        def compute(values):
            return tff.federated_map(refuse_three, values)

        with pytest.raises(grpc.RpcError, match="assert"):
            run_on(cluster_context, compute, [1, 2, 3])
        assert all(member.is_up for member in cluster_context.members)
        assert run_on(cluster_context, compute, [1, 2]) == [1, 2]

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ([], "returned 0 values; allowed: 1"),
            ([np.int32(1), np.int32(2)], "returned 2 values; allowed: 1"),
            ([np.float32(1)], "expected a value of type int32"),
        ],
    )
    def test_that_comes_back_as_another_value_is_refused(
        self, cluster_context, run_on, monkeypatch, answer, message
    ):
        types = [tff.TensorType(value.dtype, value.shape) for value in answer]
        wrong, _ = tff.framework.serialize_value(answer, tff.StructType(types))
        monkeypatch.setattr(Connection, "call", lambda *_: wrong)
        with pytest.raises(TypeError, match=message):
            run_on(cluster_context, doubled, [1, 2])

    def test_noise_is_fresh_for_every_client_round_and_worker(
        self, cluster_context, run_on
    ):
        noise = tff.tensorflow.computation(lambda: tf.random.normal([]))

        @tff.federated_computation(CLIENT_INTS)
        def compute(values):
            at_clients = tff.federated_eval(noise, tff.CLIENTS)
            return tff.federated_map(
                tff.tensorflow.computation(lambda v, n: n, (np.int32, np.float32)),
                (values, at_clients),
            )

        drawn = []
        for _ in range(3):
            tf.random.set_seed(1)
            drawn += run_on(cluster_context, compute, CLIENTS * 4)
        assert len(set(drawn)) == len(drawn)
        # 144 draws: the sample's standard deviation is off by 0.06 on average.
        assert np.std(drawn) == pytest.approx(1.0, abs=0.3)
        assert np.mean(drawn) == pytest.approx(0.0, abs=0.4)

    def test_leaves_nothing_at_the_workers(
        self, host_worker, run_on, resident_megabytes
    ):
        vector = tff.TensorType(np.float32, [2**18])
        add = tff.tensorflow.computation(lambda x, y: x + y, [vector] * 2)

        @tff.federated_computation(
            tff.FederatedType(vector, tff.CLIENTS),
            tff.FederatedType(vector, tff.SERVER),
        )
        def compute(own, common):
            values = tff.federated_map(add, (own, tff.federated_broadcast(common)))
            return tff.federated_sum(values)

        megabyte = np.ones([2**18], np.float32)
        with host_worker("--port=0") as host:
            context = ClusterContext([host.address])
            for i in range(40):
                run_on(context, compute, [megabyte] * 4, megabyte)
                if i == 9:
                    early = resident_megabytes(host.worker_pid)
            # 30 calls sent 150 MB of arguments and made 120 MB of results.
            assert resident_megabytes(host.worker_pid) < early + 60


class TestSetContext:
    def test_runs_on_the_workers_named(self, cluster_context):
        addresses = [member.address for member in cluster_context.members]
        runtime.set_context("cluster", workers=addresses)
        assert doubled([4]) == [8]
        context = tff.framework.get_context_stack().current
        assert sum(member.completed for member in context.members) == 1
        runtime.set_context("cluster", workers=addresses)
        assert tff.framework.get_context_stack().current is context

    def test_names_a_worker_that_does_not_answer(self, cluster_context):
        answering = cluster_context.members[0].address
        message = r"^no TFF worker answers at 127.0.0.1:1: [^\n]+$"
        with pytest.raises(ConnectionError, match=message):
            ClusterContext([answering, "127.0.0.1:1"], start_timeout=0.5)

    @pytest.mark.parametrize(
        ("workers", "message"),
        [
            ((), "workers is empty; allowed: host:port,host:port"),
            (("here",), r"workers\[0\] is here; allowed: host:port"),
            ((":80",), r"workers\[0\] is :80; allowed: host:port"),
            (("b:1", "a:0"), r"workers\[1\] is a:0; allowed: host:port"),
            (("a:70000",), r"workers\[0\] is a:70000; allowed: host:port"),
            (("a:1", "a:1"), "workers is a:1,a:1; allowed: each address once"),
        ],
    )
    def test_names_a_bad_address(self, workers, message):
        with pytest.raises(ArgumentError, match=f"^{message}"):
            runtime.set_context("cluster", workers=workers)

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ({"workers": "a:1"}, "workers is a:1; allowed: a sequence"),
            ({"workers": [80]}, r"workers\[0\] is 80; allowed: host:port"),
            ({"clients_per_worker": math.nan}, "clients_per_worker is nan"),
            ({"clients_per_worker": 0}, "clients_per_worker is 0"),
            ({"bytes_kept": -1}, "bytes_kept is -1"),
            ({"start_timeout": math.nan}, "start_timeout is nan; allowed: a finite"),
        ],
    )
    def test_names_a_bad_option(self, option, message):
        with pytest.raises(ArgumentError, match=f"^{message}"):
            ClusterContext(**{"workers": ["127.0.0.1:1"]} | option)

    def test_workers_are_only_for_the_cluster(self):
        message = "workers is a:1,b:2; allowed: empty, unless runtime is cluster"
        with pytest.raises(ArgumentError, match=f"^{message}"):
            runtime.set_context("in_process", workers=("a:1", "b:2"))
