"""Peers, each in a virtual environment of its own under .venvs.

python benchmarks/environments.py flower fedjax pfl
"""

import hashlib
import logging
import subprocess
import sys
from collections.abc import Iterable

import children
from measure import Subject

_LOG = logging.getLogger("tff_hdp_bench")

# What the framework leaves to the user, or does otherwise.
PEERS = {
    "flower": "simulation on Ray, an actor a core, one PyTorch thread each; clip and "
    "noise at the server by Flower",
    "fedjax": "jit backend; FedJAX has no central DP: clip by its tree functions, "
    "noise by jax.random",
    "pfl": "a worker process a core, one PyTorch thread each; clip and noise by "
    "pfl's central Gaussian mechanism",
}


def peer_subjects(peers: Iterable[str]) -> list[Subject]:
    """The peers' programs, those that can be installed here."""
    subjects = []
    for peer in peers:
        try:
            install(peer)
        except subprocess.CalledProcessError as error:
            _LOG.warning("%s is left out: %s", peer, error)
        else:
            subjects.append(_subject(peer))
    return subjects


def _subject(peer: str) -> Subject:
    python = children.FOLDER / ".venvs" / peer / "bin" / "python"
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
