"""What the tests of runtimes share: contexts, and deep equality."""

import collections

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.core.backends.native import (
    compiler as native_compiler,
)

from tff_hdp.runtime import in_process
from tff_hdp.runtime.cluster import ClusterContext
from tff_hdp.runtime.native import NativeWorker


@pytest.fixture(scope="session")
def cluster_context(host_worker):
    """A cluster of two workers on this machine."""
    with host_worker("--port=0") as first, host_worker("--port=0") as second:
        context = ClusterContext([first.address, second.address])
        yield context
        context.close()
        # Whatever the tests sent them, the workers still stand.
        assert [first.process.poll(), second.process.poll()] == [None, None]


@pytest.fixture(scope="session")
def agree(native_plain_context, in_process_context, cluster_context):
    """Runs a program on every runtime and asserts that the others equal TFF's own."""
    others = {"in_process": in_process_context, "cluster": cluster_context}

    def check(program, *, times=1, **tolerances):
        def under(context):
            with tff.framework.get_context_stack().install(context):
                return program()

        expected = under(native_plain_context)
        for runtime in list(others) * times:
            assert_same(under(others[runtime]), expected, path=runtime, **tolerances)

    return check


@pytest.fixture(scope="session")
def agree_twice(agree):
    """Calls a computation twice on each: nothing of a call may be left for the next."""
    return lambda computation, *arguments: agree(
        lambda: computation(*arguments), times=2
    )


@pytest.fixture(scope="session")
def native_plain_context(tmp_path_factory):
    """TFF's worker; secure sums become plain ones, as in `tff.backends.test`."""
    worker = NativeWorker(log_file=tmp_path_factory.mktemp("worker") / "log")

    def compile_(computation):
        plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
        return native_compiler.desugar_and_transform_to_native(plain)

    yield tff.framework.SyncExecutionContext(
        tff.framework.ResourceManagingExecutorFactory(worker.executor),
        compile_,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )
    worker.close()


@pytest.fixture(scope="session")
def in_process_context():
    return in_process.create_in_process_context(clients_at_once=2)


@pytest.fixture
def context():
    """A new in-process context, nobody's default."""
    return in_process.create_in_process_context(clients_at_once=2)


@pytest.fixture
def installed(context):
    with tff.framework.get_context_stack().install(context):
        yield context


@pytest.fixture(scope="session")
def run_on():
    """Calls a computation under a context."""

    def run(context, computation, *arguments):
        with tff.framework.get_context_stack().install(context):
            return computation(*arguments)

    return run


@pytest.fixture(scope="session")
def same():
    """Asserts equality of containers, dtypes, shapes, and values to a tolerance."""
    return assert_same


@pytest.fixture(scope="session")
def run_python(run_program):
    """Runs a program in a process of its own and returns what it printed."""

    def run(program):
        done = run_program("-c", program)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def assert_same(actual, expected, path="result", rtol=2e-5, atol=1e-6):
    def recurse(actual, expected, step):
        assert_same(actual, expected, f"{path}{step}", rtol, atol)

    if isinstance(expected, tf.data.Dataset):
        assert isinstance(actual, tf.data.Dataset), path
        assert actual.element_spec == expected.element_spec, path
        recurse(
            list(actual.as_numpy_iterator()), list(expected.as_numpy_iterator()), ""
        )
        return
    assert type(actual) is type(expected), f"{path}: {type(actual)}"
    if attrs.has(type(expected)):
        actual, expected = (attrs.asdict(x, recurse=False) for x in (actual, expected))
    if isinstance(expected, collections.abc.Mapping):
        assert list(actual) == list(expected), path
        for key in expected:
            recurse(actual[key], expected[key], f"[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), path
        for i, pair in enumerate(zip(actual, expected, strict=True)):
            recurse(*pair, f"[{i}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype, path
        assert actual.shape == expected.shape, path
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(actual, expected, rtol, atol, err_msg=path)
        else:
            np.testing.assert_array_equal(actual, expected, err_msg=path)
    else:
        assert actual == expected, path
