import urllib.error
import urllib.request

import pytest


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
