"""What the evaluation shows of a confusion matrix, and whom it is for."""

import json
import types

import numpy as np
import pandas as pd
import pytest

import tasks
from scripts import evaluate
from tff_hdp.simulation import evaluation as of_runs
from tff_hdp.simulation.evaluation import Evaluation


def evaluation(names, classes):
    card = {"round": 3, "chosen": "the last round"}
    if names is not None:
        card["class_names"] = names
    columns = {"client": ["a"], "zone": [0], "examples": [2], "accuracy": [0.5]}
    return Evaluation(
        card=card,
        accuracy=0.5,
        confusion=np.ones([classes, classes], np.int64),
        clients=pd.DataFrame(columns),
        clients_on="their own test examples",
    )


@pytest.mark.parametrize("task", ["breast_cancer", "cifar10", "fashion_mnist"])
def test_a_few_classes_are_shown_by_name(task):
    names = list(tasks.TASKS[task].class_names)
    text = evaluate.as_text(evaluation(names, len(names)))
    assert all(text.count(name) >= 2 for name in names)


@pytest.mark.parametrize(
    ("names", "classes"),
    [(None, 2), ([], 3), (list(tasks.TASKS["pages"].class_names), 41)],
)
def test_many_or_nameless_ones_are_shown_by_number(names, classes):
    lines = evaluate.as_text(evaluation(names, classes)).splitlines()
    assert lines[3].split() == [str(number) for number in range(classes)]


@pytest.mark.parametrize("style", ["table", "json", "csv"])
def test_every_format_says_whom_single_clients_are_for(style, monkeypatch, capsys):
    given = types.SimpleNamespace(run="run", round="last", format=style, data_dir=None)
    monkeypatch.setattr(evaluate.flags, "FLAGS", given)
    monkeypatch.setattr(evaluate.systems, "config_of", lambda _: None)
    monkeypatch.setattr(evaluate.record, "check_settings", lambda *_: None)
    found = evaluation(None, 2)
    monkeypatch.setattr(of_runs, "evaluate_run", lambda *_: found)
    evaluate.main()
    out, err = capsys.readouterr()
    told = {"table": out.splitlines()[-1], "csv": err.strip()}
    if style == "json":
        told["json"] = json.loads(out)["note"]
    assert told[style].endswith("for the operator alone.")
    assert style != "csv" or out == found.clients.to_csv(index=False)
