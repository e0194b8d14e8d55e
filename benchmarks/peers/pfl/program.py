"""pfl-research: FederatedAveraging on PyTorch, one process a core.

The first process takes requests and passes them on.
"""

from peers.pfl import workers

if __name__ == "__main__":
    workers.start(__spec__.name)  # before pfl is imported

import torch
import works
from peers.pfl.training import Training
from peers.torch_network import DEVICE
from serving import read_spec, serve

_BUILD, _ROUND, _END = range(3)


class PflFederation:
    """Single iterations of pfl's training process.

    Args:
      work: What to run.
      noise_multiplier: z.
    """

    def __init__(self, work: works.Work, noise_multiplier: float) -> None:
        self._training = Training(work, noise_multiplier)
        self._rounds = 0
        self.weights = self._training.weights

    def round(self) -> None:
        """Runs one central iteration."""
        self._rounds += 1
        self._training.run(self._rounds)


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
    message = torch.tensor([action, value], dtype=torch.float64, device=DEVICE)
    if torch.distributed.is_initialized():  # not of one worker
        torch.distributed.broadcast(message, 0)


def _follow(work: works.Work) -> None:
    federation = None
    message = torch.zeros(2, dtype=torch.float64, device=DEVICE)
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
    if workers.rank():
        _follow(work)
        return

    def build(*, noise_multiplier: float) -> _Announced:
        return _Announced(work, noise_multiplier)

    serve(build, spec["replies"])
    _announce(_END)


if __name__ == "__main__":
    main()
