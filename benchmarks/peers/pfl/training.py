"""pfl's federated averaging of a work on PyTorch, for the programs on pfl-research."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import works
from peers import torch_network
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism


class Network(torch_network.Network):
    """The network with the methods pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """The accuracy, weighted by examples."""
        right = torch_network.accuracy(self, x, y) * len(y)
        return {"accuracy": Weighted(right, len(y))}


class Training:
    """pfl's training process over the work's clients.

    Clipping and noise are pfl's central Gaussian mechanism.

    Args:
      work: What to run.
      noise_multiplier: z.

    Attributes:
      network: What is trained.
      model: It, as pfl has it.
      algorithm: Knows how many iterations were run.
    """

    def __init__(self, work: works.Work, noise_multiplier: float) -> None:
        np.random.seed(0)  # who samples what must be the same on all workers
        self._work = work
        self.network = Network(work)
        self.model = PyTorchModel(
            self.network,
            torch.optim.SGD,
            torch.optim.SGD(self.network.parameters(), lr=1.0),
        )
        self.algorithm = FederatedAveraging()
        users = list(range(work.registered or work.clients))
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

    def run(
        self,
        iterations: int,
        callbacks: Sequence[TrainingProcessCallback] = (),
        *,
        tell: bool = False,
    ) -> None:
        """Runs central iterations until there were so many in all.

        Args:
          iterations: How many.
          callbacks: Called after each.
          tell: Whether pfl prints their metrics, as it does by itself.
        """
        self.algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=iterations,
                evaluation_frequency=10**9,
                train_cohort_size=self._work.clients,
                val_cohort_size=None,
            ),
            self._backend,
            self.model,
            NNTrainHyperParams(
                local_num_epochs=self._work.epochs,
                local_learning_rate=self._work.learning_rate,
                local_batch_size=self._work.batch_size,
            ),
            callbacks=list(callbacks),
            send_metrics_to_platform=tell,
        )

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        return torch_network.from_torch(list(self.network.parameters()))
