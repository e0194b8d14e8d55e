"""Flower's loop: `Strategy.start`, whose evaluation function tests and saves the model.

As Flower's guide to checkpoints has it.
"""

import pathlib
from typing import Any

import torch
import works
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import Grid
from peers import torch_network
from peers.flower import simulation
from recording import Recorder
from serving import read_spec


class Evaluation:
    """Tests the global model after each round and writes it to a file.

    Args:
      spec: The program's.
      network: Any of the work's, to test with.
    """

    def __init__(self, spec: dict[str, Any], network: torch_network.Network) -> None:
        self._folder = pathlib.Path(spec["out"])
        self._network = network
        self._x, self._y = torch_network.test_tensors(spec["work"])
        self.recorder = Recorder(spec)

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """Tests and saves; round 0 is before the first."""
        state = arrays.to_torch_state_dict()
        self._network.load_state_dict(state)
        accuracy = torch_network.accuracy(self._network, self._x, self._y)
        if server_round:
            path = self._folder / f"model_{server_round}.pt"
            torch.save(state, path)
            self.recorder.end(accuracy=accuracy, checkpoint=path)
            if self.recorder.reads:
                current, saved = (
                    torch_network.from_torch(list(weights.values()))
                    for weights in (state, torch.load(path))
                )
                self.recorder.keep(current, saved)
        return MetricRecord({"accuracy": accuracy})


def main() -> None:
    """Runs the spec's rounds inside the simulation."""
    spec = read_spec()
    work: works.Work = spec["work"]

    def run(grid: Grid) -> None:
        network = torch_network.Network(work)
        evaluation = Evaluation(spec, network)
        simulation.build_strategy(work, spec["noise_multiplier"]).start(
            grid,
            ArrayRecord(network.state_dict()),
            num_rounds=spec["rounds"],
            evaluate_fn=evaluation,
        )
        evaluation.recorder.write()

    simulation.simulate(work, run)


if __name__ == "__main__":
    main()
