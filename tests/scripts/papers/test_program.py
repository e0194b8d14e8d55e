"""What the papers' programs share: which studies they run, and where results go."""

import json

import pytest

from scripts.papers import result_files

# Runs a program whose studies say what they were asked instead of training.
CODE = """
import json, runpy, sys
from scripts.papers import studies

def run(chosen, *, seeds, folder, changes, at_once, results, **rest):
    names = [study.name for study in chosen]
    docs = results == studies.RESULTS
    print(json.dumps([names, seeds, str(folder), changes, at_once, docs]))
    return 0

studies.run = run
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def asked(run_program):
    """What the studies of a program are asked, on a command line."""

    def ask(paper, *flags):
        program = f"scripts/papers/{paper}/reproduce.py"
        result = run_program("-c", CODE, program, *flags)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[0])

    return ask


def test_a_published_study_goes_to_the_docs(asked):
    found = asked("gfl", "--what=figure2", "--seeds=3,4", "--jobs=2", "--quiet")
    assert found == [["figure2"], [3, 4], "runs/gfl/full", {"quiet": True}, 2, True]


@pytest.mark.parametrize(
    ("paper", "given", "name"),
    [
        ("gfl", ["--what=figure2", "--ridge=0.3"], "figure2"),
        ("gfl", ["--what=figure2", "--scale=tiny"], "figure2_tiny"),
        ("fl_top", ["--what=table2", "--noise_multiplier=2"], "table2"),
    ],
)
def test_a_setting_of_ones_own_does_not(asked, paper, given, name):
    names, _, folder, _, _, docs = asked(paper, *given, "--out=mine")
    assert (names, docs) == ([name], False)
    assert folder.startswith("mine")


@pytest.mark.parametrize(
    ("paper", "part", "flag"),
    [
        ("gfl", "figure2", "--mu=0.3"),
        ("hfl_dp", "figure6", "--clip_norm=7"),
        ("hfl_dp", "figure5", "--edges=5"),
        ("fl_top", "fl_cs", "--coefficients=largest"),
        ("udp_alg", "descriptors", "--descriptor_learning_rate=1"),
    ],
)
def test_what_tells_lines_apart_is_not_given_for_all(
    assert_refused, tmp_path, paper, part, flag
):
    """A run at C = 7 stood in the row of C = 5, beside what is printed for that."""
    program = f"scripts/papers/{paper}/reproduce.py"
    given = [f"--what={part}", "--scale=tiny", flag, f"--out={tmp_path}"]
    assert_refused(program, given, [flag.partition("=")[0], f"--what={part}"])


def test_a_rate_of_ones_own_for_noisy_curves_does_not(asked, data_dir):
    flags = ("--what=figure2b", f"--data_dir={data_dir}")
    assert asked("udp_alg", *flags)[-1]
    assert not asked("udp_alg", *flags, "--private_server_learning_rate=2")[-1]


def test_a_part_without_its_data_is_left_out(run_program, data_dir):
    result = run_program(
        *("-c", CODE, "scripts/papers/udp_alg/reproduce.py"),
        *("--what=figure3,figure2b", f"--data_dir={data_dir}"),
    )
    assert result.returncode == 0, result.stderr
    first, last = result.stdout.splitlines()
    assert json.loads(first)[0] == ["figure2b_reduced"]
    assert last.startswith("figure3 left out:") and "celeba" in last


@pytest.mark.parametrize(
    ("paper", "names", "read"),
    [
        (
            "hfl_dp",
            ["noise", "epsilons"],
            ["Each link by itself, against", "PLD's; PLD"],
        ),
        ("udp_alg", ["account"], ["against whoever gets the hypernetwork's weights"]),
    ],
)
def test_an_account_goes_where_it_is_asked_to(
    run_program, tmp_path, paper, names, read
):
    """And is the docs' to the last digit, whenever and wherever it is made again."""
    program = f"scripts/papers/{paper}/reproduce.py"
    committed = {name: result_files.RESULTS / paper / f"{name}.csv" for name in names}
    written = {name: path.stat().st_mtime_ns for name, path in committed.items()}
    result = run_program(program, "--what=account", f"--out={tmp_path}")
    assert result.returncode == 0, result.stderr
    assert {path.stem for path in (tmp_path / paper).iterdir()} == set(names)
    for name, path in committed.items():
        assert (tmp_path / paper / path.name).read_text() == path.read_text()
        assert path.stat().st_mtime_ns == written[name]
        assert str(tmp_path / paper / path.name) in result.stdout
    # Whom its epsilons hold against, and how they are computed, stands below.
    assert all(words in result.stdout for words in read)


@pytest.mark.parametrize(
    ("paper", "part", "flag"),
    [
        ("hfl_dp", "account", "--seeds=7"),
        ("hfl_dp", "account", "--learning_rate=0.3"),
        ("udp_alg", "account", "--private_server_learning_rate=2"),
        ("hdp", "table1,levels", "--compute_dtype=bfloat16"),
    ],
)
def test_flags_of_trainings_are_refused_where_nothing_is_trained(
    assert_refused, tmp_path, paper, part, flag
):
    program = f"scripts/papers/{paper}/reproduce.py"
    given = [f"--what={part}", flag, f"--out={tmp_path}"]
    assert_refused(program, given, [flag.partition("=")[0], "not trained"])
    assert not list(tmp_path.iterdir())


def test_an_account_of_ones_own_setting_is_not_the_docs(run_program):
    path = result_files.RESULTS / "udp_alg" / "account.csv"
    written = path.stat().st_mtime_ns
    program = "scripts/papers/udp_alg/reproduce.py"
    result = run_program(program, "--what=account", "--rounds=3", "--delta=1e-4")
    assert result.returncode == 0, result.stderr
    assert "0.0001" in result.stdout and ".csv" not in result.stdout
    assert path.stat().st_mtime_ns == written
