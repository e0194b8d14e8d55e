"""Where a TFF computation runs. Knows nothing of learning."""

from typing import Any

RUNTIMES = ("native",)


def set_context(runtime: str, **options: Any) -> Any:
    """Makes `runtime` the process's default TFF execution context.

    Args:
      runtime: One of `RUNTIMES`.
      **options: Passed to that runtime's own `set_..._context`.

    Returns:
      The runtime's handle (for `native`, the worker, which has `close()`).

    Raises:
      ValueError: If there is no such runtime.
    """
    if runtime == "native":
        from tff_hdp.runtime.native import set_native_context

        return set_native_context(**options)
    raise ValueError(f"runtime is {runtime!r}; allowed are {', '.join(RUNTIMES)}")
