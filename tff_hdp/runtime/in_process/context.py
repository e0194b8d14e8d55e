"""TFF execution contexts that run computations inside this Python process."""

import asyncio
import collections
import inspect
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context as tf_context

from tff_hdp.errors import check_count, entries, require
from tff_hdp.runtime.in_process import arguments
from tff_hdp.runtime.in_process.containers import packer
from tff_hdp.runtime.in_process.execute import Executable, Workers

# TFF's own contexts keep as many compiled computations.
_MAX_RECENT = 128


class _Known(NamedTuple):
    computation: weakref.ref
    executable: Executable


class InProcessContext(tff.framework.SyncContext):
    """Runs any TFF computation with the TensorFlow of this process.

    Equal computations are compiled once. What was compiled is kept as long as the
    computation lives, and for the last 128 that were compiled. Safe to call from
    several threads. No other process, port or file is involved.
    """

    def __init__(
        self,
        *,
        devices: Sequence[str] | None = None,
        clients_at_once: int | None = None,
        default_num_clients: int = 0,
        intra_op_threads: int | None = None,
    ) -> None:
        """Creates the context.

        Args:
          devices: Names of the logical devices to use, such as "GPU:0"; None for all
            GPUs TensorFlow sees, or the CPU without any.
          clients_at_once: How many clients' work of a call to run at a time; None for
            one a device on GPUs, one a core on CPUs.
          default_num_clients: The number of clients of a computation whose argument
            does not tell.
          intra_op_threads: How many threads share one operation, in all of this
            process's TensorFlow; None leaves it as it is. 1 is fastest for small
            models on CPUs, where the clients already fill the cores.

        Raises:
          ArgumentError: If a device does not exist, or a number is not whole or out
            of range.
          RuntimeError: If `intra_op_threads` comes after TensorFlow's first use.
        """
        if intra_op_threads is not None:
            threads = check_count("intra_op_threads", intra_op_threads, 1)
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        devices = _resolve(devices)
        if clients_at_once is None:
            clients_at_once = len(devices)
            if all("CPU" in device for device in devices):
                clients_at_once = max(len(devices), len(os.sched_getaffinity(0)))
        clients_at_once = check_count("clients_at_once", clients_at_once, 1)
        self._workers = Workers(devices, clients_at_once)
        name = "default_num_clients"
        self._default_num_clients = check_count(name, default_num_clients)
        self._executables: weakref.WeakValueDictionary[bytes, Executable] = (
            weakref.WeakValueDictionary()
        )
        self._recent: collections.deque[Executable] = collections.deque(
            maxlen=_MAX_RECENT
        )
        self._by_identity: dict[int, _Known] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices in use."""
        return self._workers.devices

    def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
        """Runs `comp` on `arg`, as TFF asks of an execution context.

        Args:
          comp: The computation.
          arg: Its argument, None if it has no parameter.

        Returns:
          The result in the Python containers that the computation's type names.

        Raises:
          TypeError: If `arg` is not of the parameter's type.
          ValueError: If parts of `arg` disagree on the number of clients.
          UnsupportedComputationError: If `comp` cannot run in process.
          RuntimeError: If this process was forked off the context's.
        """
        if os.getpid() != self._process:
            # It would wait for ever, for threads that stayed in the other process.
            raise RuntimeError(
                "this process was forked off one that uses TensorFlow, which does not "
                "work in it: start processes by `spawn`"
            )
        signature = comp.type_signature
        comp, arg = arguments.bind_functions(comp, arg)
        parameter = comp.type_signature.parameter
        parts, clients = arguments.take_apart(arg, parameter, self.invoke)
        if clients is None:
            clients = self._default_num_clients
        # The first alone stays in a graph that the caller made the default one.
        with tf.init_scope(), tf_context.eager_mode():
            executable = self._executable(comp)
            result = executable.run(parts, clients, self._workers)
        return packer(signature.result)(result)

    def _executable(self, comp: tff.framework.ConcreteComputation) -> Executable:
        # Serialising a model's graph takes milliseconds: look for the object first.
        identity = id(comp)
        known = self._by_identity.get(identity)
        if known is not None and known.computation() is comp:
            return known.executable
        key = tff.framework.serialize_computation(comp).SerializeToString(
            deterministic=True
        )
        with self._lock:
            executable = self._executables.get(key) or Executable(comp)
            self._executables[key] = executable
            self._recent.append(executable)

        def forget(reference: weakref.ref) -> None:
            entry = self._by_identity.get(identity)
            if entry is not None and entry.computation is reference:
                del self._by_identity[identity]

        self._by_identity[identity] = _Known(weakref.ref(comp, forget), executable)
        return executable


class AsyncInProcessContext(tff.framework.AsyncContext):
    """An `InProcessContext` whose invocations are awaited, as `tff.program` needs."""

    def __init__(self, context: InProcessContext) -> None:
        """Wraps `context`."""
        self._context = context

    async def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
        """Runs `comp` on `arg` without blocking the event loop."""
        if inspect.isawaitable(arg):
            arg = await arg
        return await asyncio.to_thread(self._context.invoke, comp, arg)


def create_in_process_context(**options: Any) -> InProcessContext:
    """Creates a context; the options are those of `InProcessContext`."""
    return InProcessContext(**options)


def create_async_in_process_context(**options: Any) -> AsyncInProcessContext:
    """Creates a context to await; the options are those of `InProcessContext`."""
    return AsyncInProcessContext(InProcessContext(**options))


def set_in_process_context(**options: Any) -> InProcessContext:
    """Makes a new context the default of this thread, as TFF's setters do.

    The options are those of `InProcessContext`, which it returns.
    """
    context = InProcessContext(**options)
    tff.framework.set_default_context(context)
    return context


def _resolve(devices: Sequence[str] | None) -> tuple[str, ...]:
    """Returns full names of the devices asked for."""
    existing = [device.name for device in tf.config.list_logical_devices()]
    if devices is None:
        return tuple(name for name in existing if "GPU" in name) or tuple(
            name for name in existing if name.endswith("CPU:0")
        )

    def full(argument: str, given: Any) -> str:
        name = "/device:" + str(given).removeprefix("/").removeprefix("device:").upper()
        require(name in existing, argument, given, ", ".join(existing))
        return name

    wanted = entries("devices", devices, full)
    require(bool(wanted), "devices", devices, ", ".join(existing))
    return wanted
