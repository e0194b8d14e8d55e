"""Flower: FedAvg with server-side fixed clipping in its simulation on Ray."""

import numpy as np
import works
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from peers import torch_network
from peers.flower import simulation
from serving import read_spec, serve


class FlowerFederation:
    """Rounds of Flower's strategy on its grid of simulated clients.

    Args:
      work: What to run.
      grid: Reaches the clients.
      noise_multiplier: z.
    """

    def __init__(self, work: works.Work, grid: Grid, noise_multiplier: float) -> None:
        self._grid = grid
        self._network = torch_network.Network(work)
        self._arrays = ArrayRecord(self._network.state_dict())
        self._strategy = simulation.build_strategy(work, noise_multiplier)

    def round(self) -> None:
        """Runs one round."""
        result = self._strategy.start(self._grid, self._arrays, num_rounds=1)
        if not result.arrays:
            raise RuntimeError("no client's update arrived")
        self._arrays = result.arrays

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        self._network.load_state_dict(self._arrays.to_torch_state_dict())
        return torch_network.from_torch(list(self._network.parameters()))


def main() -> None:
    """Serves rounds of the spec's work from inside the simulation."""
    spec = read_spec()
    work = spec["work"]

    def run(grid: Grid) -> None:
        def build(*, noise_multiplier: float) -> FlowerFederation:
            return FlowerFederation(work, grid, noise_multiplier)

        serve(build, spec["replies"])

    simulation.simulate(work, run)


if __name__ == "__main__":
    main()
