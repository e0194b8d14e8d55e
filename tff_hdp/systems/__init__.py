"""A folder for each system, and beside them what several share.

A folder's `config.py` is TensorFlow-free; its fields are the binary's flags, and its
`build(folder)` returns the `System` of the folder's `run.py` that the training loop
runs.
"""

import dataclasses
import importlib
import pathlib
import shlex
from typing import TYPE_CHECKING

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.reading import read_json

if TYPE_CHECKING:
    from tff_hdp.simulation.config import RunConfig

_CONFIGS = {
    "hdp": "HdpConfig",
    "hfl_dp": "HflDpConfig",
    "gfl": "GflConfig",
    "fl_top": "FlTopConfig",
    "udp_hypernet": "UdpHypernetConfig",
}
# The program in scripts/ that runs each.
PROGRAMS = {"train" if name == "hdp" else name: name for name in _CONFIGS}


def config_class(system: str) -> "type[RunConfig]":
    """The class of a system's settings, by the system's name.

    Raises:
      ArgumentError: If there is no such system.
    """
    if system not in _CONFIGS:
        raise ArgumentError("system", system, ", ".join(_CONFIGS))
    module = importlib.import_module(f"{__name__}.{system}.config")
    return getattr(module, _CONFIGS[system])


def config_of(path: pathlib.Path) -> "RunConfig":
    """The settings of the run in a folder.

    Raises:
      FileNotFoundError: If the folder holds no run.
      FileError: If its config.json is not one of this version.
    """
    file = path / "config.json"
    if not file.exists():
        raise FileNotFoundError(f"{path} holds no run: no config.json")
    try:
        record = read_json(file)
        return config_class(record["system"])(**record["flags"] | {"out": str(path)})
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(file, f"is not of a run of this version: {error}") from error


def command_of(config: "RunConfig") -> str:
    """The command line that runs these settings."""
    system = config.system
    program = next(p for p, trained in PROGRAMS.items() if trained == system)
    words = [f"python scripts/{program}.py"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value not in (field.default, None):
            joined = value if isinstance(value, tuple) else (value,)
            text = ",".join(map(str, joined))
            words.append(f"--{field.name}={shlex.quote(text)}")
    return " \\\n    ".join(words)
