"""Every preset parses into settings that hold together, and is where it is named."""

import itertools
import pathlib
import re

import pytest
from absl import flags

from scripts.papers.comparison.config import MatchedConfig
from tff_hdp import cli
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

ROOT = pathlib.Path(__file__).parents[3]
PAPERS = ROOT / "scripts" / "papers"
PRESETS = sorted(PAPERS.glob("*/*.flags"))
CONFIGS = {
    "comparison": MatchedConfig,
    "fl_top": FlTopConfig,
    "gfl": GflConfig,
    "hdp": HdpConfig,
    "hfl_dp": HflDpConfig,
    "udp_alg": UdpHypernetConfig,
}


def parse(preset):
    values = flags.FlagValues()
    kind = CONFIGS[preset.parent.name]
    cli.define_flags(kind, values)
    flags.DEFINE_string("flagfile", "", "", flag_values=values)
    values(["program", f"--flagfile={preset}"])
    return cli.config_from_flags(kind, values)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_preset_is_a_config(preset):
    config = parse(preset)
    if isinstance(config, HdpConfig):
        named = preset.stem.removeprefix("paper_")
        assert named == f"{config.task}_{config.privacy}"


@pytest.mark.parametrize("task", ["emnist", "mnist", "cifar10", "cifar100"])
@pytest.mark.parametrize("mode", ["none", "cdp", "hdp", "ldp"])
def test_the_paper_presets_have_the_papers_settings(task, mode):
    config = parse(PAPERS / "hdp" / f"paper_{task}_{mode}.flags")
    z = None if mode == "none" else 1.0
    assert (config.privacy, config.rounds) == (mode, 200)
    assert config.noise_multiplier == z


def expand(name):
    """The names that a{b,c} stands for: ab and ac."""
    parts = re.split(r"\{(.*?)\}", name)
    return map("".join, itertools.product(*(part.split(",") for part in parts)))


def test_every_preset_that_is_named_exists():
    named = []
    for place in ("scripts/**/*.py", "docs/*.md", "README.md"):
        for file in sorted(ROOT.glob(place)):
            found = re.findall(r"scripts/papers/([\w*{},/]+\.flags)", file.read_text())
            named += [(file.name, name) for text in found for name in expand(text)]
    assert ("hdp.md", "hdp/paper_cifar100_ldp.flags") in named
    missing = [(file, name) for file, name in named if not any(PAPERS.glob(name))]
    assert not missing
