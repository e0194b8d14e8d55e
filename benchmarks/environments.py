"""Peers, each in a virtual environment of its own under .venvs.

python benchmarks/environments.py flower fedjax pfl
"""

import hashlib
import subprocess
import sys

import children
from measure import Subject

# What the framework leaves to the user, or does otherwise.
PEERS = {
    "flower": "simulation on Ray, an actor a core, one PyTorch thread each; clip and "
    "noise at the server by Flower",
    "fedjax": "jit backend; FedJAX has no central DP: clip by its tree functions, "
    "noise by jax.random",
    "pfl": "a worker process a core, one PyTorch thread each; clip and noise by "
    "pfl's central Gaussian mechanism",
}


def peer_subject(peer: str) -> Subject:
    """The peer's program in its environment, which is made if need be."""
    python = children.FOLDER / ".venvs" / peer / "bin" / "python"
    install(peer)
    return Subject(
        peer,
        peer,
        f"peers.{peer}.program",
        python=str(python),
        notes=PEERS[peer],
    )


def install(peer: str) -> None:
    """Makes the peer's environment unless it is there, of today's requirements.

    Raises:
      subprocess.CalledProcessError: If pip fails; it says why on stderr.
    """
    folder = children.FOLDER / ".venvs" / peer
    requirements = children.FOLDER / "peers" / peer / "requirements.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {peer} into {folder}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-r", str(requirements)], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        install(name)
