"""What a measurement was made on, in words."""

import os
import pathlib
import platform
import re
import subprocess
from collections.abc import Sequence
from typing import Any

# From the newest on; the first that a CPU has is named.
_INSTRUCTIONS = {
    "amx_tile": "AMX",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def hide_gpus() -> None:
    """Leaves CPUs alone to TensorFlow, which has not computed yet, and to children."""
    os.environ[_VISIBLE] = ""


def described(devices: str) -> str:
    """Cores, CPU and its widest instructions, and the GPUs if they are used.

    Args:
      devices: `cpu` or `gpu`.
    """
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpu)
    flags = set(re.search(r"flags\s*: (.*)|$", cpu)[0].split())
    widest = next((_INSTRUCTIONS[f] for f in _INSTRUCTIONS if f in flags), "no AVX2")
    if limit := os.environ.get("ONEDNN_MAX_CPU_ISA"):
        widest += f", oneDNN held to {limit}"
    cores = len(os.sched_getaffinity(0))
    name = model[1] if model else platform.machine()
    said = f"{cores} cores of {name} ({widest})"
    if devices == "cpu":
        return f"{said}, CPU only"
    return f"{said} with {' and '.join(gpus())}"


def report(
    rows: list[dict[str, Any]],
    csv: str | None,
    *,
    key: Sequence[str],
    devices: str = "cpu",
) -> None:
    """Prints rows and the machine they were measured on, and writes both.

    Args:
      rows: A measurement each.
      csv: The file to write, in which other rows stay: those of other machines, and of
        what was not measured this time. None for none.
      key: Columns that say what a row measures.
      devices: See `described`.

    Raises:
      ArgumentError: If a file that is not of such rows stands where `csv` says.
      FileError: If it is no CSV.
    """
    # Peers read this file too, in environments that have neither.
    import pandas as pd

    from tff_hdp.errors import ArgumentError, FileError
    from tff_hdp.files import write_text

    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False, float_format="{:.3g}".format))
    print(described(devices))
    if csv and rows:
        path = pathlib.Path(csv)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = frame.assign(machine=described(devices))
        if path.exists():
            try:
                before, which = pd.read_csv(path), [*key, "machine"]
            except ValueError as error:  # pandas' own are such
                raise FileError(path, f"is no CSV: {error}") from error
            if not {*which} <= {*before}:
                allowed = f"a new file, or one of rows with {', '.join(which)}"
                raise ArgumentError("csv", csv, allowed)
            whole = pd.concat([before, whole])
            # As text: a file does not tell "50" from 50.
            whole = whole[~whole[which].astype(str).duplicated(keep="last")]
        write_text(path, whole.to_csv(index=False, float_format="%.4g"))


def gpus() -> list[str]:
    """Names of NVIDIA's GPUs; none where there is no driver, or they are hidden."""
    if os.environ.get(_VISIBLE) == "":
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return found.stdout.split("\n")[:-1]
