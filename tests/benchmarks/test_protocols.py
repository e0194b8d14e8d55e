import csv
import json

import pytest

SCRIPT = "benchmarks/protocols.py"


def test_one_cell_as_json(run_program):
    result = run_program(
        SCRIPT, "--clients=8", "--zones=2", "--model_size=500", "--json"
    )
    assert result.returncode == 0, result.stderr
    row = json.loads(result.stdout)
    assert row["messages"] == 8 * 7
    assert row["zone_size"] == 4
    assert 0 < row["critical_path_seconds"] < row["total_seconds"]


def test_one_cell_as_text(run_program):
    result = run_program(SCRIPT, "--protocol=election", "--clients=2", "--zones=1")
    assert result.returncode == 0, result.stderr
    lines = dict(line.split() for line in result.stdout.splitlines())
    assert lines["protocol"] == "election"
    assert lines["messages"] == "18"  # each of two signs nine


def test_the_grid_leaves_a_table_and_a_figure(run_program, tmp_path):
    # The same main, on a grid cut down to what a test has time for.
    code = (
        "import runpy, sys\n"
        "from benchmarks import protocol_costs as costs\n"
        "costs.GRID_CLIENTS, costs.GRID_ZONES = (4, 10), (1, 5, 10)\n"
        "costs.GRID_MODEL_SIZES, costs.GRID_DROPOUTS = (100000,), (0.05,)\n"
        "costs.LARGEST_ELECTION = 2\n"
        f"sys.argv = ['bench', '--full', '--out={tmp_path}']\n"
        f"runpy.run_path({SCRIPT!r}, run_name='__main__')\n"
    )
    result = run_program("-c", code)
    assert result.returncode == 0, result.stderr
    # Ten zones of one cannot mask with anybody.
    assert "2 cells left out" in result.stdout
    with (tmp_path / "protocols_costs.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {(row["protocol"], row["clients"], row["zones"]) for row in rows}
    assert found == {
        ("election", "10", "5"),
        ("election", "10", "10"),
        *((p, k, "1") for p in ("bonawitz", "graph") for k in ("4", "10")),
        *((p, "10", "5") for p in ("bonawitz", "graph")),
    }
    assert (tmp_path / "protocols_costs.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # What a `Cell` refuses, absl, and a round.
        (["--zones=0"], ["--zones", "0", "1..100"]),
        (["--clients=many"], ["--clients", "many", "int"]),
        (["--zones=25", "--dropout=0.7"], ["--dropout", "0.7", "threshold"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(assert_refused, arguments, words):
    assert_refused(SCRIPT, arguments, words)
