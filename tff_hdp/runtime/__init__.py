"""Where a TFF computation runs. Knows nothing of learning."""

from typing import Any

RUNTIMES = ("native",)

_current: tuple[str, Any] | None = None


def set_context(runtime: str, **options: Any) -> None:
    """Makes `runtime` the process's default TFF execution context.

    Asking for the runtime that is set already changes nothing; asking for another
    closes it first.

    Args:
      runtime: One of `RUNTIMES`.
      **options: Passed to that runtime's own `set_..._context`.

    Raises:
      ValueError: If there is no such runtime.
    """
    global _current
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime is {runtime!r}; allowed are {', '.join(RUNTIMES)}")
    if _current is not None:
        name, handle = _current
        if name == runtime:
            return
        handle.close()
    from tff_hdp.runtime.native import set_native_context

    _current = runtime, set_native_context(**options)
