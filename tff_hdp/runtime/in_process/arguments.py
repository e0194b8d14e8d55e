"""The argument of an invocation: computations in it bound, the rest taken apart."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import tensorflow_federated as tff

from tff_hdp.runtime.in_process import values

Block = tff.framework.ComputationBuildingBlock
# The parts of an argument by their place in its nested structure.
Argument = dict[tuple[int, ...], Any]

_OTHERS = "others"


# Functions that call themselves are the module's: one that finds itself in a function
# around it is a cycle, which would keep all clients' data until Python looks for such.


def is_functional(type_: tff.Type | None) -> bool:
    """Whether a value of the type is a computation or has one among its parts."""
    if isinstance(type_, tff.StructType):
        return any(map(is_functional, type_))
    return isinstance(type_, tff.FunctionType)


def bind_functions(
    comp: tff.framework.ConcreteComputation, arg: Any
) -> tuple[tff.framework.ConcreteComputation, Any]:
    """Puts the computations in an argument into the computation that gets it.

    Returns:
      A computation of the argument's other parts, and these; both as they were where
      no part is a computation.

    Raises:
      TypeError: If a part is not a computation of the type that is expected there.
    """
    parameter = comp.type_signature.parameter
    if not is_functional(parameter):
        return comp, arg
    others: list[Any] = []
    types: list[tff.Type] = []
    whole = _place(arg, parameter, others, types)
    block = comp.to_building_block()
    if not others:
        bound = tff.framework.Lambda(None, None, tff.framework.Call(block, whole(None)))
        given = None
    else:
        rest = tff.StructType(types)
        called = tff.framework.Call(
            block, whole(tff.framework.Reference(_OTHERS, rest))
        )
        bound = tff.framework.Lambda(_OTHERS, rest, called)
        given = tuple(others)
    return tff.framework.ConcreteComputation.from_building_block(bound), given


def _place(
    value: Any, type_: tff.Type, others: list[Any], types: list[tff.Type]
) -> Callable[[Block | None], Block]:
    """What makes a part of the argument out of `others`, to which it adds its own."""
    if isinstance(type_, tff.FunctionType):
        block = _block_of(value, type_)
        return lambda _: block
    if is_functional(type_):
        parts = [_place(*pair, others, types) for pair in values.matched(value, type_)]
        names = tff.structure.name_list_with_nones(type_)
        return lambda source: tff.framework.Struct(
            [(n, part(source)) for n, part in zip(names, parts, strict=True)]
        )
    at = len(others)
    others.append(value)
    types.append(type_)
    return lambda source: tff.framework.Selection(source, index=at)


def take_apart(
    value: Any, type_: tff.Type | None, invoke: Callable[[Any, Any], Any]
) -> tuple[Argument, int | None]:
    """Divides an argument into parts that are each at one place.

    Args:
      value: What the caller passed.
      type_: The type of the computation's parameter, None if it has none.
      invoke: Runs a computation on an argument, for data given by a
        `tff.framework.DataDescriptor`.

    Returns:
      The parts, a list of the clients' values for each one placed at clients; and the
      number of clients, None if no part tells.

    Raises:
      TypeError: If the structure, or a clients' value, is not as `type_` says.
      ValueError: If two parts have different numbers of clients.
    """
    parts: Argument = {}
    counts: list[int] = []
    if type_ is None:
        return parts, None
    for path, part, part_type in _parts(value, type_, invoke):
        parts[path] = part
        if (
            isinstance(part_type, tff.FederatedType)
            and part_type.placement is tff.CLIENTS
            and not part_type.all_equal
        ):
            if not isinstance(part, list | tuple):
                raise TypeError(
                    f"expected a list with each client's value for the type "
                    f"{part_type}, found a {type(part).__name__}"
                )
            counts.append(len(part))
    if len(set(counts)) > 1:
        raise ValueError(
            "Conflicting cardinalities: the parts of the argument disagree on the "
            "number of clients: found " + ", ".join(map(str, counts))
        )
    return parts, next(iter(counts), None)


def _parts(
    value: Any,
    type_: tff.Type,
    invoke: Callable[[Any, Any], Any],
    path: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[int, ...], Any, tff.Type]]:
    """Each part that is no structure: its path, itself and its type."""
    if isinstance(value, tff.framework.Ingestable):
        value = _materialise(value, invoke)
    if isinstance(type_, tff.StructType):
        for i, pair in enumerate(values.matched(value, type_)):
            yield from _parts(*pair, invoke, (*path, i))
    else:
        yield path, value, type_


def _block_of(value: Any, type_: tff.FunctionType) -> Block:
    found = getattr(value, "type_signature", None)
    is_one = isinstance(value, tff.framework.ConcreteComputation)
    if not (is_one and type_.is_assignable_from(found)):
        raise TypeError(
            f"expected a computation of type {type_}, found "
            f"{found or f'a {type(value).__name__}'}"
        )
    return value.to_building_block()


def _materialise(
    described: tff.framework.Ingestable, invoke: Callable[[Any, Any], Any]
) -> Any:
    class Executor:
        """The part of TFF's executor interface that descriptors use."""

        async def create_value(self, value: Any, type_: tff.Type) -> Any:
            del type_  # Checked when the value is used.
            return value

        async def create_call(self, comp: Any, arg: Any) -> Any:
            return invoke(comp, arg)

    # A thread of its own, since this one may be running an event loop already.
    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(described.ingest(Executor()))).result()
