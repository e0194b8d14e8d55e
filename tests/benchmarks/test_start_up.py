"""The demo's start is timed as a user waits for it."""

import importlib
import subprocess

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")
STUB = """
import pathlib, sys, time
out = pathlib.Path(sys.argv[1].removeprefix("--out=")) / "none"
out.mkdir(parents=True)
(out / "metrics.csv").write_text("round,accuracy\\n")
time.sleep(0.4)
(out / "metrics.csv").write_text("round,accuracy\\n1,0.5\\n")
time.sleep(0.4)
sys.exit({status})
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "scripts").mkdir()

    def with_status(status):
        (tmp_path / "scripts" / "demo.py").write_text(STUB.format(status=status))
        return tmp_path

    return with_status


def test_the_first_round_and_the_end_are_told_apart(checkout):
    first, whole = importlib.import_module("start_up").timed(checkout(0))
    assert first >= 0.4
    assert whole >= first + 0.35


def test_a_demo_that_fails_is_no_measurement(checkout):
    with pytest.raises(subprocess.CalledProcessError):
        importlib.import_module("start_up").timed(checkout(3))
