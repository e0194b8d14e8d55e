"""Every preset parses into settings that hold together, and is where it is named."""

import importlib
import itertools
import pathlib
import re

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


def expand(name):
    """The names that a{b,c} stands for: ab and ac."""
    parts = re.split(r"\{(.*?)\}", name)
    return map("".join, itertools.product(*(part.split(",") for part in parts)))


def test_every_preset_that_is_named_exists():
    named = []
    for place in ("scripts/*.py", "docs/*.md", "README.md"):
        for file in sorted(ROOT.glob(place)):
            found = re.findall(r"flags/([\w*{},]+\.flags)", file.read_text())
            named += [(file.name, name) for text in found for name in expand(text)]
    assert ("README.md", "paper_cifar100_ldp.flags") in named
    missing = [
        (file, name)
        for file, name in named
        if not any((ROOT / "scripts" / "flags").glob(name))
    ]
    assert not missing
