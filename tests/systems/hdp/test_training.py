"""Whole runs on digits: what they leave behind, and how they go on."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tasks
from tests.thinning import thinned
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import Ledger
from tff_hdp.simulation import experiment
from tff_hdp.systems.hdp.run import Hdp


def test_a_run_leaves_its_models_which_need_no_tff(finished):
    frame = pd.read_csv(finished.path / "metrics.csv").set_index("round")
    task = finished.config.load_task(5)
    for name, number in (("last", 3), ("best", frame["accuracy"].idxmax())):
        folder = finished.path / "model" / name
        card = json.loads((folder / "card.json").read_text())
        assert (card["round"], card["metric"]) == (number, "accuracy")
        logits = tf.keras.models.load_model(folder / "model.keras").predict(
            task.test_features, verbose=0
        )
        reached = np.mean(logits.argmax(-1) == task.test_labels)
        assert reached == pytest.approx(frame["accuracy"][number])
        serve = tf.saved_model.load(str(folder / "saved_model")).signatures
        served = serve["serving_default"](features=tf.constant(task.test_features))
        np.testing.assert_allclose(served["logits"], logits, atol=1e-4)
        np.testing.assert_allclose(
            served["probabilities"], tf.nn.softmax(logits), atol=1e-5
        )


@pytest.mark.slow
def test_a_recurrent_model_of_text_trains_and_is_kept(hdp_config, tmp_path):
    """Client by client; the kept model reads text without this library."""
    asked = hdp_config(
        tmp_path,
        **{"task": "pages", "model": "gru", "num_clients": 6, "zones": 2, "rounds": 1},
        **{"clients_per_round": 6, "local_epochs": 1, "client_learning_rate": 0.3},
        **{"privacy": "none", "noise_multiplier": None},
    )
    result = experiment.run(asked)
    assert result.metrics["loss"] < np.log(tasks.TASKS["pages"].num_classes)
    model = tf.keras.models.load_model(tmp_path / "model" / "last" / "model.keras")
    task = asked.load_task(5)
    guesses = model.predict(task.test_features, verbose=0).argmax(-1)
    reached = np.mean(guesses == task.test_labels)
    assert reached == pytest.approx(result.accuracy)


def test_programs_evaluate_a_run_and_make_a_page_of_it(finished, run_program, tmp_path):
    run = f"--run={finished.path}"
    done = run_program("scripts/evaluate.py", run, "--round=best", "--format=json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["accuracy"] == pytest.approx(found["card"]["value"])
    assert len(found["clients"]) == 200 and len(found["zones"]) == 4
    assert found["card"]["class_names"] == list("0123456789")
    page = tmp_path / "page.html"
    done = run_program("scripts/report.py", run, f"--html={page}")
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for words in ("load_digits", "scripts/train.py", "promised epsilon", "<svg"):
        assert words in text


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        ("evaluate", [], ["--run", "a run folder"]),
        ("evaluate", ["--run=/nowhere"], ["/nowhere", "holds no run"]),
        ("report", [], ["--run is None; allowed: a run folder, with --html", "--runs"]),
        ("report", ["--run=/nowhere"], ["--html"]),
        ("report", ["--run=/a", "--html=/b", "--runs=/c"], ["--runs", "/c"]),
        (
            "report",
            ["--run=/a", "--html=/nowhere/b.html"],
            ["--html is /nowhere/b.html; allowed: a file in a folder there is"],
        ),
    ],
)
def test_programs_that_read_runs_refuse_in_one_line(
    assert_refused, program, arguments, words
):
    assert_refused(f"scripts/{program}.py", arguments, words)


def test_a_run_leaves_metrics_ledger_and_figure(finished):
    path = finished.path
    frame = pd.read_csv(path / "metrics.csv")
    needed = ["round", "accuracy", "loss", "round_seconds", "clients", "epsilon_rdp"]
    assert set(needed) <= set(frame.columns)
    assert frame["round"].tolist() == [1, 2, 3]
    once = frame.pop("epsilon")
    assert np.isfinite(frame.select_dtypes("number")).all(axis=None)
    assert frame["epsilon_rdp"].is_monotonic_increasing
    privacy = json.loads((path / "privacy.json").read_text())
    ledger = Ledger()
    ledger.load_state_dict(privacy["ledger"])
    assert ledger == finished.ledger
    assert {"accuracy", "loss"} <= set(privacy["published"])
    assert ledger.rounds == privacy["rounds"] == 3
    wanted = {
        *("observer", "client_kind", "noise_multiplier", "epsilon_rdp"),
        *("epsilon_pld", "epsilon_paper", "delta", "assumptions"),
    }
    assert all(wanted <= set(row) for row in privacy["accounts"])
    observers = {row["observer"] for row in privacy["accounts"]}
    fellows = {"fellow_super_node"}
    assert observers == {"super_node", "aggregator", "released_model", *fellows}
    assert any("seed" in note for note in privacy["notes"])
    assert any("operator" in note for note in privacy["notes"])
    assert (path / "figures" / "accuracy.png").stat().st_size > 1000
    assert any((path / "tensorboard").iterdir())
    released = [r for r in finished.accounts if r.observer == "released_model"]
    assert frame["epsilon_rdp"].iloc[-1] == released[0].epsilon_rdp
    # What bar and table end with is the same number.
    assert once.iloc[-1] == min(released[0].epsilon_rdp, released[0].epsilon_pld)
    assert once.iloc[:-1].isna().all()


@pytest.mark.parametrize("privacy", thinned(["hdp", "none"], every=2))
@pytest.mark.slow
def test_training_alone_or_in_stacks_gives_the_same_cohorts(
    hdp_config, tmp_path, privacy
):
    changes = {"privacy": privacy}
    if privacy == "none":
        changes["noise_multiplier"] = None
    frames = []
    for chunk in (0, 3, None) if privacy == "none" else (0, 3):
        out = tmp_path / str(chunk)
        experiment.run(hdp_config(out, cohort_chunk=chunk, **changes))
        frames.append(pd.read_csv(out / "metrics.csv"))
    for frame in frames[1:]:
        assert frame["clients"].tolist() == frames[0]["clients"].tolist()
        if privacy == "none":
            np.testing.assert_allclose(frame["loss"], frames[0]["loss"], rtol=1e-4)


def test_without_noise_learns_digits(hdp_config, tmp_path):
    """Far above the 10 % of chance after 15 rounds."""
    settings = {"privacy": "none", "noise_multiplier": None, "rounds": 15}
    result = experiment.run(hdp_config(tmp_path, clients_per_round=50, **settings))
    assert result.accuracy > 0.6
    assert result.accounts == []
    privacy = json.loads((tmp_path / "privacy.json").read_text())
    assert privacy["accounts"] == []
    assert any("No noise" in note for note in privacy["notes"])


def test_a_target_is_met_and_no_lost_round_takes_a_run_past_it(
    hdp_config, tmp_path, traced_once
):
    traced_once(Hdp)
    target = {"noise_multiplier": None, "target_epsilon": 4.0, "privacy": "cdp"}
    settings = hdp_config(tmp_path, target_observer="released_model", **target)
    met = experiment.run(settings)
    (row,) = [r for r in met.accounts if r.observer == "released_model"]
    assert row.epsilon_rdp == pytest.approx(4.0, rel=1e-3)
    assert row.epsilon_rdp <= 4.0
    with pytest.raises(ArgumentError, match=r"rounds is 9; allowed: at most 3, for"):
        experiment.run(dataclasses.replace(settings, rounds=9))
    (tmp_path / "checkpoints" / "round_000003").unlink()
    with pytest.raises(ArgumentError, match=r"rounds is 3; allowed: at most 2: what"):
        experiment.run(settings)
    sooner = experiment.run(dataclasses.replace(settings, rounds=2))
    (row,) = [r for r in sooner.accounts if r.observer == "released_model"]
    assert sooner.ledger.rounds == 3
    assert row.epsilon_rdp <= 4.0


def test_a_target_nobody_can_meet_is_refused(hdp_config, tmp_path):
    target = {"noise_multiplier": None, "target_epsilon": 4.0, "privacy": "cdp"}
    with pytest.raises(ArgumentError, match="guarantee"):
        experiment.run(hdp_config(tmp_path, target_observer="super_node", **target))


def test_auto_clip_norm_comes_from_a_pilot_and_says_so(hdp_config, tmp_path):
    result = experiment.run(hdp_config(tmp_path, clip_norm="auto", pilot_rounds=2))
    resolved = json.loads((tmp_path / "config.json").read_text())["resolved"]
    plan = result.ledger.history[0][0].plan
    assert plan.clipping.clip_norm == pytest.approx(resolved["pilot_norms"]["update"])
    assert 0.01 < plan.clipping.clip_norm < 10
    privacy = json.loads((tmp_path / "privacy.json").read_text())
    assert any("not private" in note for note in privacy["notes"])
    said = [row["assumptions"] for row in privacy["accounts"] if row["epsilon_pld"]]
    assert said
    assert all("clip norm, measured without noise" in words for words in said)


@pytest.mark.parametrize(
    "changes",
    thinned(
        [
            {"clipping": "adaptive", "privacy": "cdp"},
            {"clipping": "per_layer", "clip_norm": "auto", "pilot_rounds": 1},
            {"sampling": "fixed"},
            {"estimator": "bounded"},
            {"weighting": "examples"},
            {"algorithm": "fedsgd", "client_learning_rate": 0.02},
            {"client_optimizer": "sgdm"},
            {"client_optimizer": "adam", "server_optimizer": "adam"},
            {"privacy": "c5", "alpha": 0.5},
        ],
        every=9,
    ),
    ids=str,
)
def test_every_option_trains_and_is_accounted(hdp_config, tmp_path, changes):
    result = experiment.run(hdp_config(tmp_path, rounds=1, **changes))
    released = [r for r in result.accounts if r.observer == "released_model"]
    assert released
    assert all(0 < row.epsilon_rdp < np.inf for row in released)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zones": 201}, "zones is 201; allowed: 1..200"),
        (
            {"clients_per_round": 201},
            "clients_per_round is 201; allowed: at most 200",
        ),
        ({"clients_per_round": 1, "sampling": "fixed"}, "clients_per_round is 1"),
        (
            {"clients_per_round": 50.5, "sampling": "fixed"},
            "clients_per_round is 50.5; allowed: a whole number with sampling=fixed",
        ),
        ({"privacy": "c3", "beta": 0.3}, "beta is 0.3; allowed: .* of 4 zones"),
        ({"partition": "geography"}, "partition is geography"),
        (
            {"num_clients": 3, "clients_per_round": 2, "zones": 10},
            "zones is 10; allowed: 1..3",
        ),
        (
            {"clip_norm": "auto", "clients_per_round": 0.01, "pilot_rounds": 1},
            "clip_norm is auto; allowed: .* a pilot",
        ),
        ({"cohort_chunk": 4, "client_optimizer": "adam"}, "cohort_chunk is 4"),
    ],
)
def test_flags_that_do_not_fit_the_task(hdp_config, tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        experiment.run(hdp_config(tmp_path, **changes))


# Runs that go on ---------------------------------------------------------------


def test_a_finished_run_can_be_extended(hdp_config, copied):
    result = experiment.run(hdp_config(copied, rounds=5))
    assert result.ledger.rounds == 5
    assert pd.read_csv(copied / "metrics.csv")["round"].tolist() == [1, 2, 3, 4, 5]


def test_fewer_rounds_than_there_are_is_refused(hdp_config, copied):
    with pytest.raises(ArgumentError, match=r"rounds is 2; allowed: at least 3"):
        experiment.run(hdp_config(copied, rounds=2))


def test_a_released_round_whose_checkpoint_broke_counts_again_each_time(
    hdp_config, copied
):
    for released in (4, 5):
        (copied / "checkpoints" / "round_000003").write_bytes(b"")
        result = experiment.run(hdp_config(copied))
        assert result.ledger.rounds == released
    assert pd.read_csv(copied / "metrics.csv")["round"].tolist() == [1, 2, 3]
    assert experiment.run(hdp_config(copied)).ledger.rounds == 5


def test_noise_that_config_json_says_is_not_taken_at_its_word(hdp_config, copied):
    record = json.loads((copied / "config.json").read_text())
    record["resolved"]["noise_multiplier"] = 9.0
    (copied / "config.json").write_text(json.dumps(record))
    with pytest.raises(FileError, match=r"noise_multiplier is 9.0, but .* with 1.0"):
        experiment.run(hdp_config(copied, rounds=4))


def test_a_row_lost_between_checkpoint_and_metrics_comes_back(hdp_config, copied):
    whole = (copied / "metrics.csv").read_text()
    kept = "".join(whole.splitlines(keepends=True)[:-1])
    (copied / "metrics.csv").write_text(kept)
    experiment.run(hdp_config(copied))
    assert pd.read_csv(copied / "metrics.csv")["round"].tolist() == [1, 2, 3]


def test_a_seed_never_fixes_the_noise(hdp_config, finished, tmp_path):
    """Same seed, same process: cohorts repeat, the noisy model must not."""
    experiment.run(hdp_config(tmp_path))
    assert_only_noise_differs(finished.path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "chunk"), [("in_process", 0), ("native", None)])
def test_nor_does_it_elsewhere(hdp_config, tmp_path, runtime, chunk):
    for name in "ab":
        experiment.run(
            hdp_config(tmp_path / name, rounds=2, runtime=runtime, cohort_chunk=chunk)
        )
    assert_only_noise_differs(tmp_path / "a", tmp_path / "b")


def assert_only_noise_differs(*paths):
    first, second = (pd.read_csv(path / "metrics.csv") for path in paths)
    assert first["clients"].tolist() == second["clients"].tolist()
    # Rounding, in sums of another order, is far less.
    assert (first["loss"] - second["loss"]).abs().max() > 1e-4
