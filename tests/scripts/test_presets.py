"""Every preset parses into settings that hold together."""

import importlib
import pathlib

import pytest
from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.systems.hdp_config import HdpConfig

ROOT = pathlib.Path(__file__).parents[2]
PRESETS = sorted((ROOT / "scripts" / "flags").glob("*.flags"))
SYSTEMS = ("fl_top", "gfl", "hfl_dp", "udp_hypernet")


def config_class(preset):
    """The config of the binary that a preset is for, by its name."""
    for system in SYSTEMS:
        if preset.stem.startswith(system):
            module = f"tff_hdp.simulation.systems.{system}_config"
            words = [w.capitalize() for w in system.split("_")]
            return getattr(importlib.import_module(module), "".join(words) + "Config")
    return HdpConfig


def parse(preset):
    values = flags.FlagValues()
    kind = config_class(preset)
    cli.define_flags(kind, values)
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    values(["program", f"--flagfile={preset}"])
    return cli.config_from_flags(kind, values)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.stem)
def test_every_preset_is_a_config(preset):
    config = parse(preset)
    if isinstance(config, HdpConfig):
        named = preset.stem.removeprefix("paper_")
        assert named == f"{config.task}_{config.privacy}"


@pytest.mark.parametrize("task", ["emnist", "cifar10", "cifar100"])
@pytest.mark.parametrize("mode", ["none", "cdp", "hdp", "ldp"])
def test_the_paper_presets_have_the_papers_settings(task, mode):
    config = parse(ROOT / "scripts" / "flags" / f"paper_{task}_{mode}.flags")
    z = None if mode == "none" else 1.0
    assert (config.privacy, config.rounds) == (mode, 200)
    assert config.noise_multiplier == z
