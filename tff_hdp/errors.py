"""Errors that a user can mend, the same in the library and on the command line."""

import os
from collections.abc import Mapping


class ArgumentError(ValueError):
    """An argument, or a setting, is not what is allowed.

    The message is one line, `name is value; allowed: ...`; a command line shows the
    flag of that name with its dashes.

    Attributes:
      name: The argument's, as the caller wrote it; `zone_sizes[3]` for an entry.
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
          names: From names here to names there; others stay. An entry of an
            argument stays that entry.
        """
        name, bracket, entry = self.name.partition("[")
        renamed = f"{names.get(name, name)}{bracket}{entry}"
        return type(self)(renamed, self.value, self.allowed)


class FileError(ValueError):
    """A file does not hold what it should: one line, `path: what is wrong with it`."""

    def __init__(self, path: str | os.PathLike[str], problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{os.fspath(path)}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.problem)


# A line that nobody reads to its end is no help.
_LONGEST = 200


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value)) or "empty"
    else:
        text = " ".join(str(value).split()) or "empty"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
