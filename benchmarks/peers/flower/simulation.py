"""What Flower's programs share: the simulation on Ray, and the strategy.

One actor a core, each with one PyTorch thread; they share the GPUs that are to be seen.
"""

import os
import traceback
from collections.abc import Callable

import torch
import works
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)
from flwr.simulation import run_simulation
from peers.flower.client import WEIGHT, build_client_app


def build_strategy(work: works.Work, noise_multiplier: float) -> Strategy:
    """Federated averaging with server-side fixed clipping.

    Args:
      work: What to run.
      noise_multiplier: z.
    """
    registered = work.registered or work.clients
    return DifferentialPrivacyServerSideFixedClipping(
        FedAvg(
            # Flower rounds the cohort down.
            fraction_train=min(1.0, (work.clients + 0.5) / registered),
            fraction_evaluate=0.0,
            min_train_nodes=work.clients,
            min_available_nodes=registered,
            weighted_by_key=WEIGHT,
        ),
        noise_multiplier=noise_multiplier,
        clipping_norm=work.clip_norm,
        num_sampled_clients=work.clients,
    )


def simulate(work: works.Work, serve: Callable[[Grid], None]) -> None:
    """Runs `serve` as the server among the work's simulated clients.

    Args:
      work: Whose clients.
      serve: Is given what reaches them.
    """
    server_app = ServerApp()

    @server_app.main()
    def run(grid: Grid, context: Context) -> None:
        serve(grid)

    cores = len(os.sched_getaffinity(0))
    gpus = torch.cuda.device_count()
    try:
        run_simulation(
            server_app,
            build_client_app(work),
            num_supernodes=work.registered or work.clients,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": gpus / cores},
                "init_args": {
                    **{"num_cpus": cores, "num_gpus": gpus},
                    "include_dashboard": False,
                },
            },
        )
    except Exception:
        # The thread that serves would wait for its round for ever.
        traceback.print_exc()
        os._exit(1)
