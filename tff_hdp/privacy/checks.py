"""Argument checks that name the argument and the value found."""

import math


def check_nonnegative(name: str, value: float) -> None:
    """Raises ValueError unless `value` is finite and >= 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value}; allowed is a finite number >= 0")


def check_positive(name: str, value: float) -> None:
    """Raises ValueError unless `value` is finite and > 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value}; allowed is a finite number > 0")


def check_delta(name: str, value: float) -> None:
    """Raises ValueError unless `value` is in (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}; allowed is (0, 1)")


def check_rounds(name: str, value: int) -> int:
    """Returns `value` as an int; raises ValueError unless it is whole and >= 0."""
    if not (math.isfinite(value) and value >= 0 and int(value) == value):
        raise ValueError(f"{name} is {value}; allowed is a whole number >= 0")
    return int(value)
