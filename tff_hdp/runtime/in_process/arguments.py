"""The argument of an invocation, taken apart along its type."""

import asyncio
from collections.abc import Callable
from concurrent import futures
from typing import Any

import tensorflow_federated as tff

from tff_hdp.runtime.in_process import values

# The parts of an argument by their place in its nested structure.
Argument = dict[tuple[int, ...], Any]


def take_apart(
    value: Any, type_: tff.Type | None, invoke: Callable[[Any, Any], Any]
) -> tuple[Argument, int | None]:
    """Divides an argument into parts that are each at one place.

    Args:
        value: what the caller passed.
        type_: the type of the computation's parameter, None if it has none.
        invoke: runs a computation on an argument, for data given by a
            `tff.framework.DataDescriptor`.

    Returns:
        The parts, a list of the clients' values for each one placed at clients; and the
        number of clients, None if no part tells.

    Raises:
        TypeError: if the structure, or a clients' value, is not as `type_` says.
        ValueError: if two parts have different numbers of clients.
    """
    parts: Argument = {}
    counts: dict[tuple[int, ...], int] = {}

    def visit(value: Any, type_: tff.Type, path: tuple[int, ...]) -> None:
        if isinstance(value, tff.framework.Ingestable):
            value = _materialise(value, invoke)
        if isinstance(type_, tff.StructType):
            for i, pair in enumerate(values.matched(value, type_)):
                visit(*pair, (*path, i))
            return
        if (
            isinstance(type_, tff.FederatedType)
            and type_.placement is tff.CLIENTS
            and not type_.all_equal
        ):
            if not isinstance(value, list | tuple):
                raise TypeError(
                    f"expected a list with each client's value for the type {type_}, "
                    f"found a {type(value).__name__}"
                )
            counts[path] = len(value)
        parts[path] = value

    if type_ is not None:
        visit(value, type_, ())
    if len(set(counts.values())) > 1:
        raise ValueError(
            "Conflicting cardinalities: the parts of the argument disagree on the "
            "number of clients: found " + ", ".join(map(str, counts.values()))
        )
    return parts, next(iter(counts.values()), None)


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
