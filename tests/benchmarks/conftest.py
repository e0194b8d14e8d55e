"""Benchmarks are programs: what they import lies beside them."""

import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmarks_on_path():
    """Has a module's tests import what programs of benchmarks/ do."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
