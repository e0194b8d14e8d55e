"""The command lines of FL-TOP: a table regenerated, bad flags refused."""

import numpy as np
import pandas as pd
import pytest

from scripts.papers.fl_top import figures
from tff_hdp.simulation import experiment
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.public import top_k
from tff_hdp.systems.fl_top.setup import read_setup


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
        ("papers/fl_top/reproduce.py", ["--ratios=few"], ["--ratios", "few"]),
        ("papers/fl_top/reproduce.py", ["--schemes=fl_low"], ["--schemes", "fl_low"]),
        ("papers/fl_top/reproduce.py", ["--schemes="], ["--schemes", "empty"]),
        ("papers/fl_top/reproduce.py", ["--what=table3"], ["--what", "table1, table2"]),
        ("papers/fl_top/reproduce.py", ["--scheme=fl_std"], ["--scheme", "--schemes"]),
        ("papers/fl_top/reproduce.py", ["--rounds=0"], ["--rounds", "0"]),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(assert_refused, script, arguments, named):
    assert_refused(f"scripts/{script}", arguments, named)


def test_figure_1_compares_the_same_number_of_weights(tmp_path):
    for scheme, ratio in (("fl_std", 1.0), ("fl_top", 0.05)):
        experiment.run(
            FlTopConfig(
                task="digits",
                num_clients=40,
                clients_per_round=8,
                rounds=1,
                seed=5,
                scheme=scheme,
                ratio=ratio,
                out=str(tmp_path / scheme),
            )
        )
    spread = figures.weights_figure(
        tmp_path / "fl_std", tmp_path / "fl_top", tmp_path / "figure1.png"
    )
    assert (tmp_path / "figure1.png").stat().st_size > 1000
    # Each at the Top-K that its own public gradients chose, K of FL-TOP.
    for scheme, name in (("fl_std", "FL-STD"), ("fl_top", "FL-TOP")):
        _, scores = read_setup(tmp_path / scheme)
        with np.load(tmp_path / scheme / "weights.npz") as saved:
            chosen = saved["final"][top_k(scores, 120)]
        assert spread[name] == pytest.approx(np.std(chosen))
