"""The attacks as they are asked for, and what they refuse."""

import dataclasses
import json

import numpy as np
import pytest

from tff_hdp.attacks import figures, run, table4
from tff_hdp.attacks.attacker import Attacker
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.property import property_inference
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation import record

pytestmark = pytest.mark.usefixtures("loaded_once")

COLUMNS = {
    *("attack", "task", "model", "privacy", "level", "noise_multiplier"),
    *("unknown_clients", "psnr_mean", "psnr_low", "psnr_high", "ssim_mean"),
    *("identified", "bound", "epsilon", "delta", "observer", "neighbours", "sampling"),
}


def test_reconstruction_from_flags_to_files(tmp_path):
    config = AttackConfig(
        attack="analytic", privacy="none", level="1", victims=3, out=str(tmp_path)
    )
    outcome = run.run(config)
    (row,) = outcome.rows
    assert set(row) >= COLUMNS
    assert row["psnr_mean"] > 60 and row["epsilon"] is None and row["bound"] == 1
    run.write(config, outcome.rows)
    assert json.loads((tmp_path / "rows.json").read_text()) == outcome.rows
    figures.draw(outcome, str(tmp_path / "images.png"))
    assert (tmp_path / "images.png").stat().st_size > 1000


def test_a_folder_of_something_else_is_refused_before_the_attack(tmp_path, run_program):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "file").touch()
    # Attacking would fail too, of another reason.
    tail = ("--attack=property", "--task=digits")
    for out, words in ((tmp_path, "allowed: a folder of its own"), ("file", "file")):
        result = run_program("scripts/attack.py", f"--out={tmp_path / out}", *tail)
        assert result.returncode == 2 and words in result.stderr
    assert (tmp_path / "config.json").read_text() == "{}"
    with pytest.raises(ArgumentError, match="of its own"):
        run.write(AttackConfig(out=str(tmp_path)), [{}])


def test_another_attacks_rows_are_not_written_over(tmp_path, run_program):
    config = AttackConfig(out=str(tmp_path), format="json", data_dir="here")
    run.write(config, [{"found": 1}])
    # What is printed, and where data lies, may be another.
    run.write(dataclasses.replace(config, format="csv", data_dir=None), [{"found": 2}])
    with pytest.raises(ArgumentError, match="seed is 1; allowed: 0, with which the"):
        run.write(dataclasses.replace(config, seed=1), [{"found": 3}])
    # Before the attack.
    result = run_program("scripts/attack.py", f"--out={tmp_path}", "--candidates=5")
    said = "--candidates is 5; allowed: 10, with which the attack in"
    assert result.returncode == 2
    assert result.stderr == f"error: {said} out={tmp_path} was made\n"
    for name in ("rows.json", "rows.csv"):
        assert "2" in (tmp_path / name).read_text()


def test_an_attack_that_ended_while_it_wrote_is_run_again(tmp_path):
    config = AttackConfig(out=str(tmp_path))
    with pytest.raises(TypeError):
        run.write(config, [{"found": object()}])  # no JSON
    with pytest.raises(ArgumentError, match="seed is 1; allowed: 0"):
        run.open_folder(dataclasses.replace(config, seed=1))
    run.write(config, [{"found": 2}])
    assert json.loads((tmp_path / "rows.json").read_text()) == [{"found": 2}]


def test_rows_name_the_commit_that_was_there_when_the_attack_began(tmp_path):
    record.git_commit.cache_clear()
    config = AttackConfig(out=str(tmp_path))
    run.open_folder(config)
    assert record.git_commit.cache_info().misses == 1
    run.write(config, [{"found": 1}])
    assert record.git_commit.cache_info().misses == 1
    made = json.loads((tmp_path / "config.json").read_text())
    assert made["git_commit"] == record.git_commit()


@pytest.mark.parametrize("left", ["", "[]", "1", "{"])
def test_settings_of_nobody_knows_what_are_refused(tmp_path, left):
    (tmp_path / "config.json").write_text(left)
    with pytest.raises((ArgumentError, FileError), match=r"of its own|not JSON"):
        run.open_folder(AttackConfig(out=str(tmp_path)))


def test_one_victim_has_no_interval():
    config = AttackConfig(attack="analytic", privacy="none", level="1", victims=1)
    (row,) = run.run(config).rows
    assert row["psnr_low"] is None and row["psnr_high"] is None
    assert json.dumps(row, allow_nan=False)


def test_no_victim_shows_what_pixels_are_like():
    """Of 359 digits the first six are the victims, and the others the prior."""
    attacker = Attacker(AttackConfig(attack="analytic", level="1", victims=6))
    others = attacker.target.features[6:].astype(float) / attacker.target.max_value
    mean, variance = attacker.prior
    np.testing.assert_allclose(mean, others.sum(0) / 353, rtol=1e-5)
    expected = ((others - others.sum(0) / 353) ** 2).sum(0) / 353
    np.testing.assert_allclose(variance, expected, rtol=1e-3, atol=1e-6)
    with pytest.raises(ArgumentError, match="victims is 359; allowed: 1"):
        Attacker(AttackConfig(attack="analytic", level="1", victims=359))


def test_the_program_prints_a_table_and_what_it_rests_on(run_program):
    result = run_program("scripts/attack.py", "--trials=200", "--level=2")
    assert (result.returncode, result.stderr) == (0, "")
    head, row, *words = result.stdout.splitlines()
    assert "identified" in head and "bound" in head and "sampling" not in head
    assert "server that sees zones" in row and row.split()[-2:] == ["A", "E"]
    assert "at its delta over its rounds, by PLD, or by RDP" in " ".join(words)
    assert words[-2:] == [
        "A    neighbours add or remove one client",
        "E    every client every round",
    ]


def test_identification_and_membership_stay_below_their_bounds(tmp_path):
    config = AttackConfig(privacy="ldp", level="1", trials=4000)
    (row,) = run.run(config).rows
    assert 0.25 < row["identified"] < row["bound"] == pytest.approx(0.389, abs=1e-3)
    assert row["epsilon"] == pytest.approx(4.377, abs=2e-3)
    outcome = run.run(dataclasses.replace(config, attack="membership", rounds=3))
    assert not outcome.rows[0]["refuted"]
    figures.draw(outcome, str(tmp_path / "roc.png"))


def test_every_observer_has_its_roc_under_its_bound(tmp_path):
    config = AttackConfig(attack="observers", trials=4000)
    outcome = run.run(config)
    by = {(row["privacy"], row["level"]): row for row in outcome.rows}
    assert len(by) == len(outcome.rows) == len(outcome.curves) == 16
    for mode, level in (("ldp", "1"), ("hdp", "2"), ("cdp", "outside")):
        alone = dataclasses.replace(
            config, attack="membership", privacy=mode, level=level
        )
        assert run.run(alone).rows[0] | {"attack": "observers"} == by[mode, level]
    for row in outcome.rows:
        assert not row["refuted"] and row["auc"] <= row["auc_bound"] + 0.02
    # Nothing but noise hides anything, and CDP's is at the server alone.
    assert by["none", "outside"]["auc"] == by["cdp", "2"]["auc"] == 1
    figures.draw(outcome, str(tmp_path / "roc.png"))
    assert (tmp_path / "roc.png").stat().st_size > 10_000


def test_records_are_clipped_where_the_plan_clips():
    """Nobody clips without noise: what is sent is as large as it is."""
    config = AttackConfig(clip_norm="0.01", level="outside")
    attacker, norms = Attacker(config), {}
    for privacy in ("none", "cdp"):
        vantage = config.vantage(attacker.clip_norm, privacy=privacy)
        norms[privacy] = attacker.records(vantage).norms
    assert norms["cdp"] == pytest.approx(np.minimum(norms["none"], 0.01), rel=1e-5)
    assert norms["none"].max() > 0.05


def test_table_has_every_cell(monkeypatch, tmp_path):
    monkeypatch.setattr(table4, "LEVELS", ("0", "1"))
    monkeypatch.setattr(
        Attacker, "reconstruct", lambda self, *_: np.zeros([1, 1, 8, 8, 1])
    )
    config = AttackConfig(attack="table4", task="digits", victims=1, trials=2000)
    outcome = run.run(config)
    rows = outcome.rows
    by = {(row["privacy"], row["level"]): row for row in rows}
    assert len(by) == len(rows) == len(outcome.found) == 8
    figures.draw(outcome, str(tmp_path / "cells.png"))
    assert (tmp_path / "cells.png").stat().st_size > 10_000
    level0 = [by[mode, "0"]["identified"] for mode in table4.MODES]
    assert level0 == sorted(level0)
    assert by["ldp", "1"]["epsilon"] < 4.4 and by["hdp", "1"]["epsilon"] is None
    for row in rows:
        assert set(row) >= COLUMNS and row["identified"] <= row["bound"] + 0.04


@pytest.mark.slow
def test_property_is_seen_without_noise(data_dir):
    config = AttackConfig(
        attack="property", task="mnist", level="1", data_dir=str(data_dir)
    )
    attacker, found = Attacker(config), {}
    for privacy in ("hdp", "ldp"):
        plan = dataclasses.replace(config, privacy=privacy)
        (row,) = property_inference(attacker, plan.vantage(attacker.clip_norm)).rows
        found[privacy] = row["auc"]
        assert row["auc"] <= row["auc_bound"]
    assert found["hdp"] > 0.85 and 0.45 < found["ldp"] < 0.6


@pytest.mark.parametrize("task", ["pages", "breast_cancer"])
def test_what_is_no_image_is_found_again_but_not_drawn(task):
    (row,) = run.run(AttackConfig(task=task, level="2", trials=500)).rows
    assert 0.1 < row["identified"] <= row["bound"] + 0.05
    assert row["psnr_mean"] is None and row["lpips_mean"] is None
    for options in ({"attack": "dlg"}, {"attack": "analytic", "level": "1"}):
        with pytest.raises(ArgumentError, match=f"one of images: {options['attack']}"):
            run.run(AttackConfig(task=task, **options))
    with pytest.raises(ArgumentError, match="one of images: table4"):
        run.run(AttackConfig(task=task, attack="table4"))
    with pytest.raises(ArgumentError, match="one of images for model=zhu"):
        run.run(AttackConfig(task=task, model="zhu"))


def test_property_needs_mnist():
    with pytest.raises(ArgumentError, match="task is digits"):
        run.run(AttackConfig(attack="property"))


def test_updates_that_are_not_finite_are_left_out(caplog):
    config = AttackConfig(
        attack="analytic",
        privacy="none",
        level="1",
        victims=2,
        learning_rate=1e38,
        clip_norm="1",
    )
    with pytest.raises(ArgumentError, match="finite update"):
        run.run(config)
    assert "victim 0 is left out" in caplog.text


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("attack", ["membership", "identification", "observers"])
def test_a_rate_at_which_no_update_is_finite_is_refused(attack):
    """There is nobody to draw for a trial."""
    config = AttackConfig(attack=attack, clip_norm="1", learning_rate=1e39)
    with pytest.raises(ArgumentError, match=r"^learning_rate is 1e\+39; .* finite"):
        run.run(config)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attack", {"attack": "guess"}),
        ("level", {"level": "3"}),
        ("level", {"level": "up"}),
        ("elected", {"elected": True}),
        ("zones", {"zones": 5}),
        ("clip_norm", {"clip_norm": "much"}),
        ("alpha", {"privacy": "c5"}),
        ("alpha", {"privacy": "hdp", "alpha": 0.5}),
        ("beta", {"privacy": "c3", "beta": 1.5}),
        ("rounds", {"attack": "dlg", "rounds": 2}),
        ("candidates", {"candidates": 1}),
        ("candidates", {"attack": "membership", "candidates": 5}),
        ("candidates", {"attack": "lira", "level": "outside", "candidates": 5}),
        ("victims", {"victims": 3}),
        ("victims", {"attack": "observers", "victims": 3}),
        ("level", {"attack": "observers", "level": "2"}),
        ("privacy", {"attack": "table4", "privacy": "cdp"}),
        ("zones", {"system": "fl_top", "zones": 4}),
        ("zones", {"system": "udp_hypernet", "zones": 4}),
        ("zones", {"secure_aggregation": "server", "zones": 1}),
        ("noise_multiplier", {"noise_multiplier": 0.0}),
        ("noise_multiplier", {"noise_multiplier": 1e300}),
        (
            "sampling_probability",
            {"attack": "membership", "sampling_probability": 1e-300},
        ),
        ("figure", {"figure": "x.png"}),
        ("level", {"level": "\u00b2"}),
        ("rounds", {"attack": "table4", "rounds": 2}),
        ("rounds", {"system": "gfl", "rounds": 5}),
        ("trials", {"system": "gfl", "trials": 5}),
        ("trials", {"attack": "lira", "trials": 5}),
        ("privacy", {"system": "gfl", "privacy": "ldp"}),
        ("level", {"system": "gfl", "level": "2"}),
        ("secure_aggregation", {"system": "gfl", "secure_aggregation": "zone"}),
        ("others_known", {"system": "gfl", "others_known": False}),
        ("others_known", {"attack": "dlg", "others_known": False}),
        (
            "others_known",
            {
                "attack": "membership",
                "others_known": False,
                "sampling_probability": 0.5,
            },
        ),
        ("elected", {"attack": "observers", "elected": True, "level": "1"}),
        ("trials", {"attack": "membership", "trials": 7}),
        ("ratio", {"ratio": 0.5}),
        ("restarts", {"attack": "analytic", "restarts": 2}),
        ("evaluations", {"evaluations": 60}),
        ("lpips_weights", {"lpips_weights": "lpips.npz"}),
        ("seed", {"seed": -1}),
        ("seed", {"seed": 2**32}),
    ],
)
def test_bad_settings_are_refused(name, options):
    with pytest.raises(ArgumentError) as refused:
        AttackConfig(**options)
    assert refused.value.name == name


def test_settings_that_do_something_are_taken():
    for options in (
        {"attack": "dlg", "victims": 3, "candidates": 5},
        {"attack": "lira", "level": "outside", "victims": 9},
        {"attack": "rotation", "candidates": 5},
        {"system": "gfl", "victims": 3, "zones": 4, "clients": 8},
    ):
        assert vars(AttackConfig(**options)).items() >= options.items()


@pytest.mark.parametrize(
    ("rate", "clip_norm"), [(1e30, "auto"), (1e-44, "auto"), (1e-44, "1")]
)
def test_a_rate_that_leaves_no_norm_to_clip_to_is_named(rate, clip_norm):
    """Updates that vanish in float32 show nobody anything, whatever they are cut to."""
    config = AttackConfig(learning_rate=rate, clip_norm=clip_norm)
    with pytest.raises(ArgumentError, match=r"^learning_rate is 1e.*norm > 0; it is"):
        Attacker(config)


def test_what_no_attack_can_be_made_of_is_refused():
    with pytest.raises(ArgumentError, match="seed is -1"):
        AttackConfig(seed=-1)
    crowd = AttackConfig(attack="analytic", privacy="none", level="1", clients=400)
    with pytest.raises(ArgumentError, match="clients is 400; allowed: at most"):
        run.run(crowd)


@pytest.mark.parametrize("attack", ["analytic", "feature_ig"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "level is 0; allowed: 1, as ATTACK is of one unknown client, and .* 3"),
        ({"level": "2"}, "level is 2; allowed: 1, as .* there are 2"),
        ({"level": "2", "secure_aggregation": "both"}, "allowed: none here, as .* 4"),
        ({"zones": 4, "level": "outside"}, "level is outside; allowed: 1, 2, as .* 4"),
        ({"clients": 10**9}, "level is 0; allowed: 1, as .* are 999999999"),
    ],
)
def test_an_attack_on_one_update_says_before_any_round_where_there_is_one(
    attack, given, words
):
    """It ended once the rounds had run, by a name that is no flag."""
    with pytest.raises(ArgumentError, match=words.replace("ATTACK", attack)):
        AttackConfig(attack=attack, **given)
    AttackConfig(attack=attack, level="0", clients=2)
