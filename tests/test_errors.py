"""Errors that a user can mend: one line in the library, dashes on the command line."""

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError, check_left, check_makes_models

PROGRAM = """
import sys
from absl import flags
from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError, NoiseError
flags.DEFINE_list("zone_sizes", [], "n_i.")
def main():
    raise {error}
sys.argv = ["program", {word}]
sys.exit(cli.run(main))
"""


def test_an_argument_error_is_one_line_with_its_parts():
    error = ArgumentError("zone_sizes", (3, 4), "numbers\nthat sum to 8")
    assert isinstance(error, ValueError)
    assert (error.name, error.value) == ("zone_sizes", (3, 4))
    assert str(ArgumentError("levels", (), "one")) == "levels is empty; allowed: one"
    assert str(error).startswith("zone_sizes is 3,4; allowed: ")
    assert len(str(ArgumentError("x", "y" * 10_000, "less"))) < 250
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (ArgumentError, str(error))


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("num_zones", "zones"),
        ("multipliers[3]", "noise_multiplier"),
        ("rounds", "rounds"),
        ("zone_sizes[3]", "zone_sizes[3]"),
    ],
)
def test_a_renamed_error_stands_for_all_entries_and_keeps_other_names(name, renamed):
    names = {"num_zones": "zones", "multipliers": "noise_multiplier"}
    error = ArgumentError(name, 0, ">= 1").renamed(names)
    assert str(error) == f"{renamed} is 0; allowed: >= 1"


def test_what_is_left_as_it_was_may_come_from_a_command_line():
    """Which gives a list where the default is a tuple."""

    @dataclasses.dataclass
    class Config:
        seeds: Sequence[str] = ("0", "1")
        jobs: int = 1

    for seeds in (("0", "1"), ["0", "1"]):
        check_left(Config(seeds), ["seeds", "jobs"], "nothing")
    with pytest.raises(ArgumentError, match="seeds is 0; allowed: nothing"):
        check_left(Config(["0"]), ["jobs", "seeds"], "nothing")


def test_a_file_error_names_the_file():
    error = FileError("z.csv", "line 2 is empty")
    assert str(error) == "z.csv: line 2 is empty"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("error", "word", "line"),
    [
        (
            'ArgumentError("zone_sizes", (1, 0), "others")',
            "",
            "--zone_sizes is 1,0; allowed: others",
        ),
        (
            'ArgumentError("zone_sizes[1]", 0, "one\\nor more")',
            "",
            "--zone_sizes[1] is 0; allowed: one or more",
        ),
        (
            'ArgumentError("capability", "fast", "a number")',
            "",
            "capability is fast; allowed: a number",
        ),
        ('FileError("z.csv", "no rows")', "", "z.csv: no rows"),
        ('NoiseError("less noise than planned")', "", "less noise than planned"),
        ('FileNotFoundError("no data")', "", "no data"),
        ('FloatingPointError("not finite")', "", "not finite"),
        ('MemoryError("8 PiB")', "", "not enough memory: 8 PiB"),
        ("None", '"word"', "argument is word; allowed: flags only, see --help"),
    ],
)
def test_the_command_line_adds_dashes_to_flags_alone(run_program, error, word, line):
    result = run_program("-c", PROGRAM.format(error=error, word=word))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {line}\n"


def test_who_stops_reading_gets_no_error(repository):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(error="BrokenPipeError()", word="")],
        capture_output=True,
        text=True,
        cwd=repository,
    )
    assert (result.returncode, result.stderr) == (141, "")


class Model:
    """As models of Keras and TFF are, which can be called too."""

    @property
    def trainable_variables(self):
        return []

    def __call__(self, x):
        return x


def test_a_class_of_models_makes_them_and_a_model_does_not():
    for makes in (Model, lambda: Model()):
        check_makes_models("model_fn", makes, "a function to a model")
    with pytest.raises(ArgumentError, match=r"^model_fn is Model; allowed: a function"):
        check_makes_models("model_fn", Model(), "a function to a model")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("no/where.png", "a folder there is"),
        ("x.txt", r"ends in \.png"),
        ("x", "ends in"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_it_is_drawn(
    tmp_path, name, allowed
):
    cli.check_picture("figure", None)
    for known in ("x.png", "x.PNG", "x.jpeg", "x.eps"):
        cli.check_picture("figure", str(tmp_path / known))
    with pytest.raises(ArgumentError, match=f"^figure is .*{allowed}"):
        cli.check_picture("figure", str(tmp_path / name))
