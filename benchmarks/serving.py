"""The child's side of a measurement: rounds on request.

A request and its reply are one line of JSON each. Requests come on stdin; replies
have a pipe of their own, since libraries print to stdout what they like.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import works


class Federation(Protocol):
    """A built federated process in some framework, at the initial weights."""

    def round(self) -> None:
        """Runs one round to its end: the new weights are there."""

    def weights(self) -> list[np.ndarray]:
        """The current weights in the order and layout of `Work.weight_shapes`."""


def read_spec(kind: type = works.Work) -> dict[str, Any]:
    """The program's options from its first argument.

    Args:
      kind: Of the work, a dataclass.

    Returns:
      "work", of that kind; "replies", the file descriptor of `serve`; and what the
      program's own options are.
    """
    spec = json.loads(sys.argv[1])
    fields = spec["work"].items()
    spec["work"] = kind(
        **{name: tuple(v) if isinstance(v, list) else v for name, v in fields}
    )
    return spec


def serve(build: Callable[..., Federation], replies: int) -> None:
    """Answers requests until stdin closes.

    - {"do": "build", ...options}: `build(**options)`, in place of what was built
      before.
    - {"do": "round"}: one round.
    - {"do": "save", "path"}: the weights as an .npz.

    The answer is {"seconds"}, what the request took; a failure is answered as
    {"error"} and ends the program.

    Args:
      build: Makes a `Federation`.
      replies: File descriptor to answer on.
    """
    answers = os.fdopen(replies, "w")
    federation: Federation | None = None
    for line in sys.stdin:
        request = json.loads(line)
        action = request.pop("do")
        start = time.perf_counter()
        try:
            if action == "build":
                federation = None
                federation = build(**request)
            elif action == "round":
                federation.round()
            elif action == "save":
                np.savez(request["path"], *federation.weights())
            else:
                raise ValueError(f"do is {action!r}; allowed: build, round, save")
        except Exception as error:
            print(json.dumps({"error": repr(error)}), file=answers, flush=True)
            raise
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)
