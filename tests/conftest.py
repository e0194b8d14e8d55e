import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="session")
def native_worker(tmp_path_factory):
    """One TFF worker for the session, with a context on it."""
    from tff_hdp.runtime.native import NativeWorker, create_native_context

    worker = NativeWorker(log_file=tmp_path_factory.mktemp("worker") / "log")
    yield worker, create_native_context(worker)
    worker.close()


@pytest.fixture
def native_context(native_worker):
    """TFF's own worker as the default context, whatever the test before set."""
    import tensorflow_federated as tff

    worker, context = native_worker
    tff.framework.set_default_context(context)
    return worker


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def data_dir():
    """The shared data packs, or skip."""
    given = os.environ.get("TFF_HDP_DATA")
    path = pathlib.Path(given) if given else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no data packs: set TFF_HDP_DATA to their folder")
    return path
