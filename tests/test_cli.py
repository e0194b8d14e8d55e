"""How programs start and end; how they fail is in test_errors."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, gc, sys
from tff_hdp import cli

class Looked:
    def __del__(self):
        print("looked through")

# Run after what the program asks for, which is asked for later.
atexit.register(lambda: print("left alone" if gc.get_freeze_count() else "garbage"))

def main():
    looked = Looked()
    looked.itself = looked
    print("often" if gc.get_threshold() <= (700, 10, 10) else "seldom")
    return 3

sys.exit(cli.run(main))
"""


def test_what_stays_to_the_end_is_not_looked_through():
    # A new interpreter: that of the tests' server has its objects frozen already.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert done.stdout.split("\n") == ["seldom", "left alone", ""]


INTERRUPTED = """
import atexit, signal, sys, time
from tff_hdp import cli

def close():
    print("closing", flush=True)
    time.sleep(60)

atexit.register(close)

def main():
    signal.raise_signal(signal.SIGINT)

sys.exit(cli.run(main))
"""


def test_a_second_interrupt_ends_what_takes_its_time_to_close():
    """It ended in a traceback of whatever was being taken down."""
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "closing\n"
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=30) == ("", "interrupted\n")
    assert program.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("program", "name"),
    [
        *(("plan", "out"), ("plan", "promises"), ("attack", "out"), ("sweep", "out")),
        *(("report", "runs"), ("train", "task"), ("papers/gfl/reproduce", "out")),
    ],
)
def test_what_no_file_could_hold_is_refused(assert_refused, program, name):
    """What Latin-1 makes of café; it ended in an error of Python's."""
    bad = os.fsdecode(b"caf\xe9")
    assert_refused(f"scripts/{program}.py", [f"--{name}={bad}"], [f"--{name}", "UTF-8"])


CHOICES = """
import sys
from tff_hdp import cli
cli.define_choices("what", ("a",), ("a", "b"))
cli.define_choices("peers", (), ("c",))
sys.exit(cli.run(lambda: 3))
"""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--what=b,a", ""),
        ("--peers=", ""),
        ("--peers=c", ""),
        ("--what=", "error: --what is empty; allowed: some of a, b\n"),
        ("--what=a,c", "error: --what is a,c; allowed: some of a, b\n"),
        ("--peers=a", "error: --peers is a; allowed: some of c\n"),
    ],
)
def test_a_list_holds_words_allowed_and_none_only_where_that_is_the_default(
    given, says
):
    done = subprocess.run(
        [sys.executable, "-c", CHOICES, given], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2 if says else 3, says)
