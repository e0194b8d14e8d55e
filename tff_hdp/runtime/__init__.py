"""Where a TFF computation runs. Knows nothing of learning."""

import os
from typing import Any

RUNTIMES = ("in_process", "native")

_contexts: dict[str, Any] = {}


def set_context(
    runtime: str, *, log_file: str | os.PathLike[str] | None = None
) -> None:
    """Makes `runtime` the process's default TFF execution context.

    Each runtime's context is made once and kept until the process ends.

    Args:
      runtime: One of `RUNTIMES`.
      log_file: Receives the output of a worker process, if one is started.

    Raises:
      ValueError: If there is no such runtime.
    """
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime is {runtime!r}; allowed are {', '.join(RUNTIMES)}")
    import tensorflow_federated as tff

    if runtime not in _contexts:
        _contexts[runtime] = _create_context(runtime, log_file)
    tff.framework.set_default_context(_contexts[runtime])


def _create_context(runtime: str, log_file: str | os.PathLike[str] | None) -> Any:
    if runtime == "native":
        from tff_hdp.runtime.native import NativeWorker, create_native_context

        return create_native_context(NativeWorker(log_file=log_file))
    from tff_hdp.runtime.in_process import create_in_process_context

    return create_in_process_context()
