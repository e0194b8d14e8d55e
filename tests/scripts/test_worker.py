"""scripts/worker.py: who reaches the worker, and what becomes of it."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("private_networks")
SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "worker.py"
HOST, GUEST = "10.99.0.1", "10.99.0.2"

# In a network of its own, as its root: a second network joined by a virtual cable,
# a worker in the first, and one attempt to connect from each.
NEIGHBOURS = f"""
import pathlib, socket, subprocess, sys, time

def run(*command):
    subprocess.run(command, check=True)

def reaches(address, prefix=()):
    code = f"import socket; socket.create_connection({{address!r}}, 5)"
    done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True)
    return done.returncode == 0

run("ip", "link", "set", "lo", "up")
other = subprocess.Popen(["unshare", "-n", "sleep", "100"])
inside = ("nsenter", "-t", str(other.pid), "-n")
own = pathlib.Path("/proc/self/ns/net").readlink()
while pathlib.Path(f"/proc/{{other.pid}}/ns/net").readlink() == own:
    time.sleep(0.01)
run("ip", "link", "add", "near", "type", "veth", "peer", "far", "netns", str(other.pid))
run("ip", "address", "add", "{HOST}/24", "dev", "near")
run("ip", "link", "set", "near", "up")
run(*inside, "ip", "address", "add", "{GUEST}/24", "dev", "far")
run(*inside, "ip", "link", "set", "far", "up")
worker = subprocess.Popen(
    [sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True
)
try:
    port = int(worker.stdout.readline().rpartition(":")[2])
    with socket.create_server(("{HOST}", 0)) as control:
        print("control", reaches(control.getsockname(), inside))
    print("here", reaches(("127.0.0.1", port)))
    print("neighbour", reaches(("{HOST}", port), inside))
    print("own address", reaches(("{HOST}", port)))
finally:
    worker.kill()
    other.kill()
"""


def refusal_of_namespaces():
    """Why a test cannot make networks here; empty if it can."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    trial = "ip link add near type veth peer far && unshare -n true"
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", trial], capture_output=True, text=True
    )
    return done.stderr.strip() if done.returncode else ""


def who_reaches(*flags):
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", NEIGHBOURS, SCRIPT, *flags],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def networks():
    reason = refusal_of_namespaces()
    if reason:
        pytest.skip(f"no network namespaces here: {reason}")


def test_only_loopback_reaches_the_worker(networks):
    assert who_reaches("--port=0") == {
        "control": "True",
        "here": "True",
        "neighbour": "False",
        "own address": "False",
    }


def test_everyone_reaches_a_worker_that_asks_for_it(networks):
    assert set(who_reaches("--port=0", "--listen_without_credentials").values()) == {
        "True"
    }


def test_refuses_to_start_where_nothing_keeps_others_out(networks):
    # A process without privileges that may not make a user namespace either.
    limit = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    done = subprocess.run(
        ["unshare", "-r", "sh", "-c", limit, "-", sys.executable, SCRIPT, "--port=0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --listen_without_credentials is False; ")
    assert done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.parametrize("flags", [(), ("--listen_without_credentials",)])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL", "SIGINT"])
def test_the_worker_ends_with_the_script(
    host_worker, is_alive, assert_ends, end, flags
):
    with host_worker("--port=0", *flags, stderr=subprocess.PIPE) as host:
        assert is_alive(host.worker_pid)
        host.process.send_signal(getattr(signal, end))
        # Reading to the end would hang if the worker held the pipe.
        assert host.process.communicate(timeout=30)[0] == ""
        status = 130 if end == "SIGINT" else -getattr(signal, end)
        assert host.process.returncode == status
        assert_ends(host.worker_pid)
        port = int(host.address.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)


@pytest.mark.parametrize("threads", [None, "4"])
def test_numpys_threads_do_not_keep_the_worker_from_starting(
    host_worker, is_alive, monkeypatch, threads
):
    """Two cores were enough: OpenBLAS starts a thread for each but the first."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    if threads:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", threads)
    with host_worker("--port=0", stderr=subprocess.PIPE) as host:
        assert is_alive(host.worker_pid)


def test_the_script_ends_with_the_worker(host_worker):
    with host_worker("--port=0", stderr=subprocess.PIPE) as host:
        os.kill(host.worker_pid, signal.SIGKILL)
        _, errors = host.process.communicate(timeout=30)
        assert host.process.returncode == 1
        assert errors == "the worker ended with status -9\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--port is None; allowed: 0..65535"),
        (["--port=70000"], "--port is 70000; allowed: 0..65535"),
        (["--port=-1"], "flag --port=-1"),
        (["--port=0", "extra"], "argument is extra"),
    ],
)
def test_bad_flags_are_one_line(run_program, flags, message):
    done = run_program(SCRIPT, *flags, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("flags", [(), ("--listen_without_credentials",)])
def test_a_taken_port_is_named(run_program, flags):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_program(SCRIPT, f"--port={port}", *flags, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --port is {port}; ")


def test_a_namespace_without_rights_is_said_to_be_none():
    code = """
import errno, fcntl, os
def refused(*_):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
fcntl.ioctl = refused
from tff_hdp.runtime.private_worker import enter_private_network
enter_private_network()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=SCRIPT.parents[1],
    )
    assert "NoPrivateNetworkError: [Errno 1]" in done.stderr
