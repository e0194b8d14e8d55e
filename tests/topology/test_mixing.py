import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.topology import mixing


def test_the_gap_is_whole_where_one_step_agrees_and_none_where_nobody_mixes():
    assert mixing.spectral_gap(np.full([3, 3], 1 / 3)) == pytest.approx(1.0)
    assert mixing.spectral_gap(np.eye(4)) == pytest.approx(0.0)
    assert mixing.spectral_gap(np.eye(1)) == 1.0


@pytest.mark.parametrize("size", [3, 4, 7, 12])
def test_metropolis_on_a_ring_against_its_circulant_spectrum(size):
    # Every weight is 1/3: eigenvalues 1/3 + 2/3 cos(2 pi j / s).
    matrix = mixing.metropolis(nx.cycle_graph(size))
    spectrum = 1 / 3 + 2 / 3 * np.cos(2 * np.pi * np.arange(1, size) / size)
    assert mixing.spectral_gap(matrix) == pytest.approx(1 - np.abs(spectrum).max())


def test_metropolis_on_a_star_by_hand():
    matrix = mixing.metropolis(nx.star_graph(3))
    expected = np.array(
        [[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]], np.float64
    )
    np.testing.assert_allclose(matrix, expected / 4)


def test_metropolis_weighs_an_edge_by_its_own_ends_by_hand():
    """Four in a clique, one with a tail of three: degrees 3, 3, 3, 4, 2, 2, 1."""
    matrix = mixing.metropolis(nx.lollipop_graph(4, 3))
    expected = [
        [0.3, 1 / 4, 1 / 4, 1 / 5, 0, 0, 0],
        [1 / 4, 0.3, 1 / 4, 1 / 5, 0, 0, 0],
        [1 / 4, 1 / 4, 0.3, 1 / 5, 0, 0, 0],
        [1 / 5, 1 / 5, 1 / 5, 1 / 5, 1 / 5, 0, 0],
        [0, 0, 0, 1 / 5, 7 / 15, 1 / 3, 0],
        [0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3],
        [0, 0, 0, 0, 0, 1 / 3, 2 / 3],
    ]
    np.testing.assert_allclose(matrix, expected)


def test_metropolis_sees_who_is_linked_and_nothing_else_of_a_graph():
    """Loops, links that are given twice, weights and the order of nodes."""
    graph = nx.MultiGraph()
    graph.add_nodes_from([3, 1, 0, 2])
    graph.add_edges_from([(0, 1), (0, 2), (0, 3), (3, 0), (1, 1)], weight=0.25)
    expected = mixing.metropolis(nx.star_graph(3))
    np.testing.assert_array_equal(mixing.metropolis(graph), expected)


@given(size=st.integers(1, 15), p=st.floats(0, 1), seed=st.integers(0, 1000))
def test_metropolis_is_doubly_stochastic_on_any_graph(size, p, seed):
    graph = nx.gnp_random_graph(size, p, seed=seed)
    matrix = mixing.metropolis(graph)
    mixing.check_mixing(matrix, doubly_stochastic=True)
    linked = nx.to_numpy_array(graph, nodelist=range(size)) > 0
    assert not matrix[~(linked | np.eye(size, dtype=bool))].any()
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0)
    # Half its own model keeps every eigenvalue at 0 or above, so that no pair of
    # models swaps places for ever.
    gap = mixing.spectral_gap((np.eye(size) + matrix) / 2)
    assert (gap > 1e-9) == (size == 1 or nx.is_connected(graph))


def test_the_gap_bounds_how_fast_models_agree():
    matrix = mixing.metropolis(nx.petersen_graph())
    values = np.random.default_rng(0).normal(size=10)
    spread = values - values.mean()
    mixed = np.linalg.matrix_power(matrix, 9) @ values
    assert mixed.mean() == pytest.approx(values.mean())
    bound = (1 - mixing.spectral_gap(matrix)) ** 9 * np.linalg.norm(spread)
    assert np.linalg.norm(mixed - values.mean()) <= bound + 1e-12


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: mixing.metropolis(nx.Graph()), "graph is without nodes"),
        (lambda: mixing.metropolis(nx.DiGraph([(0, 1)])), "graph is directed"),
        (lambda: mixing.metropolis(nx.Graph([("a", "b")])), "nodes 0..1"),
        (lambda: mixing.check_mixing(np.ones((2, 3))), r"shape \(2, 3\)"),
        (
            lambda: mixing.check_mixing([[0.5, 0.4], [0, 1]]),
            r"matrix\[0\] is of sum 0.9",
        ),
        (lambda: mixing.check_mixing([[1.5, -0.5], [0, 1]]), r"\[0, 1\] is -0.5"),
        (
            lambda: mixing.check_mixing([[0.5, 0.5 + 1e-6], [0, 1]]),
            r"matrix\[0\] is of sum 1.000001",
        ),
        (lambda: mixing.spectral_gap([[0.5, 0.4], [0, 1]]), r"matrix\[0\] is of sum"),
        (lambda: mixing.check_mixing([[np.nan, 1], [0, 1]]), r"\[0, 0\] is nan"),
        (lambda: mixing.metropolis([1]), "graph is 1; allowed: a networkx.Graph"),
        (lambda: mixing.check_mixing([["x"]]), r"matrix is \['x'\]; allowed: numbers"),
        (lambda: mixing.check_mixing([[1], [0, 1]]), "allowed: numbers of shape"),
        (lambda: mixing.check_mixing(np.eye(2) + 0.1j), "allowed: numbers of shape"),
        (
            lambda: mixing.check_mixing([[0, 1], [0.5, 0.5]], doubly_stochastic=True),
            r"matrix\[0, 1\] is 1.0; allowed: 0.5, as \[1, 0\] has",
        ),
    ],
)
def test_bad_matrices_are_refused(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()
