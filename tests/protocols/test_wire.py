import dataclasses
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.errors import LONGEST_LINE
from tff_hdp.protocols import wire
from tff_hdp.protocols.meter import Meter


@dataclasses.dataclass(frozen=True)
class Inner:
    name: str
    data: bytes


@dataclasses.dataclass(frozen=True)
class Outer:
    number: int
    items: tuple[Inner, ...]
    table: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Vector:
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Keyed:
    of: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Unsupported:
    value: float


inners = st.builds(Inner, st.text(max_size=5), st.binary(max_size=130))
outers = st.builds(
    Outer,
    st.integers(0, 2**64 - 1),
    st.lists(inners, max_size=4).map(tuple),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=4),
)


@settings(deadline=None)
@given(outers)
def test_messages_survive_the_wire(message):
    data = wire.encode(message)
    assert wire.decode(Outer, data) == message
    for cut in range(0, len(data), 1 + len(data) // 20):
        with pytest.raises(wire.WireError, match="cut short"):
            wire.decode(Outer, data[:cut])
    with pytest.raises(wire.WireError, match=f"ends at byte {len(data)} of"):
        wire.decode(Outer, data + b"x")


def test_equal_messages_have_equal_bytes():
    one = Outer(1, (), {"a": b"1", "b": b"2"})
    other = Outer(1, (), {"b": b"2", "a": b"1"})
    assert wire.encode(one) == wire.encode(other)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x81\x00" + bytes(2), "at their shortest"),
        (b"\xff" * 9 + b"\x02" + bytes(2), "at their shortest"),
        (b"\x80" * 10 + b"\x01" + bytes(2), "at their shortest"),
        (bytes(2) + b"\x02" + b"\x01b\x00" + b"\x01a\x00", "'a' comes after 'b'"),
        (bytes(2) + b"\x02" + b"\x01a\x00" + b"\x01a\x00", "'a' comes after 'a'"),
    ],
)
def test_a_message_has_one_encoding_only(data, message):
    with pytest.raises(wire.WireError, match=message):
        wire.decode(Outer, data)


@settings(deadline=None)
@given(outers, st.data())
def test_what_decodes_encodes_to_the_same_bytes(message, data):
    encoded = bytearray(wire.encode(message))
    for _ in range(3):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    try:
        found = wire.decode(Outer, bytes(encoded))
    except wire.WireError:
        return
    assert wire.encode(found) == encoded


def test_a_long_integer_is_refused_at_once():
    start = time.process_time()
    with pytest.raises(wire.WireError, match="at their shortest"):
        wire.decode(Outer, b"\xff" * 10**6)
    assert time.process_time() - start < 0.1


def test_a_refusal_is_short_whatever_was_sent():
    first, last = ("x" * 100_000 + end for end in "ab")
    data = wire.encode(Keyed({first: 1, last: 2}))
    assert wire.decode(Keyed, data).of == {first: 1, last: 2}
    end = data.index(last.encode()) + len(last)
    start = data.index(first.encode()) + len(first)
    turned = data[: start - 1] + b"b" + data[start : end - 1] + b"a" + data[end:]
    with pytest.raises(wire.WireError, match="key 'xxx") as refused:
        wire.decode(Keyed, turned)
    assert len(str(refused.value)) <= LONGEST_LINE


def test_sizes_by_hand():
    # varint 300 takes 2 bytes; an empty tuple and dict one each.
    assert len(wire.encode(Outer(300, (), {}))) == 4
    assert wire.encode(Inner("ab", b"xyz")) == b"\x02ab\x03xyz"
    # Type, varint 400 of two bytes, 100 numbers of four.
    assert len(wire.encode(Vector(np.zeros(100, np.uint32)))) == 1 + 2 + 400


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4", "<u8"])
def test_arrays_survive_the_wire(dtype):
    values = np.arange(1000).astype(dtype)
    found = wire.decode(Vector, wire.encode(Vector(values))).values
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_bad_values_are_refused():
    for number in (-1, 2**64):
        with pytest.raises(wire.WireError, match=f"integer is {number}; allowed is 0"):
            wire.encode(Outer(number, (), {}))
    with pytest.raises(TypeError, match=r"no wire format for .*float"):
        wire.encode(Unsupported(1.0))
    with pytest.raises(wire.WireError, match="array of int64 has no wire format"):
        wire.encode(Vector(np.arange(3)))
    with pytest.raises(wire.WireError, match="text is not UTF-8"):
        wire.encode(Inner("\ud800", b""))
    with pytest.raises(wire.WireError, match="array type is 9"):
        wire.decode(Vector, b"\x09\x00")
    with pytest.raises(wire.WireError, match="array of uint16 has 3 bytes"):
        wire.decode(Vector, b"\x01\x03abc")
    with pytest.raises(wire.WireError, match="not UTF-8"):
        wire.decode(Inner, b"\x01\xff\x00")


def test_the_meter_counts_real_sizes_and_the_critical_path(monkeypatch):
    meter = Meter("hub")
    message = Inner("ab", b"xyz")
    assert meter.deliver("a", "hub", message) == message
    meter.deliver("hub", "b", message)
    clock = iter([0.0, 1.0, 1.0, 4.0, 4.0, 4.5, 5.0, 7.0])
    monkeypatch.setattr("time.thread_time", lambda: next(clock))
    for party, phase in [("a", "x"), ("b", "x"), ("hub", "x"), ("a", "y")]:
        with meter.time(party, phase):
            pass
    summary = meter.summary()
    # Phase x: the slower client's 3 s and the hub's 0.5 s; phase y: 2 s.
    assert summary["critical_path_seconds"] == 5.5
    assert summary["total_seconds"] == 6.5
    assert summary["client_seconds"] == 3.0
    assert summary["hub_seconds"] == 0.5
    assert summary["messages"] == 2
    assert summary["client_sent_bytes"] == summary["hub_received_bytes"] == 7
    assert summary["client_received_bytes"] == summary["hub_sent_bytes"] == 7


def test_the_meter_counts_its_own_threads_work_alone():
    """A round's elections are held while the round before trains."""
    meter, busy = Meter("hub"), threading.Event()
    stop = time.monotonic() + 0.4

    def work():
        busy.set()
        while time.monotonic() < stop:
            pass

    other = threading.Thread(target=work)
    other.start()
    busy.wait()
    with meter.time("a", "x"):
        time.sleep(0.2)
    other.join()
    assert meter.total_seconds < 0.1
