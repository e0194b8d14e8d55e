"""Mixing matrices: how the zones' results combine, w_p = sum_m A[p, m] psi_m.

Zones under one server use matrices whose rows are all p (every zone receives
the same mean); servers in a graph use symmetric doubly stochastic ones, under
which the average of all models is preserved (GFL).
"""

import math
from collections.abc import Sequence

import networkx as nx
import numpy as np

_TOLERANCE = 1e-9


def weighted_mean(weights: Sequence[float]) -> np.ndarray:
    """Every zone receives the mean with weights p_i proportional to `weights`.

    Args:
      weights: [s] non-negative, not all zero; D_i in HDP.

    Returns:
      [s, s] float64, all rows p.

    Raises:
      ValueError: If a weight is negative or not finite, or all are zero.
    """
    weights = np.asarray(weights, np.float64)
    for i, weight in enumerate(weights):
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"weights[{i}] is {weight}; allowed is a finite number >= 0"
            )
    if not weights.sum() > 0:
        raise ValueError(f"weights sum to {weights.sum()}; one must be positive")
    return np.tile(weights / weights.sum(), (len(weights), 1))


def equal_mean(num_zones: int) -> np.ndarray:
    """Every zone receives the plain mean, 1/s each. Returns [s, s] float64."""
    _check_count(num_zones)
    return np.full((num_zones, num_zones), 1.0 / num_zones)


def identity(num_zones: int) -> np.ndarray:
    """Zones keep their own results (HierFAVG's edge rounds). [s, s] float64."""
    _check_count(num_zones)
    return np.eye(num_zones)


def metropolis(graph: nx.Graph) -> np.ndarray:
    """Metropolis weights on a graph: symmetric, doubly stochastic.

    a_pm = 1 / (1 + max(deg p, deg m)) on edges, the rest on the diagonal
    (Xiao, Boyd, Lall 2005, eq. 5). Self-loops count for nothing.

    Args:
      graph: Undirected; nodes 0..s-1.

    Returns:
      [s, s] float64, row p for node p.

    Raises:
      ValueError: If the graph is directed or its nodes are not 0..s-1.
    """
    if graph.is_directed():
        raise ValueError("graph is directed; mixing needs an undirected one")
    size = graph.number_of_nodes()
    _check_count(size)
    if set(graph) != set(range(size)):
        raise ValueError(
            f"graph has nodes {sorted(graph, key=str)}; give 0..{size - 1}"
        )
    adjacency = nx.to_numpy_array(graph, nodelist=range(size), weight=None)
    adjacency = np.minimum(adjacency, 1.0)
    np.fill_diagonal(adjacency, 0.0)
    degree = adjacency.sum(axis=1)
    matrix = adjacency / (1.0 + np.maximum.outer(degree, degree))
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    return matrix


def lazy(matrix: np.ndarray, *, laziness: float = 0.5) -> np.ndarray:
    """Keeps a share of the own model: laziness * I + (1 - laziness) * A.

    With laziness 1/2 no eigenvalue is negative, so a doubly stochastic A on a
    connected graph mixes even where A alone would oscillate.

    Raises:
      ValueError: If `matrix` is no mixing matrix or `laziness` not in [0, 1).
    """
    if not 0.0 <= laziness < 1.0:
        raise ValueError(f"laziness is {laziness}; allowed is [0, 1)")
    matrix = check_mixing(matrix)
    return laziness * np.eye(len(matrix)) + (1.0 - laziness) * matrix


def check_mixing(
    matrix: np.ndarray,
    *,
    doubly_stochastic: bool = False,
    graph: nx.Graph | None = None,
) -> np.ndarray:
    """Checks a mixing matrix before anything is averaged with it.

    Args:
      matrix: [s, s]; rows must be non-negative and sum to 1.
      doubly_stochastic: Whether it must also be symmetric (so that columns sum
        to 1 too).
      graph: If given, entries off the diagonal must lie on its edges.

    Returns:
      The matrix as [s, s] float64.

    Raises:
      ValueError: If a condition fails, naming the row or entry and its value.
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"mixing matrix has shape {matrix.shape}; give [s, s]")
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= -_TOLERANCE)))
    if len(bad):
        p, m = bad[0]
        raise ValueError(
            f"mixing matrix [{p}, {m}] is {matrix[p, m]}; allowed is [0, 1]"
        )
    sums = matrix.sum(axis=1)
    p = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[p] - 1.0) > _TOLERANCE:
        raise ValueError(f"mixing matrix row {p} sums to {sums[p]}; it must sum to 1")
    gaps = np.abs(matrix - matrix.T)
    if doubly_stochastic and gaps.max() > _TOLERANCE:
        p, m = np.unravel_index(gaps.argmax(), gaps.shape)
        raise ValueError(
            f"mixing matrix is not symmetric: [{p}, {m}] is {matrix[p, m]}, "
            f"[{m}, {p}] is {matrix[m, p]}"
        )
    if graph is not None:
        _check_support(matrix, graph)
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
      ValueError: If `matrix` is no mixing matrix.
    """
    matrix = check_mixing(matrix)
    if len(matrix) == 1:
        return 1.0
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1]
    return float(np.clip(1.0 - moduli[1], 0.0, 1.0))


def _check_support(matrix: np.ndarray, graph: nx.Graph) -> None:
    for p, m in np.argwhere(matrix > _TOLERANCE):
        if p != m and not graph.has_edge(int(p), int(m)):
            raise ValueError(
                f"mixing matrix [{p}, {m}] is {matrix[p, m]}, but the graph has no "
                f"edge {p}-{m}"
            )


def _check_count(num_zones: int) -> None:
    if num_zones < 1:
        raise ValueError(f"num_zones is {num_zones}; allowed is >= 1")
