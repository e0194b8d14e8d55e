import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
