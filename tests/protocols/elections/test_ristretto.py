import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.protocols.elections import pvss
from tff_hdp.protocols.elections import ristretto as group

SCALARS = st.integers(0, group.ORDER - 1)

# RFC 9496, appendix A.1: the first multiples of the generator.
MULTIPLES = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
]

# RFC 9496, appendix A.2: non-canonical, negative and non-square encodings.
BAD = [
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "00",
]


@pytest.mark.parametrize(("number", "encoding"), enumerate(MULTIPLES))
def test_multiples_of_the_generator(number, encoding):
    point = group.multiply(number, group.GENERATOR)
    assert group.encode(point).hex() == encoding
    assert group.equal(group.decode(bytes.fromhex(encoding)), point)


@pytest.mark.parametrize("encoding", BAD)
def test_bad_encodings_are_refused(encoding):
    with pytest.raises(group.DecodingError, match="no canonical"):
        group.decode(bytes.fromhex(encoding))


@settings(deadline=None)
@given(a=SCALARS, b=SCALARS)
def test_multiplication_is_a_homomorphism(a, b):
    sum_of_points = group.add(
        group.multiply(a, group.GENERATOR), group.multiply(b, group.GENERATOR)
    )
    assert group.equal(sum_of_points, group.multiply(a + b, group.GENERATOR))
    twice = group.double(sum_of_points)
    assert group.equal(twice, group.add(sum_of_points, sum_of_points))
    assert group.encode(group.decode(group.encode(twice))) == group.encode(twice)
    assert group.equal(group.add(twice, group.negate(twice)), group.IDENTITY)


@settings(deadline=None)
@given(st.lists(st.tuples(SCALARS, SCALARS), max_size=12))
def test_sums_of_multiples(pairs):
    points = [group.multiply(p, group.GENERATOR) for _, p in pairs]
    expected = group.multiply(sum(k * p for k, p in pairs), group.GENERATOR)
    found = group.multiply_sum([k for k, _ in pairs], points)
    assert group.equal(found, expected)


@settings(deadline=None)
@given(st.lists(SCALARS, max_size=4), SCALARS)
def test_many_multiples_of_one_point(scalars, p):
    point = group.multiply(p, group.GENERATOR)
    found = group.multiply_many([*scalars, 0, group.ORDER - 1], point)
    expected = [group.multiply(k * p, group.GENERATOR) for k in (*scalars, 0, -1)]
    assert all(map(group.equal, found, expected))


def sharing(holders=5, threshold=3, context=b"here"):
    secrets = [pvss.random_scalar() for _ in range(holders)]
    keys = [group.multiply(x, group.GENERATOR) for x in secrets]
    return secrets, keys, pvss.deal(context, keys, threshold)


def test_any_t_holders_recover_the_sum_of_secrets():
    secrets, keys, first = sharing()
    # The secrets are the first scalar each dealer draws.
    drawn = []

    def recorded():
        drawn.append(pvss.random_scalar())
        return drawn[-1]

    second = pvss.deal(b"there", keys, 3, random=recorded)
    third = pvss.deal(b"third", keys, 3, random=recorded)
    expected = group.multiply(drawn[0] + drawn[6], group.GENERATOR)
    encrypted = pvss.aggregate([second[0], third[0]])
    shares = {
        i: pvss.decrypt(b"", x, encrypted[i - 1])[0]
        for i, x in enumerate(secrets, start=1)
    }
    for chosen in ([1, 2, 3], [5, 1, 4], [2, 4, 5]):
        secret = pvss.recover({i: shares[i] for i in chosen})
        assert group.equal(secret, expected)
    # Two shares put through the same formula give something else.
    assert not group.equal(pvss.recover({i: shares[i] for i in (1, 2)}), expected)
    assert pvss.deals_hold(
        keys, 3, [(b"here", *first), (b"there", *second), (b"third", *third)]
    )


def tampered(data):
    other = hashlib.sha512(data).digest()
    return group.encode(group.multiply(int.from_bytes(other), group.GENERATOR))


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("index", [0, 2])
def test_a_tampered_dealing_fails(part, index):
    _, keys, dealt = sharing()
    parts = [list(items) for items in dealt]
    parts[part][index] = tampered(parts[part][index])
    assert pvss.deals_hold(keys, 3, [(b"here", *dealt)])
    assert not pvss.deals_hold(keys, 3, [(b"here", *parts)])
    assert not pvss.deals_hold(keys, 3, [(b"here", *dealt), (b"here", *parts)])


def test_a_dealing_is_bound_to_its_context_degree_and_keys():
    _, keys, dealt = sharing()
    assert not pvss.deals_hold(keys, 3, [(b"elsewhere", *dealt)])
    assert not pvss.deals_hold(keys, 2, [(b"here", *dealt)])
    assert not pvss.deals_hold(keys[::-1], 3, [(b"here", *dealt)])
    # A sharing of too high degree cannot be passed off as one of degree t - 1.
    higher = pvss.deal(b"here", keys, 4)
    assert not pvss.deals_hold(keys, 3, [(b"here", *higher[:2], higher[2][:3])])


def test_a_wrong_decryption_fails():
    secrets, keys, dealt = sharing()
    encrypted = pvss.aggregate([dealt[0]])
    good = pvss.decrypt(b"x", secrets[0], encrypted[0])
    wrong_key = pvss.decrypt(b"x", secrets[1], encrypted[0])
    first = (keys[0], encrypted[0])
    assert pvss.shares_hold([(b"x", *first, *good)])
    for bad in [
        (b"y", *first, *good),
        (b"x", *first, *wrong_key),
        (b"x", keys[1], encrypted[1], *good),
        (b"x", *first, tampered(good[0]), *good[1:]),
        (b"x", *first, *good[:2], bytes(32)),
    ]:
        assert not pvss.shares_hold([bad])
        assert not pvss.shares_hold([(b"x", *first, *good), bad])
