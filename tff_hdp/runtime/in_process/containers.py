"""Results in the Python containers that a computation's type names.

`tff.types.type_to_py_container` finds every container anew for every value, which with
little work in a round is a good part of it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

Pack = Callable[[Any], Any]


@functools.lru_cache(maxsize=1024)
def packer(type_: tff.Type) -> Pack:
    """Returns what puts a value into the containers of its type, as TFF does.

    Returns:
      A function of values whose structures are sequences of their parts.

    Raises:
      ValueError: If no container holds such values, as some parts are named and
        others are not.
    """
    if isinstance(type_, tff.FederatedType):
        pack = packer(type_.member)
        return pack if type_.all_equal else lambda values: list(map(pack, values))
    if not isinstance(type_, tff.StructType):
        return lambda value: value
    build, packers = _builder(type_), list(map(packer, type_))
    return lambda parts: build(
        [pack(part) for pack, part in zip(packers, parts, strict=True)]
    )


def _builder(type_: tff.StructType) -> Callable[[Sequence[Any]], Any]:
    """What makes a structure's container of its parts."""
    names = tff.structure.name_list_with_nones(type_)
    places = [(name, tff.TensorType(np.int32)) for name in names]
    # Which container it is, TFF says of one that holds numbers.
    flat = tff.types.StructWithPythonType(places, type_.python_container)
    numbers = tff.structure.Struct(zip(names, range(len(names)), strict=True))
    container = type(tff.types.type_to_py_container(numbers, flat))
    if issubclass(container, dict | tff.structure.Struct):
        return lambda parts: container(list(zip(names, parts, strict=True)))
    if issubclass(container, list | tuple) and not hasattr(container, "_fields"):
        return container
    return lambda parts: container(**dict(zip(names, parts, strict=True)))
