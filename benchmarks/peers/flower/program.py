"""Flower: FedAvg with server-side fixed clipping in its simulation on Ray.

One actor a core, each with one PyTorch thread.
"""

import os

# Before Flower is imported: nothing is to leave the machine.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import traceback

import numpy as np
import works
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.simulation import run_simulation
from peers import torch_network
from peers.flower.client import build_client_app
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
        self._strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_evaluate=0.0, min_available_nodes=work.clients),
            noise_multiplier=noise_multiplier,
            clipping_norm=work.clip_norm,
            num_sampled_clients=work.clients,
        )

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
    server_app = ServerApp()

    @server_app.main()
    def run(grid: Grid, context: Context) -> None:
        def build(*, noise_multiplier: float) -> FlowerFederation:
            return FlowerFederation(work, grid, noise_multiplier)

        serve(build, spec["replies"])

    cores = len(os.sched_getaffinity(0))
    try:
        run_simulation(
            server_app,
            build_client_app(work),
            num_supernodes=work.clients,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0},
                "init_args": {"num_cpus": cores, "include_dashboard": False},
            },
        )
    except Exception:
        # The thread that serves would wait for its round for ever.
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
