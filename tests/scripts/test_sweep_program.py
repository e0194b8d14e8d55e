"""The program of sweeps: what it refuses before anything runs, and a sweep for real."""

import json

import pandas as pd
import pytest

from tff_hdp.files import alone_in


def test_a_folder_that_another_sweep_is_at_is_refused(assert_refused, tmp_path):
    with alone_in(tmp_path):
        assert_refused(
            "scripts/sweep.py",
            [f"--out={tmp_path}", "--", "--privacy=none"],
            [str(tmp_path), "another program is at work in it"],
        )
    assert not list(tmp_path.iterdir())


def test_settings_that_the_program_refuses_start_nothing(assert_refused, tmp_path):
    assert_refused(
        "scripts/sweep.py",
        ["--grid=noise_multiplier=1,-1", f"--out={tmp_path}", "--", "--rounds=2"],
        ["noise_multiplier", "-1"],
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("grid", "given", "said"),
    [
        (
            "zoning_file=a/b.csv,a_b.csv",
            ["--zoning=file", "--noise_multiplier=1"],
            "zoning_file=a/b.csv seed=0 and zoning_file=a_b.csv seed=0 have the same "
            "folder",
        ),
        (
            "noise_multiplier=1,1.0",
            ["--rounds=1"],
            "noise_multiplier=1 seed=0 and noise_multiplier=1.0 seed=0 have the same "
            "settings",
        ),
    ],
)
def test_runs_that_are_not_apart_start_nothing(
    assert_refused, tmp_path, grid, given, said
):
    """One went on in the other's folder, or trained the same again."""
    arguments = [f"--grid={grid}", "--jobs=1", f"--out={tmp_path}", "--", *given]
    assert_refused("scripts/sweep.py", arguments, ["grid is", said])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--grid=seed=1,2"], "seed"),
        (["--grid=out=a,b"], "out"),
        (["--", "--seed=5"], "seed"),
        (["--", "--out=elsewhere"], "out"),
    ],
)
def test_what_the_sweep_says_itself_is_not_said_elsewhere(
    assert_refused, tmp_path, arguments, name
):
    given = ["--jobs=1", f"--out={tmp_path}", *arguments]
    assert_refused("scripts/sweep.py", given, [f"{name} is", "nowhere else"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seeds", ["", "1,1", "a", "\u00b2"])
def test_a_sweep_has_seeds(assert_refused, tmp_path, seeds):
    """Without any it ended with code 1, and said nothing."""
    given = ["--jobs=1", f"--out={tmp_path}", f"--seeds={seeds}"]
    assert_refused("scripts/sweep.py", given, ["--seeds is", "one or more, different"])


def test_a_sweep_trains(run_program, tmp_path):
    given = ["--program=gfl", "--seeds=0", f"--out={tmp_path}", "--", "--rounds=1"]
    given += ["--scheme=iid"]
    assert run_program("scripts/sweep.py", *given).returncode == 0
    runs = pd.read_csv(tmp_path / "runs.csv")
    assert runs["seed"].tolist() == [0] and runs["round"].tolist() == [1]
    assert "only against those who do not know the seed" in runs["seed fixes"][0]
    assert (tmp_path / "msd.png").exists()

    # A file that an editor changed does not say what the sweep tells.
    path = tmp_path / "seed=0" / "privacy.json"
    stated = json.loads(path.read_text())
    stated["accounts"][0]["epsilon_rdp"] /= 2
    path.write_text(json.dumps(stated))
    path = tmp_path / "seed=0" / "metrics.csv"
    rows = pd.read_csv(path)
    rows[["epsilon", "epsilon_rdp"]] /= 2
    rows.to_csv(path, index=False)
    assert run_program("scripts/sweep.py", *given).returncode == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "runs.csv"), runs)

    # Nor does a run that began with other settings count for those that it names.
    path = tmp_path / "seed=0" / "config.json"
    record = json.loads(path.read_text())
    record["flags"]["sigma_g"] = 100.0
    path.write_text(json.dumps(record))
    result = run_program("scripts/sweep.py", *given, "--sigma_g=100")
    assert result.returncode == 1 and "sigma_g is 100" in result.stderr
    assert pd.read_csv(tmp_path / "runs.csv").equals(runs)
