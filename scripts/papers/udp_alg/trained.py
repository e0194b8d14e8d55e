"""UDP-Alg's Figures 2a, 2b and 3, and what un-noised descriptors carry."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scripts.papers.studies import Line, Study
from tff_hdp.privacy import AccountRow, worst
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

# What section 4.3 prints. It names sigma for 2b once and for 3 never: the other
# values are chosen here around z = 5 at q = 0.05 (N = 3400 and 6348).
CURVES: dict[str, tuple[tuple[float, float], ...]] = {
    "2a": ((0.05, 0.1), (0.1, 0.1), (0.05, 0.2)),
    "2b": ((0.0015, 0.05), (0.003, 0.05), (0.0015, 0.1)),
    "3": ((0.0008, 0.05), (0.0016, 0.05), (0.0008, 0.1)),
}
# The rounds after which figure 2a's first curve has eps 4 and 10 by the accountant of
# its time, at q = 0.1.
EPS_4, EPS_10 = 1430, 7500
DESCRIPTOR_RATES = (0.0, 0.1, 10.0)
# Of a hypernetwork wider than the reduced preset's: lambda of Noiseless averages at
# server rate 1, and that of the curves with noise is about a quarter.
WIDE = {
    "hidden_width": 64,
    "descriptor_dim": 64,
    "local_steps": 10,
    "descriptor_learning_rate": 20.0,
    "server_learning_rate": 0.0154,
}
WIDE_RATE = 0.004
# Settings besides those of the presets <figure>_small: lambda of the curves with noise,
# whose steps are clipped to a fraction of Noiseless's.
SMALL_RATES = {"2a": 0.0125, "2b": 1.5}


def figure2a(scale: str, rate: float | None) -> Study:
    """The rounds of eps 4."""
    return _figure(
        "figure2a",
        "2a",
        scale,
        rate,
        changes={"rounds": EPS_4},
        printed={(0.05, 0.1): 0.5395},
    )


def figure2a_eps10(scale: str, rate: float | None) -> Study:
    """The rounds of eps 10, where the paper compares sigma and S."""
    return _figure(
        "figure2a_eps10",
        "2a",
        scale,
        rate,
        changes={"rounds": EPS_10},
        printed={(0.05, 0.1): 0.8223, (0.1, 0.1): 0.2127, (0.05, 0.2): 0.6967},
    )


def descriptors(scale: str, rate: float | None) -> Study:
    """Figure 2a's first curve with descriptors that stay, step little, or much."""
    sigma, S = CURVES["2a"][0]
    lines = [
        Line(
            {"descriptor_rate": zeta},
            _preset("2a", scale),
            {
                "rounds": EPS_4,
                "descriptor_learning_rate": zeta,
                **_noise("2a", sigma, S, scale, rate),
            },
        )
        for zeta in DESCRIPTOR_RATES
    ]
    return _study("descriptors", lines, "descriptor_learning_rate")


def figure2a_wide(scale: str, rate: float | None) -> Study:
    """Figure 2a's first curve and Noiseless with wider hypernetworks, and longer steps.

    With the descriptors as they are drawn too: all the rest is what phi does.
    """
    sigma, S = CURVES["2a"][0]
    noise = {
        "privacy": "udp_alg",
        "sigma": sigma,
        "clip_norm": S,
        "server_learning_rate": WIDE_RATE if rate is None else rate,
    }
    lines = []
    for rounds, printed in ((EPS_4, 0.5395), (EPS_10, 0.8223)):
        changes = {**WIDE, "rounds": rounds}
        zeta = WIDE["descriptor_learning_rate"]
        label = {"rounds": rounds, "curve": "Noiseless", "descriptor_rate": zeta}
        lines.append(Line(label, _preset("2a", scale), changes))
        label = {**label, "curve": f"sigma = {sigma}, S = {S}"}
        changes = {**changes, **noise}
        lines.append(Line(label, _preset("2a", scale), changes, printed))
        if rounds == EPS_4:
            changes = {**changes, "descriptor_learning_rate": 0.0}
            label = {**label, "descriptor_rate": 0.0}
            lines.append(Line(label, _preset("2a", scale), changes))
    return _study("figure2a_wide", lines, "rounds", "descriptor_learning_rate")


def figure2b(scale: str, rate: float | None) -> Study:
    """FEMNIST; at the reduced scale MNIST by writer in its place."""
    return _figure(
        "figure2b",
        "2b",
        scale,
        rate,
        changes={},
        losses={(0.0015, 0.05): 0.0531},
    )


def figure2b_mnist(scale: str, rate: float | None) -> Study:
    """MNIST by writer over the rounds of eps 3, at what sigma is with 3,400 users."""
    changes = {"rounds": 3440, "weighting": "examples"}
    noise = {"privacy": "udp_alg", "noise_multiplier": 5.1, "clip_norm": 0.05}
    # At the rate of so few rounds as figure2b has, this much noise ends in NaN; by
    # default it is Noiseless's.
    if rate is not None:
        noise["server_learning_rate"] = rate
    return _study(
        "figure2b_mnist",
        [
            Line({"curve": "Noiseless"}, "udp_alg/2b_small", changes),
            Line(
                {"curve": "z = 5.1, S = 0.05"},
                "udp_alg/2b_small",
                {**changes, **noise},
                printed_loss=0.0531,
            ),
        ],
    )


def figure3(scale: str, rate: float | None) -> Study:
    """CelebA."""
    return _figure(
        "figure3",
        "3",
        scale,
        rate,
        changes={},
        losses={(0.0008, 0.05): 0.0384},
    )


PARTS = {
    part.__name__: part
    for part in (
        *(figure2a, descriptors, figure2b, figure3),
        *(figure2a_eps10, figure2a_wide, figure2b_mnist),
    )
}


def studies(scale: str, private_rate: float | None = None) -> Mapping[str, Study]:
    """All studies at a scale, by part.

    Args:
      scale: One of `program.SCALES`.
      private_rate: lambda of the curves with noise; None takes the scale's.
    """
    found = {name: part(scale, private_rate) for name, part in PARTS.items()}
    if scale == "full":
        return found
    changes = {"rounds": 1} if scale == "tiny" else {}
    return {name: study.at(scale, changes) for name, study in found.items()}


def measure(path: pathlib.Path) -> Mapping[str, Any]:
    """Accuracy over all users' own tests, and what the released model is worth."""
    users = pd.read_csv(path / "users.csv")
    right = (users["own_accuracy"] * users["own_tests"]).sum()
    found: dict[str, Any] = {"accuracy": right / users["own_tests"].sum()}
    row = released(read_run(path).accounts)
    found["z"] = row and row.noise_multiplier
    found["epsilon_paper"] = row and row.epsilon_paper
    return found


def released(accounts: Sequence[AccountRow]) -> AccountRow | None:
    """The account of the hypernetwork; None without noise."""
    rows = [row for row in accounts if row.observer == "released_model"]
    return worst(rows, "released_model") if rows else None


def _figure(
    name: str,
    figure: str,
    scale: str,
    rate: float | None,
    *,
    changes: Mapping[str, Any],
    printed: Mapping[tuple[float, float], float] | None = None,
    losses: Mapping[tuple[float, float], float] | None = None,
) -> Study:
    """Noiseless and a figure's curves, with the accuracies printed for them."""
    preset = _preset(figure, scale)
    lines = [Line({"curve": "Noiseless", "sigma": 0.0, "S": "-"}, preset, changes)]
    for sigma, S in CURVES[figure]:
        lines.append(
            Line(
                {"curve": "UDP-Alg", "sigma": sigma, "S": S},
                preset,
                {**changes, **_noise(figure, sigma, S, scale, rate)},
                printed=(printed or {}).get((sigma, S)),
                printed_loss=(losses or {}).get((sigma, S)),
            )
        )
    return _study(name, lines)


def _study(name: str, lines: Sequence[Line], *varied: str) -> Study:
    return Study(
        paper="udp_alg",
        name=name,
        lines=lines,
        config_class=UdpHypernetConfig,
        varied=varied,
        also=("z", "epsilon_paper"),
        against=("epsilon_rdp",),
        measure=measure,
    )


def _preset(figure: str, scale: str) -> str:
    return f"udp_alg/{figure}" + ("" if scale == "full" else "_small")


def _noise(
    figure: str, sigma: float, S: float, scale: str, rate: float | None
) -> dict[str, Any]:
    changes = {"privacy": "udp_alg", "sigma": sigma, "clip_norm": S}
    if rate is None and scale != "full":
        rate = SMALL_RATES.get(figure)
    if rate is not None:
        changes["server_learning_rate"] = rate
    return changes
