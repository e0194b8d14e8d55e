"""Which attacks each CSV of docs/results/attacks is of. Imports no TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any

# Of scripts/attack.py, by flag.
Settings = Mapping[str, Any]

_MNIST = {"task": "mnist", "model": "dnn"}
_TABLE_4 = {"attack": "table4", "victims": 50, "evaluations": 60}
_ZHU = {"model": "zhu", "evaluations": 200}
_TEN_ZONES = {**_MNIST, "zones": 10, "clients": 100}
_LED = {
    **{"attack": "rotation", **_TEN_ZONES, "level": "1", "rounds": 200},
    **{"secure_aggregation": "both", "elected": True, "trials": 4000},
}
_SAMPLED = {
    **{"attack": "membership", **_TEN_ZONES},
    **{"sampling_probability": 0.2, "rounds": 20},
}
_LIRA = {
    **{"attack": "lira", "level": "outside", "clients": 24, "victims": 32},
    **{"rounds": 10, "learning_rate": 0.3, "local_steps": 5},
}
_BARE = {"task": "mnist", "privacy": "none", "level": "1"}
_LITTLE = {**_BARE, "attack": "analytic", "model": "dnn", "victims": 50}
_SUCCESSIVE = {
    **{"attack": "update_difference", **_MNIST, "level": "0", "victims": 20},
    **{"rounds": 3, "clip_norm": "1", "learning_rate": 0.1},
}
# Who adds noise, and where the attacker is.
_SEEN_SAMPLED = (
    *(("ldp", level) for level in ("1", "2", "0", "outside")),
    *(("hdp", level) for level in ("2", "0", "outside")),
    *(("cdp", "0"), ("cdp", "outside"), ("hdp", "1"), ("cdp", "2")),
)
_SEEN_KINDS = (("none", "1"), ("ldp", "1"), ("hdp", "2"), ("hdp", "0"), ("ldp", "0"))


def _of(shared: Settings, *own: Settings) -> list[Settings]:
    return [{**shared, **each} for each in own]


# What the page calls Table IV's data and model, by the end of the CSV's name.
OTHER_DATA = {
    "fashion_mnist": "Fashion-MNIST, dnn",
    "digits": "digits, dnn",
    "cifar10": "CIFAR-10, Zhu's",
    "cifar100": "CIFAR-100, Zhu's",
    "cifar10_lenet": "CIFAR-10, lenet",
}
_OTHERS = tuple(f"table4_{name}" for name in OTHER_DATA)
# The CSVs that a table of the page is made of, where it is not the one of its name.
SEVERAL: dict[str, Sequence[str]] = {
    "table4_others": _OTHERS,
    "table4_found": _OTHERS,
    "table4_printed": ("table4_mnist", *_OTHERS),
    "conclusions": ("table4_mnist", *_OTHERS),
    "rotation": ("rotation_ldp", "rotation_hdp"),
    "rotation_leaders": ("rotation_ldp", "rotation_hdp"),
}
# By the CSV's name; an attack may give several rows.
CSVS: dict[str, Sequence[Settings]] = {
    "observers": [{"attack": "observers", **_MNIST}],
    "table4_mnist": [{**_TABLE_4, **_MNIST}],
    "table4_fashion_mnist": [{**_TABLE_4, "task": "fashion_mnist", "model": "dnn"}],
    "table4_digits": [{**_TABLE_4, "task": "digits", "model": "dnn"}],
    "table4_cifar10": [{**_TABLE_4, "task": "cifar10", **_ZHU}],
    "table4_cifar100": [{**_TABLE_4, "task": "cifar100", **_ZHU}],
    "table4_cifar10_lenet": [{**_TABLE_4, "task": "cifar10", "model": "lenet"}],
    "super_node": _of(
        {"attack": "analytic", "task": "digits", "level": "1", "victims": 6},
        *({"privacy": mode} for mode in ("none", "cdp", "hdp", "ldp")),
    ),
    "rotation_ldp": [{**_LED, "privacy": "ldp"}],
    "rotation_hdp": [{**_LED, "privacy": "hdp"}],
    "rotation_together": [
        {"attack": "rotation", **_TEN_ZONES, "privacy": "hdp", "level": "outside"}
    ],
    "membership_sampled": _of(
        _SAMPLED,
        *({"privacy": mode, "level": level} for mode, level in _SEEN_SAMPLED),
    ),
    "lira": _of(
        _LIRA,
        {"privacy": "none"},
        {"privacy": "cdp", "noise_multiplier": 0.1},
        {"privacy": "cdp", "noise_multiplier": 0.5},
        {"privacy": "hdp", "noise_multiplier": 0.5},
        {"privacy": "cdp", "noise_multiplier": 0.5, "sampling_probability": 0.5},
        {"privacy": "cdp", "noise_multiplier": 2.0},
        {"privacy": "ldp", "noise_multiplier": 1.0},
    ),
    "systems": _of(
        {"victims": 200},
        *({"system": "fl_top", "ratio": ratio} for ratio in (1.0, 0.1, 0.01)),
        *({"system": system} for system in ("udp_hypernet", "gfl", "hfl_dp")),
        {"system": "hfl_dp", "clip_norm": "15", "noise_multiplier": 0.006},
    ),
    "property": _of(
        {"attack": "property", "task": "mnist"},
        *(
            {"privacy": mode, "level": level, "rounds": rounds}
            for mode, level in _SEEN_KINDS
            for rounds in (1, 20, 100)
        ),
    ),
    "update_difference": _of(
        _SUCCESSIVE,
        {"privacy": "none"},
        {"privacy": "hdp", "noise_multiplier": 0.05},
    ),
    "without_noise": [
        *_of(
            _LITTLE,
            {},
            {"local_steps": 5},
            {"privacy": "ldp", "noise_multiplier": 0.001},
            {"privacy": "ldp", "noise_multiplier": 0.1},
        ),
        {**_BARE, "attack": "dlg", "model": "dnn", "victims": 10},
        *_of(
            {**_BARE, "model": "cnn_small", "victims": 8},
            {"attack": "ig"},
            {"attack": "feature_ig"},
        ),
    ],
}
