import itertools
import math
import random

import numpy as np
import pytest
import scipy.stats
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg import graphs, keys, masks, shamir
from tff_hdp.protocols.secagg.errors import BadKeyError

SEEDS = [bytes([i]) * 32 for i in range(5)]


def keystream(seed, size, dtype):
    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(size * dtype.itemsize)), dtype)


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4"])
@pytest.mark.parametrize("size", [0, 1, 1000, 131072, 300_001])
def test_masks_are_the_aes_key_stream(dtype, size):
    # Across blocks, against one call of the cipher for the whole stream.
    dtype = np.dtype(dtype)
    values = np.full(size, 3, dtype)
    masks.add_masks(values, plus=SEEDS[:2], minus=SEEDS[2:3])
    one, two, three = (keystream(seed, size, dtype) for seed in SEEDS[:3])
    np.testing.assert_array_equal(values, 3 + one + two - three)
    masks.add_masks(values, plus=SEEDS[2:3], minus=SEEDS[:2])
    assert (values == 3).all()


def test_bad_seeds_are_refused():
    with pytest.raises(ArgumentError, match="seed is of 31 bytes; allowed: 32 bytes"):
        masks.add_masks(np.zeros(1, np.uint32), plus=[bytes(31)])


@pytest.mark.parametrize("bound", [1, 2, 7, 1000])
def test_uniform_integers_below_a_bound(bound):
    drawn = masks.SecureRandom(SEEDS[1]).below(bound, 20_000)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    counts = np.bincount(drawn, minlength=bound)
    assert bound == 1 or scipy.stats.chisquare(counts).pvalue > 1e-4


def test_large_bounds_are_not_biased_to_the_low_half():
    # 2^64 is 5 and a third times the bound: without rejection the low third would
    # come up 6 times in 16.
    bound = 3 * 2**60
    drawn = masks.SecureRandom(SEEDS[2]).below(bound, 20_000)
    counts = np.bincount(drawn // 2**60, minlength=3)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_key_is_written_in_one_way():
    """Otherwise somebody else's could be sent as a new one."""
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    key = own.public_key().public_bytes_raw()
    keys.check_usable(key, "b")
    top_bit = key[:31] + bytes([key[31] ^ 128])
    # 9 is the base point, and so is 9 more than the field's prime.
    base, beyond = (n.to_bytes(32, "little") for n in (9, 2**255 - 10))
    for same, odd in ((key, top_bit), (base, beyond)):
        secrets = {
            other.exchange(X25519PublicKey.from_public_bytes(k)) for k in (same, odd)
        }
        assert len(secrets) == 1
        for refuse in (
            lambda odd=odd: keys.check_usable(odd, "b"),
            lambda odd=odd: keys.agree(other, odd, "b"),
        ):
            with pytest.raises(BadKeyError, match="key of 'b' is written otherwise"):
                refuse()


def is_probable_prime(n):
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True


def test_the_field_is_the_smallest_prime_above_every_secret():
    assert is_probable_prime(shamir.PRIME)
    assert not any(is_probable_prime(n) for n in range(2**256, shamir.PRIME))


@settings(deadline=None)
@given(data=st.data(), secret=st.binary(min_size=32, max_size=32))
def test_any_t_shares_give_the_secret(data, secret):
    n = data.draw(st.integers(1, 12))
    t = data.draw(st.integers(1, n))
    shares = shamir.split(secret, threshold=t, holders=n)
    chosen = data.draw(st.permutations(range(1, n + 1)))
    assert shamir.join({i: shares[i - 1] for i in chosen[:t]}) == secret
    assert shamir.join({i: shares[i - 1] for i in chosen}) == secret


def test_fewer_shares_fit_every_secret():
    # For t - 1 shares and any secret some polynomial fits them both: the one
    # through all these points. So they tell nothing.
    shares = shamir.split(b"\x01" * 32, threshold=3, holders=5)
    for secret in (0, 12345, 2**256 - 1):
        points = {
            i: int.from_bytes(s, "big") for i, s in enumerate(shares[:2], start=1)
        }
        # Lagrange through (0, secret), (1, ..), (2, ..) evaluated at 3.
        at_three = (secret - 3 * points[1] + 3 * points[2]) % shamir.PRIME
        forged = {1: shares[0], 2: shares[1], 3: at_three.to_bytes(33, "big")}
        assert shamir.join(forged) == secret.to_bytes(32, "big")


def test_a_single_share_looks_uniform():
    low = [shamir.split(bytes(32), threshold=2, holders=1 + 1)[0] for _ in range(2000)]
    counts = np.bincount([share[-1] // 16 for share in low], minlength=16)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_bad_sharings_are_refused():
    with pytest.raises(ArgumentError, match="secret is of 31 bytes; allowed: 32 b"):
        shamir.split(bytes(31), threshold=1, holders=1)
    with pytest.raises(ArgumentError, match=r"threshold is 4; allowed: 1\.\.3"):
        shamir.split(bytes(32), threshold=4, holders=3)
    # A sum that is no 32-byte secret: the largest residue.
    assert shamir.join({1: (shamir.PRIME - 1).to_bytes(33, "big")}) is None


@settings(deadline=None)
@given(k=st.integers(1, 40), half=st.integers(1, 6), seed=st.integers(0, 99))
def test_harary_graphs_are_regular_symmetric_and_connected(k, half, seed):
    ids = [f"c{i}" for i in range(k)]
    joined = graphs.neighbours(2 * half, ids, rng=random.Random(seed))
    assert set(joined) == set(ids)
    for client, peers in joined.items():
        assert len(peers) == min(2 * half, k - 1)
        assert client not in peers
        assert all(client in joined[peer] for peer in peers)
    assert graphs.is_connected(joined, ids)


def test_connectivity_of_what_is_left():
    ids = [str(i) for i in range(6)]
    ring = {str(i): frozenset({str((i + 1) % 6), str((i - 1) % 6)}) for i in range(6)}
    assert graphs.is_connected(ring, ids[:3])
    assert not graphs.is_connected(ring, ["0", "1", "3"])
    assert not graphs.is_connected(ring, [])


@pytest.mark.parametrize(("k", "bad", "degree"), [(30, 9, 8), (100, 20, 16)])
def test_tail_is_the_hypergeometric(k, bad, degree):
    law = scipy.stats.hypergeom(k - 1, bad, degree)
    for least in range(degree + 2):
        assert graphs._tail(k - 1, bad, degree, least) == pytest.approx(
            law.sf(least - 1), abs=1e-12
        )


def least_sparse(k, corrupt, dropout, security_bits, correctness_bits):
    """The first even degree, and its first threshold, that keep both promises."""
    bad, gone = max(int(corrupt * k), int(corrupt > 0)), int(dropout * k)
    error = 2.0**-security_bits / 2
    for degree in range(2, k - 1, 2):
        corrupted = scipy.stats.hypergeom(k - 1, bad, degree)
        dropped = scipy.stats.hypergeom(k - 1, gone, degree)
        # Two gaps on either side of which somebody is left.
        places = (k - np.arange(degree), bad + gone - np.arange(degree))
        cut = k * (k - 1) / 2 * np.prod(np.maximum(places[1], 0) / places[0])
        t = next(t for t in range(2, degree + 2) if k * corrupted.sf(t - 1) <= error)
        stays = k * dropped.sf(degree - t) <= 2.0**-correctness_bits
        if cut <= error and t <= degree + 1 and stays:
            return degree, t
    return None, k // 2 + 1


@pytest.mark.parametrize("k", [6, 10, 60, 100, 301, 1000])
@pytest.mark.parametrize(
    ("corrupt", "dropout", "security_bits", "correctness_bits"),
    [(0.1, 0.2, 40, 30), (0.0, 0.3, 40, 10), (0.3, 0.0, 20, 30), (0.05, 0.05, 20, 40)],
)
def test_the_sparsest_sound_graph_is_taken(
    k, corrupt, dropout, security_bits, correctness_bits
):
    given = corrupt, dropout, security_bits, correctness_bits
    found = graphs.sparse(
        k,
        corrupt=corrupt,
        dropout=dropout,
        security_bits=security_bits,
        correctness_bits=correctness_bits,
    )
    assert (found.degree, found.threshold) == least_sparse(k, *given)


def test_sparse_graphs_keep_their_promise_in_simulation():
    # At 5 bits the promises fail at most once in 32 rounds; count how often.
    k, corrupt, dropout = 60, 0.15, 0.25
    graph = graphs.sparse(
        k, corrupt=corrupt, dropout=dropout, security_bits=5, correctness_bits=5
    )
    assert graph.degree is not None
    rng = random.Random(1)
    ids = [f"c{i}" for i in range(k)]
    corrupted, dropped = set(ids[:9]), set(ids[9:24])
    broken = lost = 0
    for _ in range(600):
        joined = graphs.neighbours(graph.degree, ids, rng=rng)
        exposed = any(
            len(joined[c] & corrupted) >= graph.threshold for c in set(ids) - corrupted
        )
        honest = set(ids) - corrupted - dropped
        broken += exposed or not graphs.is_connected(joined, honest)
        lost += any(len(joined[c] - dropped) < graph.threshold for c in ids)
    assert broken <= 600 / 32
    assert lost <= 600 / 32


@pytest.mark.parametrize("k", range(4, 13))
def test_one_colluder_sees_no_part_of_a_small_sum_that_is_not_refused(k):
    """Whoever it is, whoever drops out, and however the ring is ordered."""
    graph = graphs.sparse(k)
    ids = [f"c{i:02}" for i in range(k)]
    joined = graphs.neighbours(graph.degree, ids, rng=random.Random(k))
    # A ring looks alike from everywhere, so the colluder may be any one client.
    colluder, others = ids[0], ids[1:]
    refused = 0
    for gone in itertools.chain.from_iterable(
        itertools.combinations(others, n) for n in range(k - 2)
    ):
        alive = set(ids) - set(gone)
        if len(alive) < graph.fewest:
            refused += not graphs.is_connected(joined, alive - {colluder})
            continue
        assert graphs.is_connected(joined, alive - {colluder})
        assert graph.threshold > 1
    # Else the graph is of all pairs, and never falls apart.
    assert (refused > 0) == (graph.degree is not None)


def test_degrees_grow_slowly():
    degrees = [graphs.sparse(k).degree for k in (100, 300, 1000)]
    assert degrees == sorted(degrees)
    # From 300 to 1000 clients all-pairs masks grow 3.3-fold.
    assert degrees[2] / degrees[1] < 1.5


def test_a_small_or_hopeless_round_masks_with_everybody():
    assert graphs.sparse(3) == graphs.complete(3)
    assert graphs.sparse(20, corrupt=0.45, dropout=0.5) == graphs.complete(20)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graphs.complete(5, threshold=6), r"allowed: 2\.\.5"),
        (lambda: graphs.complete(5, threshold=2.5), r"threshold is 2\.5"),
        (lambda: graphs.complete(3.5), r"num_clients is 3\.5"),
        (lambda: graphs.sparse("5"), "num_clients is '5'"),
        (lambda: graphs.sparse(50, security_bits=-500), "security_bits is -500"),
        (lambda: graphs.sparse(50, security_bits=math.nan), "security_bits is nan"),
        (lambda: graphs.sparse(50, correctness_bits=0), "correctness_bits is 0"),
        (lambda: graphs.complete(1), "threshold is 1; .* with 1 clients"),
        (
            lambda: graphs.neighbours(3, "abcdef", rng=random.Random(0)),
            "degree is 3; allowed: an even number",
        ),
        (lambda: graphs.sparse(5, corrupt=1.0), "corrupt is 1.0"),
        (lambda: graphs.sparse(5, dropout=-0.1), "dropout is -0.1"),
        (
            lambda: graphs.sparse(5, corrupt=0.5, dropout=0.5),
            "1.0; allowed: < 1",
        ),
    ],
)
def test_bad_graphs_are_refused(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()


def test_what_is_derived_is_bound_to_all_that_it_names():
    """Another session, party, way to divide their names, or byte gives another."""
    secret, session, share = bytes(range(32)), b"session", bytes(range(100, 133))

    def derived(secret, session, one, other, share):
        return [
            keys.mask_seed(secret, session, one, other),
            keys.seal(secret, session, one, other, bytes(32)),
            keys.share_digest(session, one, other, share),
            keys.seed_digest(session, one, share),
        ]

    first = derived(secret, session, "ab", "c", share)
    # One key for two purposes would have the first pad of the second in public.
    assert first[0] != first[1][:32]
    assert len(first[2]) >= 16
    changed = [share[:i] + bytes([share[i] ^ 1]) + share[i + 1 :] for i in range(33)]
    others = [derived(secret, session, "ab", "c", other) for other in changed]
    others += [derived(secret, b"sessio", "nab", "c", share)]
    others += [derived(secret, b"other", "ab", "c", share)]
    others += [derived(secret, session, "x", "c", share)]
    others += [derived(secret, session + b"a", "b", "c", share)]
    for number, other in enumerate(others):
        same = [a == b for a, b in zip(first, other, strict=True)]
        assert same == [number < 33, number < 33, False, False]
    a, bc = "a", "bc"
    regrouped = zip(first[:3], derived(secret, session, a, bc, share)[:3], strict=True)
    assert not any(one == other for one, other in regrouped)
    # Both of a pair derive its mask; what one sends is not what it is sent.
    turned = derived(secret, session, "c", "ab", share)
    assert turned[0] == first[0]
    assert not {*turned[1:]} & {*first[1:]}
