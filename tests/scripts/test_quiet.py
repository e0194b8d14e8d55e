"""What programs say on stderr is their own: nothing of TensorFlow's or TFF's.

Each program starts as a user starts it, which takes seconds each: most are slow tests,
some are not, so that every run of the suite holds the rule.
`tests/runtime/test_environment.py` has the library's own.
"""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.runtime.test_environment import OURS
from tests.test_doc_code import blocks

# Lines that programs mean to say.
OWN = re.compile(
    r"(round \d+ of \d+|epsilons below|sweep|resuming|elected|installing|interrupted"
    r"|training (none|cdp|hdp|ldp)$) ?"
)
SMALL = ("--rounds=1", "--num_clients=20")
ZONES = ("--zones=2", "--clients_per_round=8", "--noise_multiplier=1", *SMALL)
PROGRAMS = {
    "account": ("scripts/account.py",),
    "plan": ("scripts/plan.py", "--promises=aggregator<=8", "--method=rdp"),
    "train": ("scripts/train.py", *ZONES),
    "train natively": ("scripts/train.py", "--runtime=native", *ZONES),
    "train text": ("scripts/train.py", "--task=pages", *ZONES),
    "train with elections": (
        *("scripts/train.py", "--elect_super_nodes=rotate"),
        *("--secure_aggregation=zone", "--secure_aggregation_protocol=bonawitz"),
        *ZONES,
    ),
    "demo": ("scripts/demo.py", *ZONES[:2], *SMALL),
    "hfl_dp": ("scripts/hfl_dp.py", "--edges=2", *SMALL),
    "gfl": ("scripts/gfl.py", "--servers=2", "--per_round=2", *SMALL),
    "fl_top": ("scripts/fl_top.py", "--clients_per_round=4", *SMALL),
    "udp_hypernet": (
        *("scripts/udp_hypernet.py", "--noise_multiplier=1", "--hidden_width=4"),
        *SMALL,
    ),
    "attack": ("scripts/attack.py", "--trials=100"),
    "attack by search": (
        *("scripts/attack.py", "--attack=dlg", "--privacy=none", "--level=1"),
        *("--victims=1", "--evaluations=2"),
    ),
    "sweep": ("scripts/sweep.py", "--seeds=0", "--", *ZONES),
}
# Of the run that `trained` leaves.
READERS = {
    "evaluate": ("scripts/evaluate.py", "--run={run}", "--round=best"),
    "report": ("scripts/report.py", "--run={run}", "--html={run}/page.html"),
    "verify_elections": ("scripts/verify_elections.py", "--run={run}"),
}


LIBRARY = """
import tff_hdp
plan = tff_hdp.configurations.hdp(
    zone_sizes=(5, 5),
    sampling=tff_hdp.PoissonSampling((0.5, 0.5)),
    noise_multiplier=1.0,
)
assert tff_hdp.account(plan, 10, 1e-5)
"""


def started(folder, *arguments):
    """Runs Python as a user does, who has set nothing; what it says."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=inherited,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done


def said(repository, arguments, folder):
    """What a program says on stderr that it does not mean to."""
    done = started(folder, str(repository / arguments[0]), *arguments[1:])
    return foreign(done.stderr)


def foreign(text):
    return [line for line in text.splitlines() if not OWN.match(line)]


def test_a_run_and_the_readmes_lines_on_it_say_only_their_own(repository, tmp_path):
    """The README's are without this library, which would keep TensorFlow quiet."""
    program = (*PROGRAMS["train"], "--out=runs/mine")
    assert said(repository, program, tmp_path) == []
    (lines,) = (b for b in blocks(repository / "README.md") if "load_model" in b)
    assert "tff_hdp" not in lines
    done = started(tmp_path, "-c", lines)
    assert (done.stdout, done.stderr) == ("", "")


def test_what_trains_nothing_says_only_its_own(repository, tmp_path):
    assert said(repository, PROGRAMS["account"], tmp_path) == []
    assert started(repository, "-c", LIBRARY).stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_say_only_their_own(program, repository, tmp_path):
    assert said(repository, program, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_says_only_its_own_until_it_is_ended(end, repository):
    worker = subprocess.Popen(
        [sys.executable, str(repository / "scripts/worker.py"), "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = worker.stdout.readline()
    assert said.startswith("worker on ")
    host, _, port = said.split()[-1].rpartition(":")
    with socket.create_connection((host, int(port))) as held:
        # It is passed on once something has come back.
        held.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        assert held.recv(1)
        worker.send_signal(end)
        rest, errors = worker.communicate(timeout=60)
    assert rest == "" and foreign(errors) == []


@pytest.fixture(scope="module")
def trained(repository, tmp_path_factory):
    path = tmp_path_factory.mktemp("quiet") / "run"
    program = (*PROGRAMS["train with elections"], f"--out={path}")
    assert said(repository, program, path.parent) == []
    return path


@pytest.mark.slow
@pytest.mark.parametrize("program", READERS.values(), ids=READERS)
def test_programs_on_a_run_say_only_their_own(program, repository, trained):
    arguments = [word.format(run=trained) for word in program]
    assert said(repository, arguments, trained.parent) == []
