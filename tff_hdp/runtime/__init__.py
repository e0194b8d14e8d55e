"""Where a TFF computation runs. Knows nothing of learning."""

import os
from typing import Any

RUNTIMES = ("in_process", "native")

_current: str | None = None
_worker: Any = None


def set_context(
    runtime: str, *, log_file: str | os.PathLike[str] | None = None
) -> None:
    """Makes `runtime` the process's default TFF execution context.

    Asking for the runtime that is set already changes nothing.

    Args:
      runtime: One of `RUNTIMES`.
      log_file: Receives the output of a worker process, if there is one.

    Raises:
      ValueError: If there is no such runtime.
    """
    global _current, _worker
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime is {runtime!r}; allowed are {', '.join(RUNTIMES)}")
    if runtime == _current:
        return
    if runtime == "native":
        from tff_hdp.runtime.native import set_native_context

        _worker = set_native_context(log_file=log_file)
    else:
        from tff_hdp.runtime.in_process import set_in_process_context

        set_in_process_context()
        if _worker is not None:
            _worker.close()
            _worker = None
    _current = runtime
