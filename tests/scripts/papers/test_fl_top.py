"""The command lines of FL-TOP: a table regenerated, bad flags refused."""

import pandas as pd
import pytest


def test_one_command_regenerates_a_table_and_again_resumes_it(run_program, tmp_path):
    arguments = (
        *("--what=table2", "--num_clients=40", "--clients_per_round=8", "--rounds=1"),
        *("--schemes=fl_top,fl_std,fl_top_dp", "--ratios=0.05"),
        *("--noise_multiplier=2", f"--out={tmp_path}"),
    )
    first = run_program("scripts/papers/fl_top/reproduce.py", *arguments)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "table2"
    table = pd.read_csv(folder / "table.csv")
    assert table["scheme"].tolist() == ["FL-TOP", "FL-TOP-DP", "FL-STD"]
    assert table["epsilon_paper"].notna().tolist() == [False, True, False]
    assert (folder / "table.txt").read_text().strip() in first.stdout
    for figure in ("balanced_accuracy.png", "figure1.png"):
        assert (folder / figure).stat().st_size > 1000
    again = run_program("scripts/papers/fl_top/reproduce.py", *arguments)
    assert again.returncode == 0, again.stderr
    pd.testing.assert_frame_equal(pd.read_csv(folder / "table.csv"), table)


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("fl_top.py", ["--scheme=fl_top", "--clip_norm=1"], ["--clip_norm", "fl_top"]),
        ("fl_top.py", ["--ratio=2"], ["--ratio", "2", "(0, 1]"]),
        ("reproduce_fl_top.py", ["--ratios=few"], ["--ratios", "few"]),
        ("reproduce_fl_top.py", ["--schemes=fl_low"], ["--schemes", "fl_low"]),
        ("reproduce_fl_top.py", ["--schemes="], ["--schemes", "empty"]),
        ("reproduce_fl_top.py", ["--what=table3"], ["--what", "table1, table2"]),
        ("reproduce_fl_top.py", ["--scheme=fl_std"], ["--scheme", "--schemes"]),
        ("reproduce_fl_top.py", ["--rounds=0"], ["--rounds", "0"]),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(assert_refused, script, arguments, named):
    assert_refused(f"scripts/{script}", arguments, named)
