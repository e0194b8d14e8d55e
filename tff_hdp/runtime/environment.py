"""What a process has to settle before it imports TensorFlow, and before it ends."""

import atexit
import os
import pathlib
import sys

# TensorFlow reads them once, when it is imported.
_VARIABLES = {
    # Off by default on CPUs without AVX-512 VNNI, where convolutions then take half
    # as long again.
    "TF_ENABLE_ONEDNN_OPTS": "1",
    # 2.14 reports what a machine without CUDA lacks as errors. Its real errors are
    # raised in Python.
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # Products of float32 on NVIDIA's newer GPUs keep 10 bits of the factors unless
    # told otherwise: too few for the norms that sensitivities rest on.
    "NVIDIA_TF32_OVERRIDE": "0",
    # A process that takes all of a GPU's memory leaves none for a second one.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}

_CONTEXTS = "tensorflow_federated.python.core.impl.context_stack.context_stack_impl"


def prepare() -> None:
    """Sets TensorFlow's variables that the user has not set, and tidies up at exit."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    atexit.register(_release_default_context)


def gpus() -> int:
    """How many GPUs this process may use. Imports TensorFlow, and starts nothing."""
    import tensorflow as tf

    return len(tf.config.get_visible_devices("GPU"))


def multiplies_bfloat16() -> bool:
    """Whether this machine's GPUs, or else its CPU, multiply bfloat16 numbers.

    GPUs do from compute capability 8.0 on. Without such instructions TensorFlow takes
    number by number, many times as slowly, or fails. Imports TensorFlow.
    """
    import tensorflow as tf

    if used := tf.config.get_visible_devices("GPU"):
        details = [tf.config.experimental.get_device_details(gpu) for gpu in used]
        return all(d.get("compute_capability", (0, 0)) >= (8, 0) for d in details)
    try:
        known = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(known)


def _release_default_context() -> None:
    """Gives up the execution context that TFF makes when it is imported.

    The destructor of its worker needs a module that is gone when the interpreter
    takes apart what is left at its end.
    """
    contexts = sys.modules.get(_CONTEXTS)
    if contexts is not None:
        contexts.context_stack.set_default_context(
            contexts.runtime_error_context.RuntimeErrorContext()
        )
