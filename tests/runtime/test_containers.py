"""Containers of results and arguments, against TFF's own conversion."""

import collections

import attrs
import numpy as np
import pytest
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_hdp.runtime.in_process.containers import packer


@attrs.define
class Pair:
    a: object
    b: object


Fields = collections.namedtuple("Fields", ["a", "b"])
NAMED = (None, collections.OrderedDict, dict, tff.structure.Struct, Fields, Pair)
NAMELESS = (None, tuple, list)


@st.composite
def structures(draw, parts):
    """A structure's type, its parts in a list, and TFF's value of them."""
    named = draw(st.booleans())
    found = draw(st.lists(parts, min_size=2 * named, max_size=2 if named else 3))
    container = draw(st.sampled_from(NAMED if named else NAMELESS))
    names = ["a", "b"] if named else [None] * len(found)
    members = [(n, t) if n else t for n, (t, _, _) in zip(names, found, strict=True)]
    if container is None:
        type_ = tff.StructType(members)
    else:
        type_ = tff.types.StructWithPythonType(members, container)
    pairs = zip(names, found, strict=True)
    whole = tff.structure.Struct([(name, value) for name, (_, _, value) in pairs])
    return type_, [value for _, value, _ in found], whole


LEAVES = st.integers(0, 9).map(lambda x: (tff.TensorType(np.int32), x, x))
VALUES = st.recursive(LEAVES, structures, max_leaves=8)


def kinds(value):
    """A value with the class of each of its containers."""
    if isinstance(value, Pair):
        parts = attrs.asdict(value, recurse=False).items()
    elif isinstance(value, tff.structure.Struct):
        parts = tff.structure.iter_elements(value)
    elif isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return value
    return type(value), [(name, kinds(part)) for name, part in parts]


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_containers_are_those_that_tff_finds(case):
    type_, parts, whole = case
    expected = tff.types.type_to_py_container(whole, type_)
    assert kinds(packer(type_)(parts)) == kinds(expected)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_every_client_has_its_own(case):
    type_, parts, whole = case
    for all_equal in (True, False):
        placed = tff.FederatedType(type_, tff.CLIENTS, all_equal)
        value, given_ = (whole, parts) if all_equal else ([whole] * 2, [parts] * 2)
        expected = tff.types.type_to_py_container(value, placed)
        assert kinds(packer(placed)(given_)) == kinds(expected)


def test_types_that_differ_by_their_containers_alone_are_apart():
    """One result after the other, as what is known of a type is kept."""
    members = [("a", np.int32), ("b", np.int32)]
    for container in (dict, Fields, collections.OrderedDict, Pair):
        type_ = tff.types.StructWithPythonType(members, container)
        assert type(packer(type_)([1, 2])) is container


@pytest.mark.parametrize("container", [None, tff.structure.Struct, list, Fields])
def test_no_container_holds_parts_with_and_without_names(container):
    members = [("a", np.int32), np.int32]
    type_ = tff.StructType(members)
    if container is not None:
        type_ = tff.types.StructWithPythonType(members, container)
    value = tff.structure.Struct([("a", 1), (None, 2)])
    with pytest.raises(ValueError, match="mix of named and unnamed"):
        tff.types.type_to_py_container(value, type_)
    with pytest.raises(ValueError, match="mix of named and unnamed"):
        packer(type_)


def test_a_list_has_no_names():
    type_ = tff.types.StructWithPythonType([("a", np.int32)], list)
    with pytest.raises(ValueError, match="does not support names"):
        packer(type_)


class Sibling(Fields):
    """A named tuple by inheritance."""


@attrs.define
class Renamed:
    a: object
    other: object


@attrs.define
class Hidden:
    _a: object
    b: object


@pytest.mark.parametrize(
    "value",
    [
        Fields(1, 2),
        Sibling(1, 2),
        Pair(1, 2),
        Pair(Pair(1, 2), 3),
        Renamed(1, 2),
        Hidden(1, 2),
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=1, a=2),
        collections.OrderedDict(a=1, b=2, c=3),
        tff.structure.Struct([("a", 1), ("b", 2)]),
        tff.structure.Struct([("b", 1), ("a", 2)]),
        (1, 2),
        [1, 2],
        [1, 2, 3],
        Pair,
    ],
    ids=repr,
)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_structures_are_taken_apart_as_by_tff(names, value, in_process_context, run_on):
    """What TFF says a container's names and parts are, if the names are the type's."""
    type_ = tff.StructType([(name, np.int32) for name in names])
    swapped = tff.tensorflow.computation(lambda x: (x[1], x[0]), type_)
    try:
        parts = list(tff.structure.iter_elements(tff.structure.from_container(value)))
    except TypeError:
        parts = []
    fit = [n in (None, name) for (n, _), name in zip(parts, names, strict=False)]
    if len(parts) == 2 and all(fit) and all(isinstance(x, int) for _, x in parts):
        assert run_on(in_process_context, swapped, value) == (parts[1][1], parts[0][1])
    else:
        with pytest.raises(TypeError):
            run_on(in_process_context, swapped, value)
