"""UDP-Alg's command lines: what is refused, and how."""

import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


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
        ("reproduce_udp_hypernet.py", ["--privacy=none"], ["--figure", "2a, 2b, 3"]),
        ("reproduce_udp_hypernet.py", ["--figure=4"], ["--figure", "4"]),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(script, arguments, named):
    result = run(script, *arguments)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert all(word in result.stderr for word in named), result.stderr
    assert result.stdout == ""
