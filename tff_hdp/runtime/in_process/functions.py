"""Computations as arguments of computations."""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_hdp.runtime.in_process import values

_OTHERS = "others"
Block = tff.framework.ComputationBuildingBlock


def is_functional(type_: tff.Type | None) -> bool:
    """Whether a value of the type is a computation or has one among its parts."""
    if isinstance(type_, tff.StructType):
        return any(map(is_functional, type_))
    return isinstance(type_, tff.FunctionType)


def bind_functions(
    comp: tff.framework.ConcreteComputation, arg: Any
) -> tuple[tff.framework.ConcreteComputation, Any]:
    """Puts the computations in an argument into the computation that gets it.

    Args:
        comp: the computation to invoke.
        arg: what the caller passed.

    Returns:
        A computation of the argument's other parts, and these; both as they were where
        no part is a computation.

    Raises:
        TypeError: if a part is not a computation of the type that is expected there.
    """
    parameter = comp.type_signature.parameter
    if not is_functional(parameter):
        return comp, arg
    others: list[Any] = []
    types: list[tff.Type] = []

    def place(value: Any, type_: tff.Type) -> Callable[[Block | None], Block]:
        """What makes the part of the argument out of all the other parts."""
        if isinstance(type_, tff.FunctionType):
            block = _block_of(value, type_)
            return lambda _: block
        if is_functional(type_):
            parts = [place(*pair) for pair in values.matched(value, type_)]
            names = tff.structure.name_list_with_nones(type_)
            return lambda source: tff.framework.Struct(
                [(n, part(source)) for n, part in zip(names, parts, strict=True)]
            )
        at = len(others)
        others.append(value)
        types.append(type_)
        return lambda source: tff.framework.Selection(source, index=at)

    whole, block = place(arg, parameter), comp.to_building_block()
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


def _block_of(value: Any, type_: tff.FunctionType) -> Block:
    found = getattr(value, "type_signature", None)
    is_one = isinstance(value, tff.framework.ConcreteComputation)
    if not (is_one and type_.is_assignable_from(found)):
        raise TypeError(
            f"expected a computation of type {type_}, found "
            f"{found or f'a {type(value).__name__}'}"
        )
    return value.to_building_block()
