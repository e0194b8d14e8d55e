"""CSVs of attacks: their settings, what is kept from call to call, and seeds."""

import collections
import json

import pandas as pd
import pytest

from scripts.papers import result_files
from scripts.papers.attacks import commands, job, rows
from tff_hdp.attacks import run
from tff_hdp.errors import FileError

ATTACKS = result_files.RESULTS / "attacks"
# Whose other seeds its page says were not run.
ONE_SEED = ("table4_cifar100",)
NAME = "update_difference"  # of two attacks


def made(folder, seeds, **columns):
    """The attacks of a CSV, each with a row that says no more than that."""
    jobs = job.jobs_of(NAME, seeds, folder)
    for each in jobs:
        row = {"privacy": each.config.privacy, "auc": each.config.seed / 4, **columns}
        run.write(each.config, [row])
    return jobs


@pytest.mark.parametrize("name", commands.CSVS)
def test_a_csv_is_of_these_very_attacks(name):
    """A command that was changed has no rows; a row has the commit that made it."""
    jobs = job.jobs_of(name, [0], ATTACKS)
    found = result_files.read(ATTACKS / f"{name}.csv", {"digest": str})
    asked = [each.digest for each in jobs]
    assert len({*asked}) == len(asked)
    for _, own in found.groupby("seed"):
        assert list(dict.fromkeys(own["digest"])) == asked
    counts = collections.Counter(found["seed"])
    assert len({*counts.values()}) == 1
    assert {*counts} == ({0} if name in ONE_SEED else {0, 1, 2})
    assert found["git_commit"].str.fullmatch("[0-9a-f]{40}").all()


def test_every_csv_has_its_command():
    assert {path.stem for path in ATTACKS.glob("*.csv")} == {*commands.CSVS}
    assert {name for names in commands.SEVERAL.values() for name in names} <= {
        *commands.CSVS
    }


def test_rows_of_other_seeds_stay_and_of_other_settings_go(tmp_path, monkeypatch):
    path = rows.write(NAME, made(tmp_path / "one", [0, 2]), tmp_path)
    assert pd.read_csv(path)["seed"].tolist() == [0, 0, 2, 2]
    assert pd.read_csv(path)["privacy"].tolist() == ["none", "hdp"] * 2
    rows.write(NAME, made(tmp_path / "two", [1, 2], auc=0.75), tmp_path)
    both = pd.read_csv(path)
    assert both["seed"].tolist() == [0, 0, 1, 1, 2, 2]
    assert both["auc"].tolist() == [0, 0, 0.75, 0.75, 0.75, 0.75]
    other = [{**settings, "victims": 3} for settings in commands.CSVS[NAME]]
    monkeypatch.setitem(commands.CSVS, NAME, other)
    rows.write(NAME, made(tmp_path / "three", [1]), tmp_path)
    assert pd.read_csv(path)["seed"].tolist() == [1, 1]


def test_settings_that_rows_lack_are_added(tmp_path):
    path = rows.write(NAME, made(tmp_path, [0]), tmp_path)
    found = pd.read_csv(path)
    # z, which only one of the two is given.
    assert found["noise_multiplier"].tolist() == [1.0, 0.05]
    path = rows.write(NAME, made(tmp_path, [0], noise_multiplier=7), tmp_path)
    assert pd.read_csv(path)["noise_multiplier"].tolist() == [7, 7]


def test_nothing_made_writes_nothing(tmp_path):
    assert rows.write(NAME, job.jobs_of(NAME, [0], tmp_path), tmp_path) is None
    assert not (tmp_path / "attacks").exists()


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"seed": 1}),
        ("config.json", {"victims": 21}),
        ("config.json", {"git_commit": None}),
        ("config.json", None),
        ("rows.json", []),
        ("rows.json", None),
    ],
)
def test_a_folder_of_something_else_is_not_finished(tmp_path, file, change):
    first, second = made(tmp_path, [0])
    assert first.is_finished and second.is_finished
    path = first.path / file
    if change is None:
        path.write_text(path.read_text()[:-3])
    else:
        before = json.loads(path.read_text())
        path.write_text(json.dumps({**before, **change} if change else change))
    assert not first.is_finished and second.is_finished
    path.unlink()
    assert not first.is_finished


def test_a_setting_that_is_newer_changes_nothing_at_its_default(tmp_path, monkeypatch):
    first, _ = made(tmp_path, [0])
    digest, path = first.digest, first.path / "config.json"
    before = json.loads(path.read_text())
    assert before.pop("restarts") == 1
    path.write_text(json.dumps(before))
    assert first.is_finished
    monkeypatch.setitem(job._DEFAULTS, "restarts", 2)
    assert first.digest != digest and not first.is_finished


def test_seeds_become_mean_and_spread(tmp_path):
    path = rows.write(NAME, made(tmp_path / "a", [0, 1, 2]), tmp_path)
    found = rows.over_seeds(path)
    assert found["privacy"].tolist() == ["none", "hdp"]
    assert found["auc"].tolist() == [0.25, 0.25]
    assert found["auc_sd"].tolist() == [0.25, 0.25]
    text = path.read_text()
    for broken in (text.replace("hdp", "cdp", 1), text[: text.rindex("hdp")]):
        path.write_text(broken)
        with pytest.raises(FileError, match=r"other rows for one seed|within a line"):
            rows.over_seeds(path)
    path.write_text("auc,seed\n0.5,0\n")
    with pytest.raises(FileError, match="lacks columns digest, git_commit"):
        rows.over_seeds(path)


@pytest.mark.slow
def test_what_no_noise_moves_comes_out_again(run_program, tmp_path):
    """Noise of rounds is fresh; victims and weights are the seed's."""
    jobs = job.jobs_of("super_node", [1], tmp_path)
    for each in jobs:
        assert run_program(*each.command[1:]).returncode == 0
        assert each.is_finished
    new = pd.read_csv(rows.write("super_node", jobs, tmp_path))
    old = pd.read_csv(ATTACKS / "super_node.csv").query("seed == 1")
    still = new["privacy"] != "ldp"
    assert still.sum() == 3
    columns = [c for c in new if c != "git_commit"]
    pd.testing.assert_frame_equal(
        new.loc[still, columns],
        old.reset_index(drop=True).loc[still, columns],
        rtol=1e-4,
    )
