"""pfl-research: FederatedAveraging on PyTorch, one process a core.

Clipping and noise are pfl's central Gaussian mechanism. The processes share the
cohort as pfl does on a cluster: each samples the same users, trains its part, and
the sums meet in an all-reduce. The first takes requests and passes them on.
"""

import os
import socket
import subprocess
import sys
from typing import Any

_RANK = "PFL_WORKER_RANK"
_ADDRESSES = "PFL_WORKER_ADDRESSES"
_BUILD, _ROUND, _END = range(3)


def start_workers() -> None:
    """Makes this one of as many workers as there are cores, starting the others."""
    if _RANK in os.environ:
        return
    count = len(os.sched_getaffinity(0))
    addresses = ",".join(f"localhost:{_free_port()}" for _ in range(count))
    os.environ.update({_ADDRESSES: addresses, _RANK: "0", "OMP_NUM_THREADS": "1"})
    for rank in range(1, count):
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, *sys.argv[1:]],
            env={**os.environ, _RANK: str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    start_workers()  # pfl reads its worker's address while it is imported

import numpy as np  # noqa: E402
import torch  # noqa: E402
import works  # noqa: E402
from peers import torch_network  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from pfl.privacy.gaussian_mechanism import GaussianMechanism  # noqa: E402
from pfl.privacy.privacy_mechanism import (  # noqa: E402
    CentrallyAppliedPrivacyMechanism,
)
from serving import read_spec, serve  # noqa: E402


class LossNetwork(torch_network.Network):
    """The network with the methods pfl asks for."""

    def loss(self, x: Any, y: Any) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: Any, y: Any) -> dict[str, Any]:
        """None are asked for."""
        return {}


class PflFederation:
    """pfl's training process over the work's clients.

    Args:
      work: What to run.
      noise_multiplier: z.
    """

    def __init__(self, work: works.Work, noise_multiplier: float) -> None:
        np.random.seed(0)  # who samples what must be the same on all workers
        self._work = work
        self._network = LossNetwork(work)
        self._model = PyTorchModel(
            self._network,
            torch.optim.SGD,
            torch.optim.SGD(self._network.parameters(), lr=1.0),
        )
        users = list(range(work.clients))
        data = {
            user: Dataset(torch_network.client_tensors(work, user), user_id=user)
            for user in users
        }
        sampler = get_user_sampler("minimize_reuse", users)
        self._backend = SimulatedBackend(
            training_data=FederatedDataset(data.__getitem__, sampler),
            val_data=None,
            postprocessors=[
                CentrallyAppliedPrivacyMechanism(
                    GaussianMechanism(work.clip_norm, noise_multiplier)
                )
            ],
        )
        self._algorithm = FederatedAveraging()
        self._rounds = 0

    def round(self) -> None:
        """Runs one central iteration."""
        self._rounds += 1
        self._algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=self._rounds,
                evaluation_frequency=10**9,
                train_cohort_size=self._work.clients,
                val_cohort_size=None,
            ),
            self._backend,
            self._model,
            NNTrainHyperParams(
                local_num_epochs=self._work.epochs,
                local_learning_rate=self._work.learning_rate,
                local_batch_size=self._work.batch_size,
            ),
            send_metrics_to_platform=False,
        )

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        return torch_network.from_torch(list(self._network.parameters()))


class _Announced:
    """A federation that all workers build and run when the first one does."""

    def __init__(self, work: works.Work, noise_multiplier: float) -> None:
        _announce(_BUILD, noise_multiplier)
        self._inner = PflFederation(work, noise_multiplier)
        self.weights = self._inner.weights

    def round(self) -> None:
        _announce(_ROUND)
        self._inner.round()


def _announce(action: int, value: float = 0.0) -> None:
    torch.distributed.broadcast(torch.tensor([action, value], dtype=torch.float64), 0)


def _follow(work: works.Work) -> None:
    federation = None
    message = torch.zeros(2, dtype=torch.float64)
    while True:
        torch.distributed.broadcast(message, 0)
        action, value = message.tolist()
        if action == _END:
            return
        if action == _BUILD:
            federation = PflFederation(work, value)
        else:
            federation.round()


def main() -> None:
    """Serves rounds of the spec's work, or follows the worker that does."""
    spec = read_spec()
    work = spec["work"]
    torch.set_num_threads(1)
    if os.environ[_RANK] != "0":
        _follow(work)
        return

    def build(*, noise_multiplier: float) -> _Announced:
        return _Announced(work, noise_multiplier)

    serve(build, spec["replies"])
    _announce(_END)


if __name__ == "__main__":
    main()
