import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import partition
from tff_hdp.errors import ArgumentError


def assert_is_partition(parts, num_rows):
    """Loses nothing, repeats nothing, leaves no client empty."""
    assert all(len(part) > 0 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(num_rows))


@st.composite
def rows_and_clients(draw):
    num_rows = draw(st.integers(1, 300))
    return num_rows, draw(st.integers(1, num_rows)), draw(st.integers(0, 2**32))


@given(rows_and_clients())
def test_iid_is_a_partition_of_equal_parts(case):
    num_rows, num_clients, seed = case
    parts = partition.iid(num_rows, num_clients, np.random.default_rng(seed))
    assert len(parts) == num_clients
    assert_is_partition(parts, num_rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(
    rows_and_clients(),
    st.integers(1, 20),
    st.floats(partition.LEAST_ALPHA, 1e6),
)
def test_dirichlet_is_a_partition_of_equal_parts(case, num_classes, alpha):
    num_rows, num_clients, seed = case
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_rows)
    parts = partition.dirichlet(labels, num_clients, alpha, rng)
    assert len(parts) == num_clients
    assert_is_partition(parts, num_rows)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=200))
def test_by_writer_is_a_partition_by_writer(writers):
    writers = np.array(writers)
    ids, parts = partition.by_writer(writers, None, np.random.default_rng(0))
    assert_is_partition(parts, len(writers))
    assert ids == tuple(sorted(set(writers)))
    for name, part in zip(ids, parts, strict=True):
        assert set(writers[part]) == {name}


@given(
    st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=99), st.integers(0, 99)
)
def test_some_writers_keep_all_their_rows(writers, seed):
    writers = np.array(writers)
    wanted = (len(set(writers)) + 1) // 2
    ids, parts = partition.by_writer(writers, wanted, np.random.default_rng(seed))
    assert len(set(ids)) == wanted
    for name, part in zip(ids, parts, strict=True):
        np.testing.assert_array_equal(np.sort(part), np.flatnonzero(writers == name))


def test_each_writer_is_drawn_equally_often():
    writers = np.repeat(np.array(list("abcde")), 3)
    rng = np.random.default_rng(7)
    counts = dict.fromkeys("abcde", 0)
    for _ in range(2000):
        for name in partition.by_writer(writers, 2, rng)[0]:
            counts[name] += 1
    # Binomial(2000, 2/5): mean 800, standard deviation 21.9; five of them.
    assert all(abs(count - 800) < 110 for count in counts.values()), counts


def distance_to_population(parts, labels, num_classes):
    """Mean total variation between a client's classes and the whole set's."""
    whole = np.bincount(labels, minlength=num_classes) / len(labels)
    shares = [np.bincount(labels[p], minlength=num_classes) / len(p) for p in parts]
    return np.mean([np.abs(share - whole).sum() / 2 for share in shares])


def test_alpha_moves_from_single_class_clients_to_iid():
    rng = np.random.default_rng(3)
    labels = rng.integers(10, size=20_000)

    def distance(alpha):
        parts = partition.dirichlet(labels, 100, alpha, rng)
        return distance_to_population(parts, labels, 10)

    iid = distance_to_population(partition.iid(20_000, 100, rng), labels, 10)
    distances = [distance(alpha) for alpha in (1e-3, 1.0, 10.0, 1e5)]
    assert distances == sorted(distances, reverse=True)
    # Almost a single class each: total variation 1 - 1/10, less what the
    # clients served last get from the remains of exhausted classes.
    assert distances[0] > 0.7
    assert abs(distances[-1] - iid) < 0.01


def test_first_mixtures_follow_the_dirichlet_law():
    # While no class is near its end, a client's share of a class has the
    # variance of the Dirichlet-multinomial: p(1-p)(m + a)/(m(1 + a)), here with
    # the concentrations adding up to a, m draws and p = 1/4.
    labels = np.repeat(np.arange(4), 10_000)
    alpha, size, p = 2.0, 50, 0.25
    rng = np.random.default_rng(5)
    parts = partition.dirichlet(labels, 800, alpha, rng)
    shares = np.array([np.mean(labels[part] == 0) for part in parts])
    expected = p * (1 - p) * (size + alpha) / (size * (1 + alpha))
    assert abs(shares.mean() - p) < 1e-12  # all rows are dealt
    # Exhaustion moves only the last few of 800 clients; 10 % covers that and
    # sampling error (relative standard error of the variance about 5 %).
    assert abs(shares.var() / expected - 1) < 0.15


@pytest.mark.parametrize("num_clients", [0, -1, 11, 2.5, np.nan, np.inf, "3"])
def test_impossible_numbers_of_clients_are_refused(num_clients):
    labels, rng = np.zeros(10, int), np.random.default_rng(0)
    message = f"num_clients is {num_clients!r}; allowed: 1..10 .the"
    with pytest.raises(ArgumentError, match=message):
        partition.iid(10, num_clients, rng)
    with pytest.raises(ArgumentError, match=message):
        partition.dirichlet(labels, num_clients, 1.0, rng)
    with pytest.raises(ArgumentError, match=message):
        partition.by_writer(np.arange(10).astype(str), num_clients, rng)


def test_the_least_alpha_gives_every_client_one_class():
    labels, rng = np.arange(10_000) % 10, np.random.default_rng(0)
    parts = partition.dirichlet(labels, 50, partition.LEAST_ALPHA, rng)
    # Those served last take what is left of several classes.
    assert np.median([len(set(labels[part])) for part in parts]) == 1


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1e-300, np.nan, np.inf])
def test_impossible_alphas_are_refused(alpha):
    with pytest.raises(ArgumentError, match="dirichlet_alpha is"):
        partition.dirichlet(np.zeros(10, int), 2, alpha, np.random.default_rng(0))


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(0, 60), st.integers(0, 2**32))
def test_by_classes_gives_two_classes_and_loses_nothing(num_classes, more, seed):
    rng = np.random.default_rng(seed)
    num_clients = num_classes + more
    labels = rng.permutation(np.repeat(np.arange(num_classes), 10 * num_clients))
    parts = partition.by_classes(labels, num_clients, rng)
    assert_is_partition(parts, len(labels))
    assert len(parts) == num_clients
    for part in parts:
        assert len(np.unique(labels[part])) == 2


def test_by_classes_differs_in_size_as_stated():
    """All of a class's clients have 0.4..0.6 shares: sizes within 2:3 of each other."""
    labels = np.repeat(np.arange(10), 4800)
    parts = partition.by_classes(labels, 100, np.random.default_rng(1))
    users_of, pairs = np.zeros(10, int), set()
    for part in parts:
        counts = np.bincount(labels[part], minlength=10)
        users_of += counts > 0
        pairs.add(tuple(np.flatnonzero(counts)))
        # 4800 rows over 20 users at shares within 0.4/0.6 of one another.
        assert counts[counts > 0].min() >= 4800 / 20 * 0.4 / 0.6
        assert counts.max() <= 4800 / 20 * 0.6 / 0.4
    assert users_of.tolist() == [20] * 10
    # Of 45; ten if a class's users shared their other class too.
    assert len(pairs) > 20
    sizes = [len(part) for part in parts]
    assert np.std(sizes) > 20


@pytest.mark.parametrize(
    ("labels", "num_clients", "message"),
    [
        (np.arange(10), 9, "num_clients is 9"),
        (np.zeros(5, int), 2, "labels is of 1 class"),
        (np.repeat([0, 1], 10), 20, "a client would be empty"),
    ],
)
def test_by_classes_refuses(labels, num_clients, message):
    with pytest.raises(ArgumentError, match=message):
        partition.by_classes(labels, num_clients, np.random.default_rng(0))
