"""UDP-Alg's figures: their curves, their account, and the command lines."""

import pandas as pd
import pytest

from scripts.papers.udp_alg import closed_form, trained
from tff_hdp.systems.udp_hypernet import plan as udp_alg


@pytest.mark.parametrize(
    ("script", "arguments", "named"),
    [
        ("udp_hypernet.py", [], ["--sigma", "exactly one"]),
        (
            "udp_hypernet.py",
            ["--sigma=0.1", "--sampling_rate=2"],
            ["--sampling_rate", "2"],
        ),
        ("udp_hypernet.py", ["--sigma=0.1", "--task=imagenet"], ["--task", "celeba"]),
        ("udp_hypernet.py", ["--privacy=ldp"], ["--privacy", "ldp", "udp_alg"]),
        ("papers/udp_alg/reproduce.py", ["--privacy=none"], ["--privacy", "none"]),
        ("papers/udp_alg/reproduce.py", ["--what=4"], ["--what", "4", "figure2a"]),
        (
            "papers/udp_alg/reproduce.py",
            ["--private_server_learning_rate=-1"],
            ["--private_server_learning_rate is -1", "> 0"],
        ),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(
    assert_refused, script, arguments, named
):
    assert_refused(f"scripts/{script}", arguments, named)


def test_a_figure_without_its_data_is_left_out_and_said_to_be(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/udp_alg/reproduce.py", "--what=figure3"),
        *(f"--data_dir={tmp_path}", f"--out={tmp_path / 'out'}"),
    )
    assert result.returncode == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: figure3 left out:")
    assert "celeba.sqlite" in last


def test_the_papers_curves_have_the_papers_multipliers():
    """Section 4.2 tests z of 5 and 10; 2a has q = .1 and W = 100 users."""
    found = [
        udp_alg.plan(users=100, q=0.1, sigma=sigma, S=S).server_noise_multiplier
        for sigma, S in trained.CURVES["2a"]
    ]
    assert found == pytest.approx([5, 10, 2.5])


def test_the_account_is_that_of_the_curves_without_training():
    """The paper's first curve is at eps 4 after 1,430 rounds and at 10 after 7,500."""
    found = closed_form.table()
    first = found[(found["figure"] == "2a") & (found["sigma"] == 0.05)]
    first = first[first["S"] == 0.1].set_index("rounds")
    assert first["z"].tolist() == pytest.approx([5.0, 5.0])
    assert first["eps paper"].tolist() == pytest.approx([4.0, 10.0], abs=1e-2)
    assert (found["eps PLD"] < found["eps RDP"]).all()
    assert (found["eps RDP"] < found["eps paper"]).all()
    assert set(found["delta"]) == {1e-5}
    assert (closed_form.table(rounds=3)["rounds"] == 3).all()


def test_descriptors_have_the_rate_of_their_line():
    (study,) = (s for s in [trained.studies("reduced")["descriptors"]])
    configs = [study.config(line, {}) for line in study.lines]
    assert [c.descriptor_learning_rate for c in configs] == [0.0, 0.1, 10.0]
    assert {(c.sigma, c.clip_norm, c.rounds) for c in configs} == {(0.05, 0.1, 1430)}


@pytest.mark.parametrize("scale", ["full", "reduced", "tiny"])
def test_noiseless_alone_has_no_noise(scale):
    """One of a part had that of the line after it."""
    for study in trained.studies(scale).values():
        for line in study.lines:
            privacy = study.config(line, {}).privacy
            noiseless = line.label.get("curve") == "Noiseless"
            assert privacy == ("none" if noiseless else "udp_alg"), (study.name, line)


def test_accuracy_is_over_all_users_tests(tmp_path, monkeypatch):
    """A user with 9 tests counts nine times one with 1."""
    users = {"own_accuracy": [1.0, 0.0], "own_tests": [9, 1]}
    pd.DataFrame(users).to_csv(tmp_path / "users.csv")
    bare = type("Run", (), {"accounts": []})
    monkeypatch.setattr(trained, "read_run", lambda path: bare)
    found = trained.measure(tmp_path)
    assert found == {"accuracy": 0.9, "z": None, "epsilon_paper": None}


@pytest.mark.slow
def test_a_figure_is_its_curves_with_table_and_picture(run_program, tmp_path, data_dir):
    result = run_program(
        *("scripts/papers/udp_alg/reproduce.py", "--what=figure2b", "--scale=tiny"),
        *("--seeds=4", f"--data_dir={data_dir}", f"--out={tmp_path}"),
        timeout=500,
    )
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(tmp_path / "udp_alg" / "figure2b_tiny.csv")
    assert found["curve"].tolist() == ["Noiseless"] + 3 * ["UDP-Alg"]
    assert found["printed_loss"].notna().tolist() == [False, True, False, False]
    assert found["epsilon_paper"].notna().tolist() == [False, True, True, True]
    picture = tmp_path / "tiny" / "udp_alg_figure2b_tiny.png"
    assert picture.stat().st_size > 1000
    assert "neighbours add or remove one client" in result.stdout
