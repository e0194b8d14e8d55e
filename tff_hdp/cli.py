"""What the command-line programs share: how they start and how they fail."""

import atexit
import dataclasses
import gc
import inspect
import logging
import os
import pathlib
import re
import signal
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from absl import flags

from tff_hdp.errors import ArgumentError, FileError, NoiseError, one_line

_PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".eps")
# By flag, the words that a list of `define_choices` may hold.
_CHOICES: dict[str, tuple[str, ...]] = {}


def run(
    main: Callable[..., int],
    define: Callable[[], None] = lambda: None,
    *,
    takes_words: bool = False,
) -> int:
    """Runs an absl program; bad input is one line on stderr and exit code 2.

    An `ArgumentError` whose name is a flag's, or an entry of one such as
    `zone_sizes[3]`, is shown with the dashes: `error: --name is value; allowed: ...`.

    Args:
      main: Returns an exit code; takes nothing, or the words that are no flags.
      define: Defines the program's flags; what it raises is told as `main`'s errors.
      takes_words: Whether `main` takes such words; else they are refused.

    Returns:
      `main`'s code; 2 for a bad flag, missing data, a file that cannot be read or
      written, a round with too little noise, a model that is no longer finite, or a
      program of the clone run without the clone on the path; 130 after Ctrl-C, of
      which a second ends the process at once; 141 where nobody reads on.
    """
    flags.DEFINE_boolean("help", False, "Show this help.")
    _spare_the_collector()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tff_hdp").setLevel(logging.INFO)
    try:
        define()
        words = flags.FLAGS(sys.argv)[1:]
        if flags.FLAGS.help:
            print(sys.modules["__main__"].__doc__)
            print(flags.FLAGS.get_help())
            return 0
        _check_text(flags.FLAGS)
        _check_choices(flags.FLAGS)
        if takes_words:
            return main(words)
        refuse_words(words)
        return main()
    except flags.UnrecognizedFlagError as error:
        return _fail(f"{error} (--help lists all flags)")
    except KeyboardInterrupt:
        # A second Ctrl-C ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print("interrupted", file=sys.stderr)
        return 130
    except ArgumentError as error:
        is_flag = error.name.partition("[")[0] in flags.FLAGS
        return _fail(f"--{error}" if is_flag else str(error))
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does; nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(_of_flag(error))
    except MemoryError as error:
        return _fail(f"not enough memory: {error}")
    except (FileError, NoiseError, FloatingPointError, flags.Error) as error:
        # A FloatingPointError is of a model that training made infinite.
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("scripts", "benchmarks"):
            raise
        return _fail(
            f"{error}; this program needs the clone it lies in on the path: "
            "pip install --no-deps -e CLONE"
        )


def _check_text(given: flags.FlagValues) -> None:
    """Raises ArgumentError for a flag that no file, page or JSON could hold."""
    for name, value in given.flag_values_dict().items():
        for word in value if isinstance(value, list) else [value]:
            try:
                str(word).encode()
            except UnicodeEncodeError as error:
                raise ArgumentError(name, ascii(word), "text in UTF-8") from error


def _check_choices(given: flags.FlagValues) -> None:
    """Raises ArgumentError for a list that holds other words than it may."""
    for name, allowed in _CHOICES.items():
        words, may_be_empty = given[name].value, not given[name].default
        if not set(words) <= set(allowed) or not (words or may_be_empty):
            raise ArgumentError(name, words, f"some of {', '.join(allowed)}")


def _spare_the_collector() -> None:
    """Looks less often for garbage among what stays to the end.

    TensorFlow makes objects by the hundred thousand when it is imported, and more for
    every graph; to go through them again and again, and at the end, takes a noticeable
    share of a short run.
    """
    gc.set_threshold(50_000, 20, 50)
    atexit.register(gc.freeze)


def check_picture(name: str, path: str | None) -> None:
    """Refuses a picture that could not be written, before what it shows is computed.

    Raises:
      ArgumentError: If it is in no folder that is there, or of no known kind.
    """
    if path is None:
        return
    if not pathlib.Path(path).resolve().parent.is_dir():
        raise ArgumentError(name, path, "a file in a folder there is")
    if pathlib.Path(path).suffix.lower() not in _PICTURES:
        raise ArgumentError(name, path, f"a name that ends in {', '.join(_PICTURES)}")


def define_flags(
    config_class: type, flag_values: flags.FlagValues = flags.FLAGS
) -> None:
    """Defines one flag for every field of a config dataclass.

    The field's annotation gives the flag's type, the entry under `Attributes:` in
    the docstring of the class that declares it the help, and `choices` the
    allowed words.

    Args:
      config_class: A dataclass with a class attribute `choices`.
      flag_values: Where to define them.
    """
    where = {"flag_values": flag_values}
    hints = typing.get_type_hints(config_class)
    described = {}
    # What a user may name besides the choices; the config tells which it refuses.
    own = getattr(config_class, "own", ())
    for base in reversed(config_class.__mro__):
        described |= _attribute_docs(base)
    for field in dataclasses.fields(config_class):
        name, default, text = field.name, field.default, described[field.name]
        kinds = set(typing.get_args(hints[name])) or {hints[name]}
        if name in own:
            text = f"<{'|'.join((*config_class.choices[name], 'module:NAME'))}>: {text}"
        if isinstance(hints[name], types.GenericAlias):
            flags.DEFINE_list(name, list(default), text, **where)
        elif name in config_class.choices and name not in own:
            choices = list(config_class.choices[name])
            flags.DEFINE_enum(name, default, choices, text, **where)
        elif str in kinds:
            value = None if default is None else str(default)
            flags.DEFINE_string(name, value, text, **where)
        elif bool in kinds:
            flags.DEFINE_boolean(name, default, text, **where)
        elif float in kinds:
            flags.DEFINE_float(name, default, text, **where)
        else:
            flags.DEFINE_integer(name, default, text, **where)


def config_from_flags(
    config_class: type, flag_values: flags.FlagValues = flags.FLAGS
) -> Any:
    """The parsed flags of `define_flags` as a config.

    Args:
      config_class: As given to `define_flags`.
      flag_values: Likewise.

    Raises:
      ArgumentError: If the config refuses a value.
    """
    names = [field.name for field in dataclasses.fields(config_class)]
    return config_class(**{name: flag_values[name].value for name in names})


def define_choices(
    name: str, default: Iterable[str], allowed: Iterable[str], text: str = ""
) -> None:
    """Defines a list flag of some of the words allowed; `run` refuses others.

    Args:
      name: The flag's.
      default: Where it is empty, so may the flag be.
      allowed: Which words it may hold; the help names them.
      text: What else the help says.
    """
    _CHOICES[name] = words = tuple(allowed)
    named = f"Some of {', '.join(words)}."
    flags.DEFINE_list(name, list(default), f"{text} {named}".strip())


def check_seeds(seeds: Sequence[str]) -> list[int]:
    """What a list flag of seeds holds.

    Raises:
      ArgumentError: Unless it is one or more different whole numbers >= 0.
    """
    ok = bool(seeds) and all(s.isascii() and s.isdecimal() for s in seeds)
    if not ok or len(set(map(int, seeds))) < len(seeds):
        allowed = "one or more, different whole numbers >= 0"
        raise ArgumentError("seeds", seeds, allowed)
    return [int(seed) for seed in seeds]


def refuse_words(words: Sequence[str]) -> None:
    """Raises ArgumentError if there are words that are no flags."""
    if words:
        raise ArgumentError("argument", words[0], "flags only, see --help")


def _of_flag(error: OSError) -> str:
    """What an error about a file says, by the flag that names the file if one does."""
    file = None if error.filename is None else str(error.filename)
    named = [name for name in flags.FLAGS if str(flags.FLAGS[name].value) == file]
    if file is None or not named:
        return str(error)
    return f"--{named[0]} is {file}: {error.strerror}"


def _fail(message: str) -> int:
    print("error: " + one_line(message), file=sys.stderr)
    return 2


def _attribute_docs(described: type) -> dict[str, str]:
    """The entries of a Google-style `Attributes:` section, one line each."""
    text = inspect.cleandoc(described.__dict__.get("__doc__") or "")
    section = re.search(r"^Attributes:\n((?:  .*\n?|\n)*)", text, re.MULTILINE)
    entries = re.split(r"^  (\w+): ", section[1] if section else "", flags=re.M)[1:]
    pairs = zip(entries[::2], entries[1::2], strict=True)
    return {name: " ".join(entry.split()) for name, entry in pairs}
