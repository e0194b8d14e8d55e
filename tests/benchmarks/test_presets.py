"""A preset's time is estimated from rounds as its script runs them."""

import json
import pathlib
import subprocess
import sys

import pandas as pd
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


def test_rows_of_a_table_that_cost_otherwise_are_rows_of_their_own():
    import presets

    found = presets._presets(["fl_top"])
    table = [name for name in found if name.startswith("fl_top/table1_full")]
    of_table = [name.removeprefix("fl_top/table1_full") for name in table]
    assert of_table == ["", ", r = 10 %", ", all weights"]


def test_a_preset_without_its_data_says_so(run_program, tmp_path):
    given = ("--preset=gfl/mnist_none", f"--data_dir={tmp_path / 'nowhere'}")
    found = run_program("benchmarks/presets.py", *given)
    assert found.returncode == 0, found.stderr
    left_out = json.loads(found.stdout.splitlines()[-1])["left_out"]
    assert "nowhere', which is not a folder" in left_out


# Estimates two presets, of which one needs no data.
CODE = """
import sys
sys.path[0] = "benchmarks"
import presets
from tff_hdp import cli
presets._presets = lambda papers: [f"gfl/{paper}" for paper in papers]
presets._SYSTEMS |= {"figure2_none": "gfl", "mnist_none": "gfl"}
presets.define_flags()
sys.exit(cli.run(presets.main))
"""


@pytest.mark.slow
def test_what_has_no_data_is_left_out_of_the_rows(run_program, tmp_path):
    csv = tmp_path / "presets.csv"
    given = (f"--data_dir={tmp_path / 'nowhere'}", f"--csv={csv}", "--rounds=3")
    papers = "--papers=mnist_none,figure2_none"
    found = run_program("-c", CODE, *given, papers)
    assert found.returncode == 0, found.stderr
    assert "gfl/mnist_none left out: data_dir is" in found.stdout
    assert pd.read_csv(csv)["preset"].tolist() == ["gfl/figure2_none"]
    none = run_program("-c", CODE, *given, "--papers=mnist_none")
    assert none.returncode == 2 and "no preset has its data" in none.stderr
    assert pd.read_csv(csv)["preset"].tolist() == ["gfl/figure2_none"]


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
