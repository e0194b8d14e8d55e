"""The command lines of FL-TOP: a table regenerated, bad flags refused."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from scripts.papers.fl_top import trained, weights
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation import experiment
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.public import top_k
from tff_hdp.systems.fl_top.setup import read_setup

PRINTED = {
    ("0.005", "FL-TOP"): 0.82,
    ("0.005", "FL-TOP-DP"): 0.81,
    ("0.05", "FL-CS-DP"): 0.78,
    ("0.1", "FL-BASIC"): 0.81,
    ("1", "FL-STD-DP"): 0.56,
}


def test_a_row_is_printed_with_its_own_number():
    """Table 1 of the paper, looked up by hand."""
    study = trained.studies("full", ["table1"])["table1"]
    found = {line.key: line.printed for line in study.lines}
    assert len(found) == 20
    assert {key: found[key] for key in PRINTED} == PRINTED


def test_a_ratio_of_ones_own_has_nothing_printed():
    study = trained.studies("full", ["table2"], extra=[0.2])["table2"]
    own = [line for line in study.lines if line.label["r"] == "0.2"]
    assert [line.printed for line in own] == [None] * 6
    assert trained.printed("table2", "fl_cs", 0.2) is None
    assert trained.printed("table2", "fl_cs_dp", 0.05) == 0.69


def test_the_sweep_sees_no_private_example():
    study = trained.studies("reduced", ["sweep"])["sweep"]
    configs = [study.config(line, {}) for line in study.lines]
    assert {(c.task, c.public_data) for c in configs} == {("mnist", "held_out")}
    assert {c.scheme for c in configs} == set(FlTopConfig.choices["scheme"])


def test_every_row_takes_the_best_of_its_own_sweep(tmp_path):
    rows = [
        ("0.005", "FL-TOP", 0.1, "auto", 0.7),
        ("0.005", "FL-TOP", 0.3, "auto", 0.6),
        ("0.1", "FL-TOP", 0.1, "auto", 0.6),
        ("0.1", "FL-TOP", 0.3, "auto", 0.7),
        ("0.005", "FL-TOP-DP", 0.1, "auto", 0.5),
        ("0.005", "FL-TOP-DP", 0.1, "2", 0.7),
        ("0.005", "FL-TOP-DP", 0.1, "2", 0.4),
    ]
    path = tmp_path / "sweep.csv"
    columns = ["r", "scheme", "step", "S", "accuracy"]
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    whole = trained.sweep("reduced", ())
    labels = [dict(zip(columns, row[:4], strict=False)) for row in rows]
    lines = [dataclasses.replace(whole.lines[0], label=label) for label in labels]
    sweep = dataclasses.replace(whole, lines=lines)
    assert trained.chosen(path, sweep) == {
        "FL-TOP": {
            0.005: {"client_learning_rate": 0.1},
            0.1: {"client_learning_rate": 0.3},
        },
        "FL-TOP-DP": {0.005: {"client_learning_rate": 0.1, "clip_norm": "2"}},
    }
    with pytest.raises(ArgumentError, match="what is table1_own"):
        trained.chosen(tmp_path / "nothing.csv", sweep)
    # One that was interrupted has not tried all.
    lacking = f"lacks {len(whole.lines) - 6} of its lines"
    with pytest.raises(ArgumentError, match=lacking):
        trained.chosen(path, whole)


def test_a_ratio_that_was_not_swept_takes_the_settings_of_the_next(tmp_path):
    whole = trained.sweep("reduced", ())
    rows = pd.DataFrame([line.label for line in whole.lines]).assign(accuracy=0.5)
    rows.loc[(rows["r"] == "0.1") & (rows["step"] == 0.3), "accuracy"] = 0.6
    (tmp_path / "fl_top").mkdir()
    rows.to_csv(tmp_path / "fl_top" / "sweep_reduced.csv", index=False)
    own = trained.table1_own("reduced", [0.01], tmp_path)
    steps = {
        float(line.label["r"]): line.changes["client_learning_rate"]
        for line in own.lines
        if line.changes["scheme"] == "fl_top"
    }
    assert steps == {0.005: 0.03, 0.01: 0.03, 0.05: 0.3, 0.1: 0.3}


def test_what_did_best_stands_beside_the_best_with_another_step():
    rows = pd.DataFrame(
        [
            (0.05, "FL-TOP-DP", 0.1, "auto", 0.5),
            (0.05, "FL-TOP-DP", 0.1, "2", 0.8),
            ("0.05", "FL-TOP-DP", 0.3, "auto", 0.6),
            ("0.05", "FL-TOP-DP", 0.3, "2", 0.9),
            ("0.05", "FL-TOP-DP", 0.3, "2", 0.5),
        ],
        columns=["r", "scheme", "step", "S", "accuracy"],
    )
    (found,) = trained.best(rows).to_dict("records")
    assert found.pop("with another step") == pytest.approx(0.7)
    assert found == {
        **{"r": 0.05, "scheme": "FL-TOP-DP", "step": 0.1, "S": "2"},
        **{"accuracy": 0.8, "steps tried": 2},
    }


# Runs a program whose runs end at once; says which were asked for.
CODE = """
import runpy, sys
import pandas as pd
from scripts.papers import studies
from scripts.papers.fl_top import figures, trained
from scripts.parts import sweep_job, sweep_runs, sweep_tables

asked = []

def row(job):
    facts = {"digest": job.digest, "git_commit": "", "folder": "", "loss": 1.0}
    return {**job.settings, **facts, "best_balanced_accuracy": 0.5}

sweep_runs.run_jobs = lambda jobs, at_once: asked.extend(jobs) or []
sweep_job.Job.is_finished = property(lambda job: job in asked)
sweep_tables.table = lambda jobs: pd.DataFrame(map(row, asked))
studies.table = lambda path: [job.settings["r"] for job in asked]
trained.measure = lambda path, table: {}
figures.draw = lambda *_: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_ratio_of_ones_own_stays_in_the_csv_and_is_not_run_again(
    run_program, tmp_path
):
    flags = ("--what=table2", "--scale=tiny", "--seeds=0", "--schemes=fl_top")
    path = tmp_path / "fl_top" / "table2_tiny.csv"
    given = ("scripts/papers/fl_top/reproduce.py", *flags, f"--out={tmp_path}")
    for more, asked, rows in (
        (["--ratios=0.2"], ["0.2"], [0.2]),
        ([], ["0.01", "0.05", "0.1"], [0.01, 0.05, 0.1, 0.2]),
        (["--ratios=0.3,1"], ["0.3"], [0.01, 0.05, 0.1, 0.2, 0.3]),
    ):
        found = run_program("-c", CODE, *given, *more)
        assert found.returncode == 0, found.stderr
        assert str(asked) in found.stdout
        assert pd.read_csv(path)["r"].tolist() == rows


@pytest.mark.slow
def test_one_command_regenerates_a_table_and_again_resumes_it(run_program, tmp_path):
    arguments = (
        *("--what=table2", "--scale=tiny", "--seeds=2"),
        *("--schemes=fl_top,fl_std,fl_top_dp", "--ratios=0.05"),
        f"--out={tmp_path}",
    )
    first = run_program("scripts/papers/fl_top/reproduce.py", *arguments)
    assert first.returncode == 0, first.stderr
    table = pd.read_csv(tmp_path / "fl_top" / "table2_tiny.csv")
    assert table["scheme"].tolist() == ["FL-TOP", "FL-TOP-DP", "FL-STD"]
    assert table["epsilon_paper"].notna().tolist() == [False, True, False]
    assert table["top_k_spread"].notna().tolist() == [True, False, True]
    for name in ("fl_top_table2_tiny", "fl_top_table2_tiny_weights"):
        assert (tmp_path / "tiny" / f"{name}.png").stat().st_size > 1000
    again = run_program("scripts/papers/fl_top/reproduce.py", *arguments)
    assert again.returncode == 0, again.stderr
    again_table = pd.read_csv(tmp_path / "fl_top" / "table2_tiny.csv")
    pd.testing.assert_frame_equal(again_table, table)


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("fl_top.py", ["--scheme=fl_top", "--clip_norm=1"], ["--clip_norm", "fl_top"]),
        ("fl_top.py", ["--ratio=2"], ["--ratio", "2", "(0, 1]"]),
        ("papers/fl_top/reproduce.py", ["--ratios=few"], ["--ratios", "few"]),
        (
            "papers/fl_top/reproduce.py",
            ["--ratios=0.1234", "--schemes=fl_top", "--scale=tiny"],
            ["--ratios is 0.1234", "three significant digits"],
        ),
        ("papers/fl_top/reproduce.py", ["--schemes=fl_low"], ["--schemes", "fl_low"]),
        ("papers/fl_top/reproduce.py", ["--schemes="], ["--schemes", "empty"]),
        ("papers/fl_top/reproduce.py", ["--what=table3"], ["--what", "table2, table"]),
        (
            "papers/fl_top/reproduce.py",
            ["--what=sweep", "--ratios=0.05", "--scale=reduced"],
            ["--ratios is 0.05", "0.005, 0.1, 1 with what=sweep"],
        ),
        (
            "papers/fl_top/reproduce.py",
            ["--what=masked", "--schemes=fl_cs", "--scale=reduced"],
            ["--what is masked", "asked for"],
        ),
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
    picture = tmp_path / "figure1.png"
    weights.weights_figure([tmp_path / "fl_std"], [tmp_path / "fl_top"], picture)
    assert picture.stat().st_size > 1000
    # Each at the Top-K that its own public gradients chose.
    for scheme in ("fl_std", "fl_top"):
        _, scores = read_setup(tmp_path / scheme)
        with np.load(tmp_path / scheme / "weights.npz") as saved:
            chosen = saved["final"][top_k(scores, 24)]
        row = trained.measure(tmp_path / scheme, table="table2")
        assert row["top_k_spread"] == pytest.approx(np.std(chosen))
