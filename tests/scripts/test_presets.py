"""Every preset parses into settings that hold together."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PRESETS = sorted((ROOT / "scripts" / "flags").glob("*.flags"))
CODE = """
import sys
sys.path.insert(0, {scripts!r})
import train
from absl import flags
train.define_flags()
for preset in sys.argv[1:]:
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    flags.FLAGS(["train", f"--flagfile={{preset}}"])
    config = train.config_from_flags()
    print(config.task, config.privacy, config.rounds, config.noise_multiplier)
"""


@pytest.fixture(scope="module")
def parsed():
    code = CODE.format(scripts=str(ROOT / "scripts"))
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, PRESETS)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    return dict(zip([p.stem for p in PRESETS], lines, strict=True))


def test_the_paper_presets_have_the_papers_settings(parsed):
    for task in ("emnist", "cifar10", "cifar100"):
        for mode in ("none", "cdp", "hdp", "ldp"):
            z = "None" if mode == "none" else "1.0"
            assert parsed[f"paper_{task}_{mode}"] == f"{task} {mode} 200 {z}"


def test_every_preset_is_named_after_its_run(parsed):
    for name, line in parsed.items():
        task, privacy = line.split()[:2]
        assert name.removeprefix("paper_") == f"{task}_{privacy}"
