"""pfl-research's loop: `FederatedAveraging.run` with its callbacks.

`CentralEvaluationCallback` tests, each worker its share of the test set, and
`RestoreTrainingCallback` saves what a run goes on from.
"""

from peers.pfl import workers

if __name__ == "__main__":
    workers.start(__spec__.name)  # before pfl is imported

import pathlib
from typing import Any

import torch
from peers import torch_network
from peers.pfl.training import Training
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.hyperparam import NNEvalHyperParams
from pfl.metrics import Metrics, StringMetricName, get_overall_value
from recording import Recorder
from serving import read_spec

_TEST_BATCH = 512


class Telling(TrainingProcessCallback):
    """The last of the callbacks, which tells of every round's end.

    Args:
      spec: The program's.
      training: What runs.
      folder: Where its checkpoints are.
    """

    def __init__(
        self, spec: dict[str, Any], training: Training, folder: pathlib.Path
    ) -> None:
        self._training, self._path = training, folder / "checkpoint.pt"
        self.recorder = Recorder(spec)

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Notes what the callbacks before came to."""
        accuracy = None
        if central_iteration:  # pfl tests before the first iteration and not after it
            tested = aggregate_metrics[StringMetricName("Central val | accuracy")]
            accuracy = float(get_overall_value(tested))
        self.recorder.end(accuracy=accuracy, checkpoint=self._path)
        if self.recorder.reads:
            saved = torch_network.from_torch(list(torch.load(self._path).values()))
            self.recorder.keep(self._training.weights(), saved)
        return False, Metrics()


def main() -> None:
    """Runs the spec's rounds, of which the first worker tells."""
    spec = read_spec()
    work = spec["work"]
    torch.set_num_threads(1)
    training = Training(work, spec["noise_multiplier"])
    test = Dataset(torch_network.test_tensors(work))
    # Every worker's own, as on machines of their own.
    folder = pathlib.Path(spec["out"]) / str(workers.rank())
    callbacks = [
        CentralEvaluationCallback(
            test, NNEvalHyperParams(local_batch_size=_TEST_BATCH)
        ),
        RestoreTrainingCallback([training.model, training.algorithm], str(folder)),
    ]
    if not workers.rank():
        telling = Telling(spec, training, folder)
        callbacks.append(telling)
    training.run(spec["rounds"], callbacks, tell=True)
    if not workers.rank():
        telling.recorder.write()


if __name__ == "__main__":
    main()
