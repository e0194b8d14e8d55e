"""Errors that a user can mend, the same in the library and on the command line."""

import contextlib
import dataclasses
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, TypeVar

import numpy as np

Entry = TypeVar("Entry")


class ArgumentError(ValueError):
    """An argument, or a setting, is not what is allowed.

    The message is one line, `name is value; allowed: ...`; a command line shows the
    flag of that name with its dashes.

    Attributes:
      name: The argument's, as the caller wrote it; `zone_sizes[3]` for an entry, in
        words for what arguments come to together (`noise of queries.client`).
      value: What was given.
      allowed: What may be given instead, in words.
    """

    def __init__(self, name: str, value: object, allowed: str) -> None:
        self.name, self.value, self.allowed = name, value, allowed
        super().__init__(f"{name} is {_shown(value)}; allowed: {allowed}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name, self.value, self.allowed)

    def renamed(self, names: Mapping[str, str]) -> "ArgumentError":
        """The same error under the name that a caller gave the argument.

        Args:
          names: From names here to names there, where one stands for all entries
            that are made of it; others stay.
        """
        name = names.get(self.name.partition("[")[0], self.name)
        return type(self)(name, self.value, self.allowed)


class TooLittleNoiseError(ArgumentError):
    """A noise multiplier that is refused because more noise is needed."""


class FileError(ValueError):
    """A file does not hold what it should.

    The message is one short line, `path: what is wrong with it`.
    """

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{os.fspath(path)}: {one_line(problem, 2 * LONGEST_VALUE)}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.problem)


class ShortError(ValueError):
    """An error whose message is one line of limited length, whatever it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class NoiseError(ValueError):
    """A round's noise is less than its plan says, or nobody can tell how much it is.

    Nothing of such a round may be shown.
    """


# A line that nobody reads to its end is no help.
LONGEST_VALUE, LONGEST_LINE = 200, 600


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """`text` on one line, cut to `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _shown(value: object) -> str:
    try:
        listed = isinstance(value, list | tuple)
        text = ",".join(map(str, value)) if listed else str(value)
    except ValueError:  # a whole number of thousands of digits
        text = f"a {type(value).__name__} of too many digits"
    except RecursionError:
        text = f"a {type(value).__name__} nested too deep"
    return one_line(text, LONGEST_VALUE) or "empty"


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raises ArgumentError unless `ok`."""
    if not ok:
        raise ArgumentError(name, value, allowed)


def check_word(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Returns `value`; raises ArgumentError unless it is one of the words allowed."""
    words = tuple(allowed)
    ok = isinstance(value, str) and value in words
    require(ok, name, value, ", ".join(words))
    return value


def as_float(name: str, value: Any, allowed: str) -> float:
    """Returns one number of any type as a float.

    Raises:
      ArgumentError: If it is not one: text, a truth value, None, an array, or a whole
        number that is too large.
    """
    is_other = isinstance(value, str | bytes | bool | np.bool_)
    if not (is_other or getattr(value, "ndim", 0)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise ArgumentError(name, quoted(value), allowed)


def quoted(value: Any) -> Any:
    """Text of a number in quotes, without which it would read as one; else `value`."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            float(value)
            return repr(value)
    return value


def check_bool(name: str, value: Any) -> bool:
    """Returns `value` as a bool; raises ArgumentError unless it is a truth value."""
    shown = repr(value) if isinstance(value, str) else value
    require(isinstance(value, bool | np.bool_), name, shown, "True or False")
    return bool(value)


def check_number(
    name: str, value: Any, allowed: str, is_allowed: Callable[[float], bool]
) -> float:
    """Returns `value` as a float; raises ArgumentError unless it `is_allowed`."""
    number = as_float(name, value, allowed)
    require(is_allowed(number), name, value, allowed)
    return number


def check_nonnegative(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ArgumentError unless finite and >= 0."""
    allowed = "a finite number >= 0"
    return check_number(name, value, allowed, lambda x: 0.0 <= x < math.inf)


def check_positive(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ArgumentError unless finite and > 0."""
    allowed = "a finite number > 0"
    return check_number(name, value, allowed, lambda x: 0.0 < x < math.inf)


def check_probability(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ArgumentError unless in (0, 1]."""
    return check_number(name, value, "(0, 1]", lambda x: 0.0 < x <= 1.0)


# What is taken of a delta, for rounds without noise or for finite precision, must
# still be a number.
LEAST_DELTA = 1e-300


def check_delta(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ArgumentError unless in [1e-300, 1)."""
    allowed = f"[{LEAST_DELTA:g}, 1)"
    return check_number(name, value, allowed, lambda x: LEAST_DELTA <= x < 1.0)


# Nobody has more clients or rounds, and an array's index has no more.
_GREATEST_COUNT = 2**63 - 1
# Python takes no more than thousands of digits.
_MOST_DIGITS = 40


def check_count(name: str, value: Any, least: int = 0) -> int:
    """Returns `value` as an int; raises ArgumentError unless whole and >= `least`."""
    allowed = f"a whole number >= {least}"
    if type(value) is not int:
        number = as_float(name, value, allowed)
        require(math.isfinite(number) and int(number) == number, name, value, allowed)
        value = int(value)
    require(value >= least, name, value, allowed)
    require(value <= _GREATEST_COUNT, name, value, f"at most {_GREATEST_COUNT}")
    return value


def as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    """Returns `values` as a tuple; raises ArgumentError unless they are a sequence."""
    try:
        found = tuple(values)
    except TypeError as error:
        raise ArgumentError(name, values, "a sequence") from error
    # Of a set the order is anybody's guess, and depends on how Python was started.
    is_other = isinstance(values, str | bytes | Mapping | Set)
    require(not is_other, name, quoted(values), "a sequence")
    return found


def entries(
    name: str, values: Any, checked: Callable[[str, Any], Entry]
) -> tuple[Entry, ...]:
    """A sequence's entries, each as its check returns it.

    Args:
      name: The sequence's, for errors.
      values: The sequence.
      checked: From an entry's name and the entry to what is kept of it.

    Raises:
      ArgumentError: If `values` is no sequence, or as `checked` raises.
    """
    found = as_tuple(name, values)
    return tuple(checked(f"{name}[{i}]", value) for i, value in enumerate(found))


def check_makes_models(name: str, value: Any, allowed: str) -> None:
    """Raises ArgumentError unless `value` is a function, as to a new model.

    A class of models makes them; a Keras model can be called too, and makes none.
    """
    is_model = hasattr(value, "trainable_variables") and not isinstance(value, type)
    is_one = callable(value) and not is_model
    require(is_one, name, type(value).__name__, allowed)


def check_seed(name: str, value: Any) -> None:
    """Raises ArgumentError unless NumPy takes `value` for a seed."""
    require(0 <= value < 2**32, name, value, f"0..{2**32 - 1}")


def check_path(name: str, value: str) -> None:
    """Raises ArgumentError unless files of that name can be made, and told of.

    TensorFlow takes names in UTF-8, and no system one with a zero in it.
    """
    try:
        ok = b"\0" not in value.encode()
    except UnicodeEncodeError:
        ok = False
    require(ok, name, ascii(value), "a path in UTF-8, without zero characters")


def check_whole_numbers(name: str, words: Any) -> tuple[int, ...]:
    """Whole numbers >= 1, or their digits as on a command line, as a tuple.

    Raises:
      ArgumentError: If an entry is something else.
    """
    allowed = "whole numbers >= 1, joined by commas"
    require(isinstance(words, list | tuple), name, words, allowed)
    for word in words:
        digits = isinstance(word, str) and word.isascii() and word.isdecimal()
        digits = digits and len(word) <= _MOST_DIGITS
        require(digits or _is_of(word, int), name, words, allowed)
    found = tuple(map(int, words))
    require(min(found, default=1) >= 1, name, words, allowed)
    return found


def check_left(config: Any, names: Iterable[str], allowed: str) -> None:
    """Raises ArgumentError if a field of a dataclass is not at its default.

    Args:
      config: The dataclass.
      names: Of fields that would do nothing here.
      allowed: What may be given instead, in words.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in names:
        value = getattr(config, name)
        # A command line gives a list for a tuple.
        same = tuple(value) if isinstance(value, list) else value
        require(same == defaults[name], name, value, allowed)


_KINDS = {
    bool: "True or False",
    int: "a whole number below 2^63",
    float: "a finite number",
    str: "text",
    types.NoneType: "None",
}


def check_fields(config: Any) -> None:
    """Checks that a dataclass holds what its annotations say; for `__post_init__`.

    A list stands for a tuple, and in it text for numbers, as on a command line; paths
    become text, and NumPy's numbers Python's.

    Raises:
      ArgumentError: If a field does not.
    """
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        hint, value = hints[field.name], getattr(config, field.name)
        if isinstance(value, os.PathLike | np.generic):
            is_path = isinstance(value, os.PathLike)
            value = os.fspath(value) if is_path else value.item()
            object.__setattr__(config, field.name, value)
        if typing.get_origin(hint) is tuple:
            hint, _ = typing.get_args(hint)
            kinds, each = typing.get_args(hint) or (hint,), "a list, each of them "
            ok = isinstance(value, list | tuple)
            ok = ok and all(_is_of(v, str) or _is_any(v, kinds) for v in value)
        else:
            kinds, each = typing.get_args(hint) or (hint,), ""
            # An empty path would be the current folder.
            ok = _is_any(value, kinds) and value != ""
        allowed = each + " or ".join(_KINDS[kind] for kind in kinds)
        require(ok, field.name, quoted(value), allowed)


def _is_any(value: Any, kinds: Iterable[type]) -> bool:
    return any(_is_of(value, kind) for kind in kinds)


def _is_of(value: Any, kind: type) -> bool:
    """Whether a value can be had for one of `_KINDS`; no truth value is a number."""
    is_bool = isinstance(value, bool)
    if kind is int:
        whole = isinstance(value, numbers.Integral) and not is_bool
        return whole and abs(int(value)) <= _GREATEST_COUNT
    if kind is float:
        try:
            real = isinstance(value, numbers.Real) and math.isfinite(value)
        except OverflowError:  # a whole number that no float comes near
            real = False
        return real and not is_bool
    return is_bool if kind is bool else isinstance(value, kind)


def from_fields(cls: type, fields: Mapping[str, Any]) -> Any:
    """A dataclass's value of all its fields, as JSON types: what is left out is lost.

    Raises:
      ArgumentError: If a field is unknown, missing or out of range.
    """
    check_names(cls.__name__, fields, {f.name for f in dataclasses.fields(cls)})
    return cls(**{name: _tuples(value) for name, value in fields.items()})


def check_names(what: str, found: Mapping[str, Any], known: set[str]) -> None:
    """Raises ArgumentError unless the names are those known, all of them."""
    if wrong := sorted(set(found) ^ known):
        raise ArgumentError(what, wrong, f"the fields {', '.join(sorted(known))}")


def _tuples(value: Any) -> Any:
    """`value` with its lists, at any depth, as tuples."""
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return value
