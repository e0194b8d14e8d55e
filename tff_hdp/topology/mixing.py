"""Mixing matrices: how the zones' results combine, w_p = sum_m A[p, m] psi_m.

Zones under one server use matrices whose rows are all p (every zone receives
the same mean); servers in a graph use symmetric doubly stochastic ones, under
which the average of all models is preserved (GFL).
"""

import networkx as nx
import numpy as np

from tff_hdp.errors import ArgumentError, require

_TOLERANCE = 1e-9


def metropolis(graph: nx.Graph) -> np.ndarray:
    """Metropolis weights on a graph: symmetric, doubly stochastic.

    a_pm = 1 / (1 + max(deg p, deg m)) on edges, the rest on the diagonal
    (Xiao, Boyd, Lall 2005, eq. 5). Self-loops count for nothing.

    Args:
      graph: Undirected; nodes 0..s-1.

    Returns:
      [s, s] float64, row p for node p.

    Raises:
      ArgumentError: If the graph is not a networkx one, is directed or empty, or its
        nodes are not 0..s-1.
    """
    require(isinstance(graph, nx.Graph), "graph", graph, "a networkx.Graph")
    if graph.is_directed():
        raise ArgumentError("graph", "directed", "an undirected one")
    size = graph.number_of_nodes()
    require(size >= 1, "graph", "without nodes", "a node for each zone")
    if set(graph) != set(range(size)):
        raise ArgumentError(
            "graph", f"of nodes {sorted(graph, key=str)}", f"nodes 0..{size - 1}"
        )
    adjacency = nx.to_numpy_array(graph, nodelist=range(size), weight=None)
    adjacency = np.minimum(adjacency, 1.0)
    np.fill_diagonal(adjacency, 0.0)
    degree = adjacency.sum(axis=1)
    matrix = adjacency / (1.0 + np.maximum.outer(degree, degree))
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return matrix


def check_mixing(
    matrix: np.ndarray, *, doubly_stochastic: bool = False, name: str = "matrix"
) -> np.ndarray:
    """Checks a mixing matrix before anything is averaged with it.

    Args:
      matrix: [s, s]; rows must be non-negative and sum to 1.
      doubly_stochastic: Whether it must also be symmetric (so that columns sum
        to 1 too).
      name: The argument's, for errors.

    Returns:
      The matrix as [s, s] float64.

    Raises:
      ArgumentError: If a condition fails, naming the row or entry and its value.
    """
    try:
        # Of complex numbers "unsafe" would take the real parts.
        matrix = np.asarray(matrix).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, matrix, "numbers of shape [s, s]") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ArgumentError(name, f"of shape {matrix.shape}", "shape [s, s]")
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= -_TOLERANCE)))
    if len(bad):
        p, m = bad[0]
        raise ArgumentError(f"{name}[{p}, {m}]", matrix[p, m], "[0, 1]")
    sums = matrix.sum(axis=1)
    p = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[p] - 1.0) > _TOLERANCE:
        raise ArgumentError(f"{name}[{p}]", f"of sum {sums[p]}", "rows that sum to 1")
    gaps = np.abs(matrix - matrix.T)
    if doubly_stochastic and gaps.max() > _TOLERANCE:
        p, m = np.unravel_index(gaps.argmax(), gaps.shape)
        raise ArgumentError(
            f"{name}[{p}, {m}]",
            matrix[p, m],
            f"{matrix[m, p]}, as [{m}, {p}] has, so that it is symmetric",
        )
    return matrix


def spectral_gap(matrix: np.ndarray) -> float:
    """1 - |lambda_2|: how fast repeated mixing forgets who started with what.

    1 for a mean (one step suffices), 0 where models never agree (identity, a
    graph in pieces).

    Args:
      matrix: [s, s] mixing matrix.

    Returns:
      A number in [0, 1]; 1 for a single zone.

    Raises:
      ArgumentError: If `matrix` is no mixing matrix.
    """
    matrix = check_mixing(matrix)
    if len(matrix) == 1:
        return 1.0
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1]
    return float(np.clip(1.0 - moduli[1], 0.0, 1.0))
