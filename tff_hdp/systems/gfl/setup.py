"""Data, model, servers and graph of a GFL run."""

import networkx as nx
import numpy as np

import tasks
from tasks import gfl_logistic
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.gfl.config import LOGISTIC, GflConfig
from tff_hdp.topology import Zoning, equal_zones


def build_graph(config: GflConfig, seed: int) -> nx.Graph:
    """The graph of the servers, connected.

    Raises:
      ArgumentError: If `edge_probability` makes no connected graph in 1,000 draws.
    """
    size = config.servers
    if config.graph == "ring":
        return nx.cycle_graph(size) if size > 2 else nx.path_graph(size)
    if config.graph == "complete":
        return nx.complete_graph(size)
    for attempt in range(1000):
        drawn = np.random.default_rng([seed, attempt]).integers(2**32)
        graph = nx.gnp_random_graph(size, config.edge_probability, seed=int(drawn))
        if nx.is_connected(graph):
            return graph
    raise ArgumentError(
        "edge_probability", config.edge_probability, f"enough to join {size} servers"
    )


def load(config: GflConfig, seed: int) -> tasks.Task:
    """The task of a run: the paper's, or any other; model=softmax is convex there too.

    Args:
      config: The run's settings.
      seed: Decides the generated data, or which example goes to which client.

    Raises:
      ArgumentError: If a flag does not fit the task.
      DataNotFoundError: If its data is missing.
    """
    if config.task == LOGISTIC:
        return gfl_logistic.load(
            num_clients=config.num_clients or 500,
            examples_per_client=config.examples_per_client,
            dimension=config.dimension,
            seed=seed,
        )
    return config.load_task(seed)


def build_servers(config: GflConfig, task: tasks.Task, seed: int) -> Zoning:
    """Deals the clients to the servers.

    Raises:
      ArgumentError: If there are fewer clients, or examples, than are asked for.
    """
    clients, smallest = len(task.train.client_ids), task.train.sizes.min()
    if config.servers > clients:
        raise ArgumentError("servers", config.servers, f"1..{clients} (the clients)")
    if config.batch_size > smallest:
        raise ArgumentError(
            "batch_size",
            config.batch_size,
            f"at most {smallest}, the smallest client's examples",
        )
    rng = np.random.default_rng(seed)
    return equal_zones(task.train.client_ids, config.servers, rng=rng)


def side_by_side(servers: Zoning, repetitions: int) -> Zoning:
    """The same clients and servers once for every network."""
    networks = range(repetitions)
    return Zoning(
        client_ids=tuple(f"{r}/{c}" for r in networks for c in servers.client_ids),
        zone_of=tuple(
            r * servers.num_zones + p for r in networks for p in servers.zone_of
        ),
    )
