"""Both means of computing in the group give the same, and what RFC 9496 says."""

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.elections.zones import electors_of, hold, registry_of
from tff_hdp.protocols.elections import group, ristretto, sodium
from tff_hdp.protocols.elections.group import ORDER, DecodingError, PythonGroup

SCALARS = st.integers(0, ORDER - 1)
PYTHON, SODIUM = PythonGroup(), sodium.load()
needs_sodium = pytest.mark.skipif(SODIUM is None, reason="no libsodium is installed")
BACKENDS = [PYTHON, pytest.param(SODIUM, marks=needs_sodium)]

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
    "",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d7600",
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_multiples_of_the_generator(backend):
    elements = [bytes.fromhex(encoding) for encoding in MULTIPLES]
    for number, element in enumerate(elements):
        backend.check(element)
        assert backend.multiply_generator(number) == element
        assert backend.multiply(number, elements[1]) == element
        assert backend.total([elements[1]] * number) == element
    assert backend.multiply_sum([1, 1], elements[1:3]) == elements[3]
    assert backend.multiply(5, elements[0]) == elements[0] == group.IDENTITY
    assert backend.multiply(0, elements[2]) == group.IDENTITY
    assert backend.multiply_sum([3, -1], [elements[1], elements[3]]) == group.IDENTITY


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("encoding", BAD)
def test_bad_encodings_are_refused(backend, encoding):
    bad, good = bytes.fromhex(encoding), bytes.fromhex(MULTIPLES[1])
    for operation in (
        lambda: backend.check(bad),
        lambda: backend.multiply(3, bad),
        lambda: backend.multiply(0, bad),
        lambda: backend.total([good, bad]),
        lambda: backend.total([bad, good]),
        lambda: backend.total([bad]),
        lambda: backend.multiply_sum([1, 0], [good, bad]),
    ):
        with pytest.raises(DecodingError, match="no canonical"):
            operation()


@pytest.mark.parametrize("backend", BACKENDS)
def test_digests_are_scalars_modulo_the_order(backend):
    rng = random.Random(3)
    for data in (bytes(64), b"\xff" * 64, *(rng.randbytes(64) for _ in range(20))):
        assert backend.reduce(data) == int.from_bytes(data, "little") % ORDER
    for wrong in (b"", bytes(63), bytes(65)):
        with pytest.raises(ValueError, match="allowed: 64"):
            backend.reduce(wrong)


@needs_sodium
def test_both_agree_on_random_operations():
    rng = random.Random(1)

    def scalar():
        return rng.choice(
            [rng.randrange(ORDER), rng.randrange(2**128), 0, 1, ORDER - 1]
        )

    for _ in range(60):
        a, b, c = scalar(), scalar(), scalar()
        assert PYTHON.multiply_add(a, b, c) == SODIUM.multiply_add(a, b, c)
        if a:
            assert PYTHON.invert(a) == SODIUM.invert(a)
        p, q = PYTHON.multiply_generator(a), SODIUM.multiply_generator(b)
        assert p == SODIUM.multiply_generator(a)
        assert PYTHON.multiply(c, q) == SODIUM.multiply(c, q)
        assert PYTHON.total([p, q, p]) == SODIUM.total([p, q, p])
        scalars = [-a, b * c, c]
        assert PYTHON.multiply_sum(scalars, [p, q, p]) == SODIUM.multiply_sum(
            scalars, [p, q, p]
        )


@needs_sodium
def test_both_take_the_same_bytes_for_elements():
    rng = random.Random(2)
    valid = 0
    for _ in range(1500):
        data = bytes([rng.randrange(128) * 2]) + rng.randbytes(30) + b"\x00"
        found = []
        for backend in (PYTHON, SODIUM):
            try:
                backend.check(data)
                found.append(True)
            except DecodingError:
                found.append(False)
        assert found[0] == found[1]
        valid += found[0]
    # A quarter of even field elements below p are encodings.
    assert 200 < valid < 600


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_has_no_inverse(backend):
    for zero in (0, ORDER):
        with pytest.raises(ZeroDivisionError):
            backend.invert(zero)


@needs_sodium
def test_one_transcript_comes_of_either(monkeypatch):
    found = []
    for backend in (PYTHON, SODIUM):
        monkeypatch.setattr(group, "backend", backend)
        registry = registry_of(3)
        electors = electors_of(registry, fresh=b"")
        winner, transcript = hold(registry, electors=electors)
        found.append((winner, transcript.to_text()))
    assert found[0] == found[1]
    assert transcript.verify(registry) == winner


def test_where_there_is_no_library_python_computes_and_says_so(monkeypatch, caplog):
    import importlib

    monkeypatch.setattr(sodium, "load", lambda: None)
    with caplog.at_level(logging.WARNING):
        fallback = importlib.reload(group)
    try:
        assert fallback.backend.name == "python"
        assert not fallback.backend.constant_time
        assert "elections compute in Python" in caplog.text
    finally:
        monkeypatch.undo()
        importlib.reload(group)


@settings(deadline=None, max_examples=30)
@given(a=SCALARS, b=SCALARS)
def test_multiplication_is_a_homomorphism(a, b):
    both = PYTHON.total([PYTHON.multiply_generator(a), PYTHON.multiply_generator(b)])
    assert both == PYTHON.multiply_generator(a + b)
    point = ristretto.decode(both)
    twice = ristretto.double(point)
    assert ristretto.encode(twice) == PYTHON.total([both, both])
    assert ristretto.encode(twice) == PYTHON.multiply(2, both)
    assert ristretto.encode(ristretto.decode(both)) == both
