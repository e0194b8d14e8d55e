"""Peers, each in a virtual environment of its own under .venvs.

python benchmarks/environments.py flower fedjax pfl
"""

import hashlib
import logging
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Iterator

import children
import machine
from measure import Subject

_LOG = logging.getLogger("tff_hdp_bench")

# What the framework leaves to the user, or does otherwise.
ROUNDS = {
    "flower": "simulation on Ray, an actor a core, one PyTorch thread each; clip and "
    "noise at the server by Flower",
    "fedjax": "jit backend; FedJAX has no central DP: clip by its tree functions, "
    "noise by jax.random",
    "pfl": "a worker process a core, one PyTorch thread each; clip and noise by "
    "pfl's central Gaussian mechanism",
}
# What loop it is.
LOOPS = {
    "flower": "Strategy.start, whose evaluate_fn tests the model and saves it with "
    "torch.save",
    "fedjax": "run_federated_experiment with ModelFullEvaluationFn",
    "pfl": "FederatedAveraging.run with CentralEvaluationCallback and "
    "RestoreTrainingCallback",
}


def round_subjects(peers: Iterable[str]) -> list[Subject]:
    """The peers' programs of single rounds, those that can be installed here."""
    return [
        Subject(peer, peer, f"peers.{peer}.program", str(python), notes=ROUNDS[peer])
        for peer, python in _installed(peers, loop=False)
    ]


def loop_subjects(peers: Iterable[str]) -> list[Subject]:
    """The peers' programs of whole loops, those that can be installed here."""
    return [
        Subject(peer, peer, f"peers.{peer}.loop", str(python), notes=LOOPS[peer])
        for peer, python in _installed(peers, loop=True)
    ]


def _installed(
    peers: Iterable[str], *, loop: bool
) -> Iterator[tuple[str, pathlib.Path]]:
    for peer in peers:
        try:
            yield peer, install(peer, loop=loop)
        except subprocess.CalledProcessError as error:
            _LOG.warning("%s is left out: %s", peer, error)


def install(peer: str, *, loop: bool = False) -> pathlib.Path:
    """Makes a peer's environment unless it is there, of today's requirements.

    Args:
      peer: Name of its folder under peers.
      loop: Whether its own loop is to run there. That may need more, in which case it
        is an environment beside the other one; so is one for GPUs, where there are any
        that are not hidden.

    Returns:
      The environment's interpreter.

    Raises:
      subprocess.CalledProcessError: If pip fails; it says why on stderr.
    """
    name, files = peer, [children.FOLDER / "peers" / peer / "requirements.txt"]
    for kind, asked in (("loop", loop), ("gpu", bool(machine.gpus()))):
        more = files[0].with_name(f"{kind}_requirements.txt")
        if asked and more.exists():
            name, files = f"{name}_{kind}", [*files, more]
    folder = children.FOLDER / ".venvs" / name
    python, stamp = folder / "bin" / "python", folder / "installed"
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return python
    print(f"installing {peer} into {folder}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    listed = [word for file in files for word in ("-r", str(file))]
    subprocess.run([*pip, *listed], check=True, stdout=sys.stderr)
    stamp.write_text(digest.hexdigest())
    return python


if __name__ == "__main__":
    for name in sys.argv[1:]:
        install(name)
