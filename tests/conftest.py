import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="session")
def native_context(tmp_path_factory):
    """TFF's own worker as the default context, ended with the session."""
    from tff_hdp.runtime.native import set_native_context

    worker = set_native_context(log_file=tmp_path_factory.mktemp("worker") / "log")
    yield worker
    worker.close()


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
