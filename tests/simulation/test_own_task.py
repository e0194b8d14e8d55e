"""A data set of a user's own, in the words of the page, gets all that a task gets."""

import json
import re

import pytest

import tasks
from scripts import report
from tff_hdp import systems
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.systems.hdp.config import HdpConfig


@pytest.fixture
def module(repository, tmp_path, monkeypatch):
    page = (repository / "docs" / "how-to" / "own_data.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "mine_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return "mine_of_the_page"


def test_it_is_trained_evaluated_and_has_a_page(module, tmp_path):
    sites = tmp_path / "zones.csv"
    clients = (f"machine-{i:02},{'north' if i < 20 else 'south'}" for i in range(60))
    sites.write_text("\n".join(["client,zone", *clients]))
    config = HdpConfig(
        task=f"{module}:SENSORS",
        noise_multiplier=1.0,
        zoning="key",
        zone_key="zone",
        zoning_file=str(sites),
        clients_per_round=20,
        rounds=2,
        quiet=True,
        out=str(tmp_path / "run"),
    )
    result = experiment.run(config)
    again = systems.config_of(result.path)
    assert again.task == config.task
    found = evaluate_run(again, "last")
    assert found.accuracy == pytest.approx(result.accuracy)
    assert found.card["class_names"] == ["lathe", "mill", "press"]
    assert dict(found.zones[["zone", "clients"]].to_numpy()) == {
        "north": 20,
        "south": 40,
    }
    assert "values mapped from -6.0..6.0 to 0..1" in found.card["description"]
    # What is measured on the clients' own examples is nothing to publish.
    assert json.loads((result.path / "privacy.json").read_text())["published"] == []
    assert len(found.clients) == 60 and found.clients["client"][0] == "machine-00"
    assert "made up" in report.page(result.path)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("nowhere_at_all:X", "nowhere_at_all:X; allowed: a module on the path"),
        ("MODULE:NOTHING", "allowed: a tasks.Dataset NOTHING in "),
        ("MODULE:read", "allowed: a tasks.Dataset read in "),
        (":X", ":X; allowed: digits, "),
        ("imagenet", "imagenet; allowed: digits, .*, or module:NAME"),
    ],
)
def test_what_is_none_is_refused_in_a_line(module, task, said):
    with pytest.raises(ArgumentError, match=said):
        tasks.load(task.replace("MODULE", module))


def test_a_module_that_is_no_python_is_one_line_and_leaves_no_folder(
    tmp_path, monkeypatch
):
    (tmp_path / "with_an_error.py").write_text("def read(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    config = HdpConfig(
        task="with_an_error:MINE", noise_multiplier=1.0, quiet=True, out=str(out)
    )
    with pytest.raises(ArgumentError, match=r"a module of Python: .*line 1"):
        experiment.run(config)
    assert not out.exists()


def test_a_word_without_a_module_is_refused_with_the_settings():
    with pytest.raises(ArgumentError, match="task is imagenet; allowed: digits, "):
        HdpConfig(noise_multiplier=1.0, task="imagenet")
    config = HdpConfig(noise_multiplier=1.0, task="mine:SENSORS")
    assert config.out == "runs/mine.SENSORS_hdp"
