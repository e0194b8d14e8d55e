"""Figures 2 to 6 and Table 3 of the HFL-DP paper, and what its text leaves open."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scripts.papers.studies import Line, Study
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.hfl_dp.config import HflDpConfig

# What a scale changes of the presets.
SCALES: dict[str, dict[str, Any]] = {
    "full": {},
    # Tested when the cloud has aggregated.
    "reduced": {
        "local_steps": 4,
        "batch_size": 16,
        "learning_rate": 0.1,
        "evaluate_every": 2,
    },
    "tiny": {"local_steps": 1, "batch_size": 2, "rounds": 2},
}
# One step a local iteration on all of a client's examples, as the text has it: "the
# batch size ... equal to the number of training data". Of batches larger than what a
# client has, one is all.
FULL_BATCH = {"local_steps": 1, "batch_size": 60_000, "evaluate_every": 2}
# Of which the middle one is also the private lines'.
FULL_BATCH_RATES = (0.05, 0.1, 0.3)
# How often each model counts as exposed: every time that it is sent, t1 being all of a
# client's uploads (what the program counts by itself); an upload once and a broadcast
# every time; or every time, t1 being the uploads of edge rounds alone.
EXPOSURES = {
    "all": (),
    "uploads once": ("1", "13", "1", "1", "12"),
    "edge uploads": ("13", "13", "12", "12", "12"),
}
# Preset, n, N, and the accuracy printed.
POINTS = (
    ("figure5_n10_N5", 10, 5, 0.91),
    ("figure5_n100_N20", 100, 20, 0.82),
    ("table3", 100, 10, 0.82),
)
_SIZES = ("num_clients", "clients_per_edge", "edges")


def figure2() -> Study:
    """MNIST with and without noise."""
    return _with_and_without("figure2", 0.05)


def figure3() -> Study:
    """CIFAR-10 with and without noise."""
    return _with_and_without("figure3", 0.11)


def figure4() -> Study:
    """Over epsilon."""
    lines = [
        Line({"epsilon 1 and 2": eps}, f"hfl_dp/figure4_eps{eps}")
        for eps in (10, 20, 50)
    ]
    return _study("figure4", lines, "eps1", "eps2")


def figure5() -> Study:
    """Over clients and edges; of the four groups the text names the ends."""
    groups = {(10, 5): 0.91, (20, 10): None, (50, 10): None, (100, 20): 0.82}
    return _study(
        "figure5",
        [
            Line({"n": n, "N": N}, f"hfl_dp/figure5_n{n}_N{N}", printed=printed)
            for (n, N), printed in groups.items()
        ],
        *_SIZES,
    )


def figure6() -> Study:
    """Over the bound on the models' norm."""
    lines = [Line({"C": C}, f"hfl_dp/figure6_C{C}") for C in (5, 10, 15)]
    return _study("figure6", lines, "clip_norm")


def table3() -> Study:
    """100 clients, 10 edges, eps 10."""
    label = {"n": 100, "N": 10, "epsilon 1 and 2": 10}
    return _study("table3", [Line(label, "hfl_dp/table3", printed=0.82)])


def readings() -> Study:
    """The printed points by the counts of exposures besides the figures' own."""
    lines = _points({}, list(EXPOSURES)[1:])
    return _study("readings", lines, "exposures", *_SIZES)


def per_edge() -> Study:
    """The printed points where n counts the clients of an edge."""
    lines = _points({}, EXPOSURES, per_edge=True)
    return _study("per_edge", lines, "exposures", *_SIZES)


def full_batch() -> Study:
    """The printed points with one full-batch step a local iteration.

    Without noise at several rates, as fifty steps in all are few.
    """
    lines = [
        Line(
            {"point": "HierFAVG, n = 50, N = 5", "exposures": "-", "rate": rate},
            "hfl_dp/figure2_none",
            {**FULL_BATCH, "learning_rate": rate},
        )
        for rate in FULL_BATCH_RATES
    ]
    rate = FULL_BATCH_RATES[1]
    for line in _points({**FULL_BATCH, "learning_rate": rate}, EXPOSURES):
        label = {**line.label, "rate": rate}
        lines.append(dataclasses.replace(line, label=label))
    varied = ("noise", "learning_rate", "exposures", *_SIZES)
    return _study("full_batch", lines, *varied)


def studies(scale: str) -> Mapping[str, Study]:
    """All studies at a scale, by part; reduced, `full_batch` is as it is."""
    if scale == "full":
        return PARTS
    found = {name: study.at(scale, SCALES[scale]) for name, study in PARTS.items()}
    return found | ({"full_batch": full_batch()} if scale == "reduced" else {})


def measure(path: pathlib.Path) -> Mapping[str, Any]:
    """The best accuracy and the cloud's, an edge's noise, what the paper states.

    Returns:
      `best_accuracy`; `cloud_accuracy`, of the last model that the cloud aggregated,
      where it was tested: a run may end with rounds of edges; `edge_noise`, the
      standard deviation of what an edge round leaves in a weight from which the edge's
      n clients go on: sigma_U1 / sqrt(n) of their mean, and n_E of the way down;
      `epsilon_stated`, Theorem 1's of the released model.
    """
    run = read_run(path)
    by_round = run.metrics.set_index("round")["accuracy"]
    found: dict[str, Any] = {"best_accuracy": by_round.max()}
    cloud = by_round[by_round.index % run.flags["k2"] == 0].dropna()
    if len(cloud):
        found["cloud_accuracy"] = cloud.iloc[-1]
    resolved = json.loads((path / "config.json").read_text())["resolved"]
    noise, n = resolved["noise"], resolved["setting"]["n"]
    found["edge_noise"] = math.hypot(noise["sigma_u1"] / math.sqrt(n), noise["n_e"])
    for account in run.accounts:
        if account.observer == "released_model":
            found["epsilon_stated"] = account.epsilon_paper
    return found


def _points(
    changes: Mapping[str, Any], exposed: Iterable[str], *, per_edge: bool = False
) -> list[Line]:
    """Figure 5's ends and table 3, by each count of exposures."""
    lines = []
    for counted in exposed:
        for preset, n, N, printed in POINTS:
            own = {**changes, "exposures": EXPOSURES[counted]}
            if per_edge:
                own |= {"clients_per_edge": n, "num_clients": n * N}
            label = {"point": f"n = {n}, N = {N}", "exposures": counted}
            lines.append(Line(label, f"hfl_dp/{preset}", own, printed=printed))
    return lines


def _with_and_without(name: str, loss: float) -> Study:
    lines = [
        Line({"scheme": "HierFAVG"}, f"hfl_dp/{name}_none"),
        Line({"scheme": "HFL-DP"}, f"hfl_dp/{name}_noisy", printed_loss=loss),
    ]
    return _study(name, lines, "noise")


def _study(name: str, lines: Sequence[Line], *varied: str) -> Study:
    return Study(
        paper="hfl_dp",
        name=name,
        lines=lines,
        config_class=HflDpConfig,
        varied=varied,
        within=0.05,
        also=("best_accuracy", "cloud_accuracy", "edge_noise", "epsilon_stated"),
        measure=measure,
    )


PARTS = {
    study.name: study
    for study in (
        *(figure2(), figure3(), figure4(), figure5(), figure6(), table3()),
        *(readings(), full_batch(), per_edge()),
    )
}
