import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    """The folder of local packs: TFF_HDP_DATA, else ../shared/data."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("TFF_HDP_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no data packs: {folder} is not a folder (set TFF_HDP_DATA)")
    return folder


@pytest.fixture
def need(data_dir):
    """Returns the path of a pack, or skips the test without it."""

    def path_of(file):
        if not (data_dir / file).exists():
            pytest.skip(f"{file} is not in {data_dir}")
        return data_dir / file

    return path_of


@pytest.fixture
def no_network(monkeypatch):
    """Every request fails at once, as on a machine without a network."""

    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
