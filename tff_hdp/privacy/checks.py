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
