"""What FL-TOP's flags may be."""

import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.systems.fl_top.config import FlTopConfig


def test_defaults_follow_the_scheme():
    std = FlTopConfig(scheme="fl_std")
    assert (std.ratio, std.is_private, std.noise_multiplier) == (1.0, False, None)
    top = FlTopConfig(scheme="fl_top_dp", ratio=0.1)
    assert (top.compression, top.is_private) == ("fl_top", True)
    # The paper's sigma.
    assert top.noise_multiplier == 1.54
    assert top.label == "fl_top_dp_0.1"
    assert FlTopConfig(task="fashion_mnist").public_data == "mnist"
    assert FlTopConfig(task="digits").public_data == "held_out"


def test_a_clip_norm_may_come_as_text():
    assert FlTopConfig(scheme="fl_top_dp", clip_norm="0.5").clip_norm == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "fl_middle"}, "scheme is fl_middle; allowed: fl_std, "),
        ({"ratio": 0.0}, r"ratio is 0.0; allowed: \(0, 1\]"),
        ({"ratio": 1.5}, "ratio is 1.5"),
        ({"scheme": "fl_std_dp", "ratio": 0.1}, "1 with scheme=fl_std"),
        ({"noise_multiplier": 1.0}, "noise_multiplier is 1.0; .* fl_top"),
        ({"clip_norm": 1.0}, "clip_norm is 1.0; allowed: nothing"),
        ({"scheme": "fl_top_dp", "noise_multiplier": 0.0}, "1e-6..1e6"),
        ({"scheme": "fl_top_dp", "clip_norm": "much"}, "clip_norm is much"),
        ({"scheme": "fl_top_dp", "clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"public_data": "cifar"}, "public_data is cifar"),
        ({"coefficients": "few"}, "coefficients is few; allowed: random, largest"),
        ({"coefficients": "largest"}, "coefficients is largest; .* with fl_cs"),
        ({"recovery_iterations": 9}, "recovery_iterations is 9; .* with fl_cs"),
        (
            {"task": "mnist", "public_data": "mnist"},
            "public_data is mnist; allowed: held_out with task=mnist",
        ),
        ({"clients_per_round": 0}, "clients_per_round is 0"),
        ({"selection_steps": 0}, "selection_steps is 0"),
        (
            {"scheme": "fl_std", "selection_steps": 3},
            "selection_steps is 3; allowed: nothing but with fl_top or fl_top_dp",
        ),
        ({"scheme": "fl_cs_dp", "selection_steps": 3}, "selection_steps is 3; .* with"),
        ({"recovery_iterations": 0}, "recovery_iterations is 0"),
        ({"cohort_chunk": 0}, "cohort_chunk is 0"),
        ({"client_learning_rate": float("nan")}, "client_learning_rate is nan"),
        (
            {"secure_aggregation_protocol": "graph"},
            "secure_aggregation_protocol is graph; allowed: none with fl_top",
        ),
        ({"scheme": "fl_top_dp", "secure_bits": 20}, "secure_bits is 20; .* only with"),
        (
            {
                "scheme": "fl_top_dp",
                "secure_aggregation_protocol": "graph",
                "sign_messages": True,
            },
            "sign_messages is True; .* secure_aggregation_protocol=bonawitz",
        ),
        (
            {
                "scheme": "fl_top_dp",
                "secure_aggregation_protocol": "bonawitz",
                "secure_bits": 31,
            },
            "secure_bits is 31; allowed: 16..30",
        ),
        (
            {
                "scheme": "fl_top_dp",
                "secure_aggregation_protocol": "intrinsic",
                "clients_per_round": 1,
            },
            "clients_per_round is 1; allowed: at least 2",
        ),
    ],
)
def test_bad_settings_name_the_flag(changes, message):
    with pytest.raises(ArgumentError, match=message):
        FlTopConfig(**changes)
