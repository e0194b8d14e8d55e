"""The command line: help, bad flags, a run, a comparison, a report."""

import json
import time

import pytest


def test_help_is_quick_and_names_every_flag(start_program):
    began = time.monotonic()
    result = start_program("scripts/train.py", "--help")
    # About a second on an idle machine; tests may share theirs.
    assert time.monotonic() - began < 10
    assert result.returncode == 0
    for flag in (
        *("task", "model", "privacy", "alpha", "beta", "zones", "clients_per_round"),
        *("sampling", "rounds", "algorithm", "local_epochs", "batch_size"),
        *("client_optimizer", "client_learning_rate", "server_optimizer"),
        *("server_learning_rate", "clipping", "clip_norm", "estimator", "weighting"),
        *("noise_multiplier", "target_epsilon", "target_observer", "delta"),
        *("runtime", "seed", "data_dir", "out"),
    ):
        assert f"--{flag}:" in result.stdout or f"--[no]{flag}:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--privacy=dp"], ["--privacy", "dp", "hdp"]),
        (["--task=imagenet"], ["--task", "imagenet", "digits"]),
        (["--rounds=many"], ["--rounds", "many"]),
        (["--rounds=0", "--noise_multiplier=1"], ["--rounds", "0", ">= 1"]),
        (["--noise_multiplier=-1"], ["--noise_multiplier", "-1", "1e-6..1e6"]),
        (["--noise_multiplier=nan"], ["--noise_multiplier", "nan"]),
        ([], ["--noise_multiplier", "target_epsilon"]),
        (["--noise_multiplier=1", "--clip_norm=wide"], ["--clip_norm", "wide", "auto"]),
        (["--noise_multiplier=1", "--delta=2"], ["--delta", "2", "[1e-300, 1)"]),
        (["--zone=3"], ["zone", "--help"]),
        (["digits"], ["digits"]),
        (["--flagfile=nowhere.flags"], ["nowhere.flags"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(assert_refused, arguments, named):
    assert_refused("scripts/train.py", arguments, named)


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_plan_that_is_none_is_refused_before_there_is_a_folder(
    assert_refused, tmp_path, content
):
    path, out = tmp_path / "plan.json", tmp_path / "run"
    if content:
        path.write_text(content)
    assert_refused("scripts/train.py", [f"--plan={path}", f"--out={out}"], [str(path)])
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--zones=999"], ["--zones", "999", "1..200"]),
        (["--model=resnet"], ["--model", "resnet", "dnn"]),
        (["--task=mnist", "--data_dir=/nowhere"], ["/nowhere", "mnist"]),
    ],
)
def test_what_only_the_task_can_tell(run_program, tmp_path, arguments, named):
    out = f"--out={tmp_path}"
    result = run_program("scripts/train.py", "--noise_multiplier=1", *arguments, out)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert all(word in last for word in named), result.stderr


def test_demo_compares_the_four_modes_and_report_repeats_it(run_program, tmp_path):
    result = run_program(
        *("scripts/demo.py", "--rounds=2", "--num_clients=40"),
        *("--clients_per_round=10", "--zones=2", f"--out={tmp_path}"),
    )
    assert result.returncode == 0, result.stderr
    for word in ("none", "cdp", "hdp", "ldp", "eps aggregator", "delta", "neighbours"):
        assert word in result.stdout
    assert (tmp_path / "accuracy.png").stat().st_size > 1000
    assert str(tmp_path / "accuracy.png") in result.stdout
    table = (tmp_path / "table.csv").read_text()
    assert table.splitlines()[0] == (
        "mode,accuracy,eps super_node,eps aggregator,eps released_model,delta,rests on"
    )
    modes = [line.split(",")[0] for line in table.splitlines()[1:]]
    assert modes == ["none", "cdp", "hdp", "ldp"]
    seeds = {
        json.loads((tmp_path / mode / "config.json").read_text())["resolved"][
            "partition_seed"
        ]
        for mode in modes
    }
    assert len(seeds) == 1
    accounts = json.loads((tmp_path / "cdp" / "privacy.json").read_text())["accounts"]
    below = [r for r in accounts if r["observer"] != "released_model"]
    assert all(row["epsilon_rdp"] is None and row["assumptions"] for row in below)

    runs = ",".join(str(tmp_path / mode) for mode in modes)
    again = run_program(
        "scripts/report.py", f"--runs={runs}", f"--out={tmp_path / 'again'}"
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again" / "table.csv").read_text() == table


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--privacy=ldp"], ["--privacy", "ldp", "comparison"]),
        (
            ["--noise_multiplier=1", "--target_epsilon=8"],
            ["--noise_multiplier", "--target_epsilon"],
        ),
    ],
)
def test_what_a_comparison_does_not_take(run_program, arguments, named):
    result = run_program("scripts/demo.py", *arguments)
    assert result.returncode == 2
    assert all(word in result.stderr for word in named), result.stderr


def test_out_must_be_a_folder(run_program, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    result = run_program("scripts/train.py", "--noise_multiplier=1", f"--out={file}")
    assert result.returncode == 2
    assert str(file) in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_report_of_no_run_says_so(run_program, tmp_path):
    result = run_program(
        "scripts/report.py", f"--runs={tmp_path}", f"--out={tmp_path / 'out'}"
    )
    assert result.returncode == 2
    assert "no config.json" in result.stderr
