"""What the command-line programs share: how they start and how they fail."""

import logging
import os
import sys
from collections.abc import Callable

from absl import flags


class UsageError(ValueError):
    """The command line is wrong. The message is one line naming the flag."""


def run(main: Callable[[list[str]], int]) -> int:
    """Runs an absl program; bad input is one line on stderr and exit code 2.

    Args:
      main: Takes the arguments left after the flags, returns an exit code.

    Returns:
      `main`'s code; 2 for a bad flag, missing data or a file that cannot be
      read or written; 130 after Ctrl-C.
    """
    # TensorFlow 2.14 logs missing CUDA libraries as errors on any CPU machine.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags.DEFINE_boolean("help", False, "Show this help.")
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("tff_hdp").setLevel(logging.INFO)
    try:
        arguments = flags.FLAGS(sys.argv)
    except flags.Error as error:
        return _fail(str(error))
    if flags.FLAGS.help:
        print(sys.modules["__main__"].__doc__)
        print(flags.FLAGS.get_help())
        return 0
    try:
        return main(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (UsageError, OSError) as error:
        return _fail(str(error))


def refuse_arguments(argv: list[str]) -> None:
    """Raises UsageError if words were left that are no flags."""
    if len(argv) > 1:
        raise UsageError(f"argument is {argv[1]}; allowed: flags only, see --help")


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2
