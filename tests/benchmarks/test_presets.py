"""A preset's time is estimated from rounds as its script runs them."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_on_path")
ROOT = pathlib.Path(__file__).parents[2]


def test_small_presets_are_left_out():
    import presets

    found = presets._presets(["udp_alg", "gfl"])
    assert {"udp_alg/2a", "gfl/figure2_hybrid"} < set(found)
    folder = ROOT / "scripts" / "papers"
    assert all((folder / f"{name}.flags").exists() for name in found)
    assert (folder / "udp_alg" / "2a_small.flags").exists()
    assert "udp_alg/2a_small" not in found


@pytest.mark.slow
def test_an_estimate_is_of_all_rounds():
    command = [sys.executable, ROOT / "benchmarks" / "presets.py", "--rounds=3"]
    done = subprocess.run(
        [*command, "--preset=gfl/figure2_none"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rounds"] == 1500
    assert 0 < found["seconds a round"] < found["seconds before"]
    whole = found["seconds before"] + 1500 * found["seconds a round"]
    assert found["minutes"] == pytest.approx(whole / 60)
