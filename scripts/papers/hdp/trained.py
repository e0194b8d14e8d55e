"""The HDP paper's figures and tables that need training, and the claims it makes."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pandas as pd

from scripts.papers.hdp.tables import SHARES
from scripts.papers.studies import Line, Study
from tasks.models import DNN, SOFTMAX
from tff_hdp.privacy import worst
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.report import read_run
from tff_hdp.systems.hdp import exposure, seats
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.zones_config import DEFAULT_ZONES

MODES = ("none", "cdp", "hdp", "ldp")
NAMES = {
    "none": "nobody",
    "cdp": "server (CDP)",
    "hdp": "super-nodes (HDP)",
    "ldp": "clients (LDP)",
}
# Figure 2's curves without noise end here, as the text says; the rest is not printed.
PRINTED = {("cifar10", "none"): 0.63, ("cifar100", "none"): 0.28}
# For CIFAR, beside the paper's.
CHOSEN_RATE = 0.1
# Clients a round, where a line does not say.
COHORT = 100
# d of the models of MNIST's digits.
_SIZES = {
    name: model.num_parameters(input_shape=(28, 28, 1), num_classes=10)
    for name, model in {"dnn": DNN, "softmax": SOFTMAX}.items()
}
# The settings that `losses` are told apart by, and what they are called there.
_SYMBOLS = {
    "noise_multiplier": "z",
    "clients_per_round": "k",
    "model": "model",
    "rounds": "rounds",
}
# What a scale changes of a paper's setting. `tiny` shows that the commands work.
SCALES: dict[str, dict[str, Any]] = {
    "full": {},
    "reduced": {"rounds": 40},
    "tiny": {"task": "digits", "model": "dnn", "rounds": 1, "clip_norm": 1.0},
}


def digits() -> Study:
    """The demo's four modes."""
    lines = []
    for mode in MODES:
        noise = {} if mode == "none" else {"noise_multiplier": 1.0}
        label = {"who adds noise": NAMES[mode]}
        lines.append(Line(label, "hdp/digits_none", {"privacy": mode, **noise}))
    return _study("digits", lines)


def forty_rounds() -> Study:
    """The four modes over 40 rounds, at a rate and noise of our choice."""
    lines = [
        Line({"who adds noise": NAMES[mode]}, f"hdp/mnist_{mode}") for mode in MODES
    ]
    return _study("mnist", lines)


def pages() -> Study:
    """The next character of a text, without noise, by both its models."""
    models = ("dnn", "gru")
    lines = [Line({"model": m}, "hdp/pages_none", {"model": m}) for m in models]
    return _study("pages", lines)


def figure2(task: str, rate: float | None = None) -> Study:
    """Accuracy of the four modes at z = 1, S from a pilot.

    Args:
      task: What they train.
      rate: The clients' learning rate; None is the paper's, 0.02.
    """
    changes = {} if rate is None else {"client_learning_rate": rate}
    lines = [
        Line(
            {"task": task, "privacy": mode},
            f"hdp/paper_{task}_{mode}",
            changes,
            printed=PRINTED.get((task, mode)),
        )
        for mode in MODES
    ]
    if rate is not None and (task, "none") in PRINTED:
        # To come near what is printed. A client has twice the images; 3 passes are a
        # fifth more steps than 5 of half.
        twice = {"task": f"{task}_mirrored", "local_epochs": 3}
        label = {"task": twice["task"], "privacy": "none"}
        printed = PRINTED[task, "none"]
        preset = f"hdp/paper_{task}_none"
        lines.insert(1, Line(label, preset, changes | twice, printed=printed))
    return _study(f"figure2_{task}" + ("" if rate is None else "_chosen"), lines)


def table1() -> Study:
    """Table I trained: C1 to C7 on MNIST by writer."""
    lines = []
    for name in ("none", *(f"c{i}" for i in range(1, 8))):
        settings: dict[str, Any] = {"privacy": name, **SHARES.get(name, {})}
        # MNIST's preset has the noise of one mode; the configuration is the line's.
        preset = "hdp/mnist_none" if name == "none" else "hdp/mnist_hdp"
        lines.append(Line({"configuration": name.upper()}, preset, settings))
    return _study("table1_accuracy", lines)


def case4() -> Study:
    """Figure 1's case 4: super-nodes noise, and clients who do not trust them too."""
    return _study(
        "case4",
        [
            Line(
                {"share of clients that noise": alpha},
                "hdp/mnist_hdp",
                {"privacy": "ldp_hdp", "alpha": alpha},
            )
            for alpha in (0.1, 0.5, 1.0)
        ],
    )


def figure3(task: str | None = None) -> Study:
    """Accuracy by zones and cohort.

    Args:
      task: What they train, in the paper's setting; None is MNIST by writer in EMNIST's
        place, over 40 rounds.
    """
    name, preset = "figure3", "hdp/mnist_hdp"
    if task is not None:
        name, preset = f"figure3_{task}", f"hdp/paper_{task}_hdp"
    return _study(
        name,
        [
            Line(
                {"zones": zones, "clients_per_round": cohort},
                preset,
                {"zones": zones, "clients_per_round": cohort},
            )
            for zones in (10, 20, 30, 40, 50)
            for cohort in (100, 200, 300)
        ],
        also=("epsilon_paper",),
        measure=measure_paper,
    )


def measure_paper(path: pathlib.Path) -> Mapping[str, Any]:
    """The paper's formula for the released model, as `epsilon_paper`."""
    rows = read_run(path).accounts
    return {"epsilon_paper": worst(rows, "released_model").epsilon_paper}


def claim() -> Study:
    """Is HDP as accurate as CDP? By cohort and noise, at equal multiplier."""
    return _study(
        "claim",
        [
            Line(
                {"privacy": mode, "clients_per_round": cohort, "noise_multiplier": z},
                "hdp/mnist_hdp",
                {"privacy": mode, "clients_per_round": cohort, "noise_multiplier": z},
            )
            for z in (0.1, 0.3, 1.0)
            for cohort in (50, 100, 300)
            for mode in ("cdp", "hdp")
        ],
        derived={"losses": losses},
    )


def claim_sizes() -> Study:
    """The same by model and rounds, and at noise that a small model has as long."""
    preset = "hdp/mnist_hdp"
    settings = [
        {"model": model, "noise_multiplier": z, "rounds": rounds}
        for model, z, rounds in (
            *(("softmax", 1.0, 40), ("softmax", 1.0, 120), ("softmax", 4.5, 40)),
            *(("dnn", 1.0, 10), ("dnn", 1.0, 120)),
        )
    ]
    lines = [
        Line({"privacy": mode, **each}, preset, {"privacy": mode, **each})
        for each in settings
        for mode in ("cdp", "hdp")
    ]
    varied = ("model", "rounds")
    return _study("claim_sizes", lines, varied=varied, derived={"losses": losses})


def losses(runs: pd.DataFrame) -> pd.DataFrame:
    """How much less accurate HDP is than CDP, by the length of its noise.

    Args:
      runs: The CSV of `claim` or `claim_sizes`.

    Returns:
      A row a setting and seed, as `result_tables.table` takes them, in the order of
      z sqrt(s d) / k, the length of a round's noise in the model over S.
    """
    by = [name for name in _SYMBOLS if name in runs]
    accuracy = runs.set_index([*by, "seed", "privacy"])["accuracy"].unstack()
    # Of a sweep that was cut off, what has both.
    found = accuracy.reindex(columns=["cdp", "hdp"]).dropna().reset_index()
    d = found["model"].map(_SIZES) if "model" in found else _SIZES["dnn"]
    k = found.get("clients_per_round", COHORT)
    length = found["noise_multiplier"] * (DEFAULT_ZONES * d) ** 0.5 / k
    found.insert(0, "z sqrt(s d) / k", length.map("{:.3g}".format))
    found["lost_accuracy"] = found["cdp"] - found["hdp"]
    told = {"printed": float("nan"), "metric": "lost_accuracy", "within": float("nan")}
    found = found.assign(length=length, **told).sort_values(["length", *by, "seed"])
    names = ["z sqrt(s d) / k", *by, *told, "seed", "lost_accuracy"]
    return found[names].rename(columns=_SYMBOLS)


def equal_release() -> Study:
    """The same noise in the released model, wherever it was added."""
    return _study(
        "equal_release",
        [
            Line(
                {"privacy": mode},
                "hdp/mnist_none",
                {"privacy": mode, "target_epsilon": 8.0, "clip_norm": 1.0},
            )
            for mode in ("cdp", "hdp", "ldp")
        ],
    )


def unequal_zones() -> Study:
    """Section VIII: three profiles of zone sizes, mixed by weight and equally."""
    profiles = {
        "equal": (54,) * 9 + (53,),
        "one large": (269,) + (30,) * 9,
        "doubling": (2, 3, 5, 9, 16, 30, 58, 100, 150, 166),
    }
    return _study(
        "unequal_zones",
        [
            Line(
                {"sizes": name, "mixing": mixing},
                "hdp/mnist_hdp",
                {"zone_sizes": sizes, "mixing": mixing},
            )
            for name, sizes in profiles.items()
            for mixing in ("weighted", "equal")
        ],
    )


def churn() -> Study:
    """Section VIII: super-nodes that stay until they are offline, and rotating ones.

    The zones' 53 and 54 clients are more than the rounds, as the paper assumes.
    """
    return _study(
        "churn",
        [
            Line(
                {"super-nodes": policy, "online_rate": rate},
                "hdp/mnist_hdp",
                {
                    "elect_super_nodes": policy,
                    "election_protocol": "drawn",
                    "online_rate": rate,
                },
            )
            for policy in ("persistent", "rotate")
            for rate in (1.0, 0.95, 0.9, 0.8)
        ],
        also=("elections", "tenure", "saw_any", "most_seen", "skipped"),
        measure=measure_seats,
    )


def measure_seats(path: pathlib.Path) -> Mapping[str, Any]:
    """What elections made of a run: terms of office, and who saw zones' aggregates.

    Returns:
      `elections`, of all zones; `tenure`, the mean number of rounds in a row that a
      super-node led; `saw_any`, the clients that saw an aggregate; `most_seen`, the
      aggregates seen by the client that saw most; `skipped`, the share of zones'
      rounds that nobody led.
    """
    folder = path / "elections"
    held = [seat for now in seats.read_seats(folder).values() for seat in now]
    releases = Journal(path / "journal.jsonl").releases_by_round
    seen = exposure.count_exposure(folder, releases)
    tenures = exposure.count_tenures(folder)
    return {
        "elections": sum(seat.elections for seat in held),
        "tenure": sum(tenures) / len(tenures),
        "saw_any": len(seen),
        "most_seen": max(seen.values()),
        "skipped": sum(seat.super_node is None for seat in held) / len(held),
    }


def _study(name: str, lines: list[Line], **options: Any) -> Study:
    return Study("hdp", name, lines, HdpConfig, **options)


STUDIES = {
    study.name: study
    for study in (
        digits(),
        forty_rounds(),
        pages(),
        *(figure2(task) for task in ("cifar10", "cifar100", "mnist", "emnist")),
        *(figure2(task, CHOSEN_RATE) for task in ("cifar10", "cifar100", "mnist")),
        table1(),
        case4(),
        figure3(),
        *map(figure3, ("cifar10", "cifar100", "emnist")),
        claim(),
        claim_sizes(),
        equal_release(),
        unequal_zones(),
        churn(),
    )
}


def studies(scale: str, compute_dtype: str = "float32") -> Mapping[str, Study]:
    """All studies at a scale, by part; its name and the dtype's are part of theirs."""
    found = STUDIES
    if scale != "full":
        found = {name: study.at(scale, SCALES[scale]) for name, study in found.items()}
    if compute_dtype != "float32":
        other = {"compute_dtype": compute_dtype}
        found = {name: study.at(compute_dtype, other) for name, study in found.items()}
    return found
