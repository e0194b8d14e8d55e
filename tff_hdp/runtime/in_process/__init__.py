"""Runs any TFF computation inside this Python process."""

from tff_hdp.runtime.in_process.context import (
    AsyncInProcessContext,
    InProcessContext,
    create_async_in_process_context,
    create_in_process_context,
    set_in_process_context,
)
from tff_hdp.runtime.in_process.graphs import UnsupportedComputationError

__all__ = [
    "AsyncInProcessContext",
    "InProcessContext",
    "UnsupportedComputationError",
    "create_async_in_process_context",
    "create_in_process_context",
    "set_in_process_context",
]
