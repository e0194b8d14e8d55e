"""Presets: flag files that name a run each. Imports no TensorFlow."""

import dataclasses
import pathlib
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.config import RunConfig

FOLDER = pathlib.Path(__file__).parent


def read(name: str, config_class: type[RunConfig], **changes: Any) -> RunConfig:
    """A preset as a config.

    Args:
      name: <paper>/<preset>, of scripts/papers/<paper>/<preset>.flags.
      config_class: Whose flags it holds.
      **changes: Settings to have instead of the preset's.

    Raises:
      ArgumentError: If the settings do not hold together.
    """
    values = flags.FlagValues()
    cli.define_flags(config_class, values)
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    values([name, f"--flagfile={FOLDER / f'{name}.flags'}"])
    return dataclasses.replace(cli.config_from_flags(config_class, values), **changes)


def given(config_class: type[RunConfig]) -> dict[str, Any]:
    """The settings that the command line names, to have instead of a preset's."""
    names = [field.name for field in dataclasses.fields(config_class)]
    return {n: flags.FLAGS[n].value for n in names if flags.FLAGS[n].present}
