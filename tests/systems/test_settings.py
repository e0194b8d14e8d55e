"""Settings from Python, which no command line has parsed."""

import dataclasses
import math
import os
import pathlib
import typing

import numpy as np
import pytest

from scripts.plan import PlanConfig
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

CONFIGS = {
    HdpConfig: {"noise_multiplier": 1.0},
    **{HflDpConfig: {}, GflConfig: {}, FlTopConfig: {}, AccountConfig: {}},
    **{PlanConfig: {"promises": ("released_model<=2",)}, AttackConfig: {}},
    UdpHypernetConfig: {"noise_multiplier": 1.0},
}
BAD = (
    *("x", math.nan, math.inf, -1, 0, 1.5, True, None, (1,), ("x",), [40, 40.5]),
    *(10**400, {}, {"a": 1}, object(), np.array([1, 2]), np.array("x"), b"x", 1j),
    *("\u0661\u0662", "1_0"),
)


@pytest.mark.parametrize("config_class", CONFIGS, ids=lambda c: c.__name__)
def test_a_field_of_another_type_is_refused_by_name(config_class):
    """Some raised TypeErrors of their own, or went in and came out as another."""
    given, hints = CONFIGS[config_class], typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        for bad in BAD:
            try:
                made = config_class(**given | {field.name: bad})
            except (ArgumentError, FileNotFoundError) as error:
                assert str(error).count("\n") == 0
                continue
            kept = getattr(made, field.name)
            assert kept is not True or isinstance(field.default, bool | None)
            if hints[field.name] is int:
                assert type(kept) is int, (field.name, bad)


@pytest.mark.parametrize(
    ("config_class", "name"),
    [(HdpConfig, "out"), (GflConfig, "data_dir"), (PlanConfig, "out")],
)
def test_an_empty_name_is_none(config_class, name):
    """As `--out=$FOLDER` gives where nobody set it: that was the current folder."""
    with pytest.raises(ArgumentError, match=f"{name} is empty; allowed: text or None"):
        config_class(**CONFIGS[config_class] | {name: ""})


@pytest.mark.parametrize(
    ("name", "bad", "allowed"),
    [
        ("rounds", 2.5, "a whole number below 2^63"),
        ("rounds", True, "a whole number below 2^63"),
        ("batch_size", 20.5, "a whole number below 2^63"),
        ("batch_size", math.nan, "a whole number below 2^63"),
        ("num_clients", math.nan, "a whole number below 2^63 or None"),
        ("drop_rate", "0.1", "a finite number"),
        ("quiet", 1, "True or False"),
        ("task", 3, "text"),
        ("zone_sizes", [40, 40.5], "a list, each of them a whole number below 2^63"),
        ("zone_sizes", ["1_0", "5"], "whole numbers >= 1, joined by commas"),
        ("zone_sizes", ["\u0661\u0662"], "whole numbers >= 1, joined by commas"),
        ("zone_sizes", ["9" * 5000], "whole numbers >= 1, joined by commas"),
        ("zone_sizes", [""], "whole numbers >= 1, joined by commas"),
    ],
)
def test_what_is_allowed_is_said(name, bad, allowed):
    with pytest.raises(ArgumentError) as caught:
        HdpConfig(noise_multiplier=1.0, **{name: bad})
    assert (caught.value.name, caught.value.allowed) == (name, allowed)


@pytest.mark.parametrize("config_class", [HdpConfig, GflConfig, FlTopConfig])
@pytest.mark.parametrize(
    ("bad", "shown"), [("a\0b", r"'a\x00b'"), (os.fsdecode(b"caf\xe9"), r"'caf\udce9'")]
)
def test_a_folder_whose_name_nothing_takes_is_refused(config_class, bad, shown):
    """The run began, and ended in an error of Python's or TensorFlow's."""
    with pytest.raises(ArgumentError) as caught:
        config_class(**CONFIGS[config_class] | {"out": bad})
    said = f"out is {shown}; allowed: a path in UTF-8, without zero characters"
    assert str(caught.value) == said
    assert GflConfig(out="caf\xe9 \u2603").out == "caf\xe9 \u2603"


def test_paths_and_numbers_of_numpy_are_taken():
    config = HdpConfig(
        noise_multiplier=np.float32(1.5), rounds=np.int64(3), out=pathlib.Path("runs/a")
    )
    values = (config.noise_multiplier, config.rounds, config.out)
    assert values == (1.5, 3, "runs/a")
    assert list(map(type, values)) == [float, int, str]
