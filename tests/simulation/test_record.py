"""What a run began with, and whether another start may go on with it."""

import subprocess

import pytest

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation import record
from tff_hdp.simulation.record import LAYOUT, as_json, check_repeats, check_same
from tff_hdp.systems.hdp.config import HdpConfig


def began(config):
    """The record of a run that knew every setting but `online_rate`."""
    flags = as_json(config.to_dict())
    del flags["online_rate"]
    return {"layout": LAYOUT, "system": "hdp", "flags": flags}


def config(**changes):
    return HdpConfig(**{"noise_multiplier": 1.0, "out": "runs/one"} | changes)


def test_a_setting_newer_than_the_run_may_have_its_default():
    check_same(config(), began(config()))
    check_same(config(rounds=900), began(config()))
    with pytest.raises(ArgumentError, match=r"online_rate is 0\.9; allowed: 1\.0"):
        check_same(config(online_rate=0.9), began(config()))


def test_another_setting_is_refused():
    with pytest.raises(ArgumentError, match=r"zones is 5; allowed: None, with which"):
        check_same(config(zones=5), began(config()))


@pytest.mark.parametrize("lacking", ["system", "flags", "resolved"])
def test_a_journal_that_does_not_say_what_a_run_began_with_is_refused(
    tmp_path, lacking
):
    whole = began(config()) | {"resolved": {}}

    def check(found):
        check_same(config(), found)
        check_repeats(tmp_path / "config.json", found)

    check(whole)
    with pytest.raises(FileError, match="does not say what the run began with"):
        check({name: value for name, value in whole.items() if name != lacking})


def test_a_commit_is_of_the_librarys_own_repository(tmp_path, monkeypatch):
    """Installed within somebody's repository, it is not of that one's commit."""
    commit = record.git_commit.__wrapped__
    own = commit()
    assert own == "unknown" or len(own) == 40

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "theirs")
    installed = tmp_path / "site-packages" / "record.py"
    installed.parent.mkdir()
    installed.write_text("")
    monkeypatch.setattr(record, "__file__", str(installed))
    assert commit() == "unknown"
    git("add", ".")
    assert len(commit()) == 40
