"""The tables of docs/attacks.md, whose CSVs hold more than a page shows, or less.

`scripts.papers.result_tables` puts them into the page. Each is a function from the
folder of results to the table's cells, texts under the heads that the page gives them:
what was measured as mean and standard deviation over seeds; an epsilon that no account
has is none, and has no neighbours.
"""

import pathlib
from collections.abc import Callable, Mapping

import pandas as pd

from scripts.papers.attacks.commands import OTHER_DATA
from scripts.papers.attacks.rows import over_seeds
from scripts.papers.hdp.tables import TABLE_IV

_MODES = {"none": "none", "ldp": "LDP", "hdp": "HDP", "cdp": "CDP"}
_SYSTEMS = {
    "fl_top": "FL-TOP-DP",
    "udp_hypernet": "UDP-Alg",
    "gfl": "GFL, hybrid",
    "hfl_dp": "HFL-DP",
}
# FL-TOP's other observers see no more than the secure sum.
_PARTIES = {
    ("fl_top", "aggregator"): "whoever sees the secure sum",
    ("udp_hypernet", "aggregator"): "server",
    ("udp_hypernet", "descriptors"): "whoever sees a descriptor",
    ("udp_hypernet", "released_model"): "whoever gets phi",
    ("gfl", "super_node"): "the client's own server",
    ("gfl", "other_servers"): "all other servers together",
    ("gfl", "released_model"): "whoever gets all servers' models",
    ("hfl_dp", "super_node"): "edge",
    ("hfl_dp", "edge_broadcast"): "another client of the edge",
    ("hfl_dp", "aggregator"): "cloud",
    ("hfl_dp", "released_model"): "whoever gets the cloud's model",
}
# The paper's claims, how they were tried, what Table IV has of them, and the verdict:
# LDP0 is the cell of another client under LDP on MNIST, 1 the super-node's and 2 the
# server's; with the data's name before it, of other data.
_CONCLUSIONS = (
    (
        'another client: reconstruction "least effective" under LDP, HDP next',
        "DLG; identification among 10",
        "LDP {LDP0.psnr_mean:.1f} dB, HDP {HDP0.psnr_mean:.1f}, "
        "CDP {CDP0.psnr_mean:.1f}, where guessing reaches {LDP0.psnr_floor:.1f}; "
        "found {LDP0.identified:.3f}, {HDP0.identified:.3f}, {CDP0.identified:.3f}",
        "partly: so in what is found, no order in decibels",
    ),
    (
        "another client: LDP or HDP suffices",
        "identification among 10",
        "LDP {LDP0.identified:.3f} of at most {LDP0.bound:.3f}, "
        "HDP {HDP0.identified:.3f} of {HDP0.bound:.3f}, "
        "CDP {CDP0.identified:.3f} of {CDP0.bound:.3f}, none {none0.identified:.3f}",
        "reproduced, and CDP does too",
    ),
    (
        "super-node: LDP suffices",
        "analytic, DLG; identification",
        "LDP {LDP1.psnr_mean:.1f} dB (the floor), {LDP1.identified:.3f} of "
        "{LDP1.bound:.3f}; HDP {HDP1.psnr_mean:.1f} dB, {HDP1.identified:.3f}, and "
        "CDP {CDP1.psnr_mean:.1f} dB, {CDP1.identified:.3f}: no bound",
        "reproduced, and neither HDP nor CDP does",
    ),
    (
        "server: LDP or HDP suffices",
        "identification among 10",
        "LDP {LDP2.identified:.3f} of {LDP2.bound:.3f}, HDP {HDP2.identified:.3f} of "
        "{HDP2.bound:.3f}; CDP {CDP2.psnr_mean:.1f} dB, {CDP2.identified:.3f}: "
        "no bound",
        "reproduced, and CDP does not",
    ),
    (
        'super-node under HDP: "perfect reconstruction" at small batches',
        "analytic, DLG; batch 1",
        "{HDP1.psnr_mean:.1f} dB on MNIST's dnn, {cifar10_HDP1.psnr_mean:.1f} on "
        "CIFAR-10 with Zhu's network, {cifar10_lenet_HDP1.psnr_mean:.1f} with lenet, "
        "where guessing reaches {cifar10_lenet_HDP1.psnr_floor:.1f}",
        "partly: on the dnn; near on Zhu's network, not on lenet",
    ),
    (
        'the same with secure aggregation: "not of high fidelity"',
        "DLG on a sum, m = 2, nu = 0",
        "MNIST {CDP2.psnr_mean:.1f} dB, digits {digits_CDP2.psnr_mean:.1f}, "
        "Fashion-MNIST {fashion_mnist_CDP2.psnr_mean:.1f}, CIFAR-10 with Zhu's network "
        "{cifar10_CDP2.psnr_mean:.1f}, with lenet {cifar10_lenet_CDP2.psnr_mean:.1f}",
        "partly: on Fashion-MNIST and CIFAR-10, not on MNIST and digits",
    ),
    (
        'abstract: benefit "against inference adversaries" comparable to LDP\'s',
        "identification among 10, HDP beside LDP and CDP",
        "another client {HDP0.identified:.3f}, {LDP0.identified:.3f}, "
        "{CDP0.identified:.3f}; server {HDP2.identified:.3f}, {LDP2.identified:.3f}, "
        "{CDP2.identified:.3f}; own super-node {HDP1.identified:.3f}, "
        "{LDP1.identified:.3f}, {CDP1.identified:.3f}",
        "partly: not against its own super-node",
    ),
)
_OBSERVER = {"observer": "{observer}"}
_NOISE = {"who adds noise": "{privacy}", "nu": "{noise_multiplier:.3g}"}
_AUC = {"AUC": "{auc:.3f} ± {auc_sd:.3f}", "bound": "{auc_bound:.3f}"}
_SHARE = "{identified:.3f} ± {identified_sd:.3f}"
_FOUND = {"found": _SHARE, "bound": "{bound:.3f}"}
_PSNR = "{psnr_mean:.1f} ± {psnr_mean_sd:.1f}"
_EPSILON = {"epsilon": "{epsilon}"}
_NEIGHBOURS = _EPSILON | {"neighbours": "{neighbours}"}


def observers(results: pathlib.Path) -> pd.DataFrame:
    """Every observer in every mode with noise."""
    frame = _read(results, "observers").query("privacy != 'none'")
    return _cells(frame, _OBSERVER | _NOISE | _AUC | _NEIGHBOURS)


def table4_mnist(results: pathlib.Path) -> pd.DataFrame:
    """The paper's Table IV, level by level."""
    frame = _read(results, "table4_mnist").sort_values("level", kind="stable")
    return _cells(
        frame,
        {
            "level": "{level}",
            "noise": "{privacy}",
            "m": "{unknown_clients}",
            "nu": "{noise_multiplier:.3g}",
            "PSNR ↑": _PSNR,
            "guessing": "{psnr_floor:.1f}",
            "by": "{reconstruction}",
            "SSIM ↑": "{ssim_mean:.2f}",
            "MS-SSIM ↑": "{ms_ssim_mean:.2f}",
            "identified ↑": _SHARE,
            "bound": "{bound:.3f}",
            "epsilon": "{epsilon}",
            "paper's LPIPS": "{paper_lpips}",
        },
    )


def table4_others(results: pathlib.Path) -> pd.DataFrame:
    """Table IV's reconstruction on other data, the modes side by side."""
    keys = {"data, model": "{data}", "level": "{level}", "guessing": "{psnr_floor:.1f}"}
    frames = _others(results).values()
    return pd.concat([_by_mode(frame, keys, _PSNR) for frame in frames])


def table4_found(results: pathlib.Path) -> pd.DataFrame:
    """Who is found on other data, by nu alone, and the bound, which no data moves.

    Raises:
      ValueError: If observers with the same nu found differently.
    """
    others = pd.concat(_others(results).values())
    others = others.sort_values("noise_multiplier", ascending=False)
    keys = {"data, model": "{data}", "nu": "nu = {noise_multiplier:.3g}"}
    found = _cells(others, keys | {"share": _SHARE})
    bound = _cells(others.assign(data="bound"), keys | {"share": "{bound:.3f}"})
    cells = pd.concat([found, bound]).drop_duplicates()
    wide = cells.pivot(index="data, model", columns="nu", values="share")
    wide = wide.loc[[*OTHER_DATA.values(), "bound"], found["nu"].unique()]
    return wide.reset_index()


def table4_printed(results: pathlib.Path) -> pd.DataFrame:
    """What the paper prints for another client, and what was computed in its place."""
    frames = _others(results) | {"mnist": _read(results, "table4_mnist")}
    data = {"mnist": ("EMNIST", "MNIST"), "cifar10": ("CIFAR-10",) * 2}
    data["cifar100"] = ("CIFAR-100",) * 2
    rows = []
    for name, (theirs, ours) in data.items():
        frame = frames[name].query("level == 0")
        for at, what, cell in (
            (theirs, "LPIPS, printed", "{paper_lpips}"),
            (ours, "PSNR in dB, here", _PSNR),
            (ours, "found among 10, here", _SHARE),
        ):
            rows.append(_by_mode(frame, {"data": at, "": what}, cell))
    return pd.concat(rows)


def conclusions(results: pathlib.Path) -> pd.DataFrame:
    """The paper's conclusions beside the cells of Table IV that they are of."""
    frames = {"": _read(results, "table4_mnist")}
    frames |= {f"{name}_": frame for name, frame in _others(results).items()}
    cells = {
        f"{name}{cell.privacy}{cell.level}": cell
        for name, frame in frames.items()
        for cell in frame.itertuples()
    }
    rows = [
        (paper, tried, text.format(**cells), verdict)
        for paper, tried, text, verdict in _CONCLUSIONS
    ]
    return pd.DataFrame(rows, columns=["paper", "tried", "reached, bound", "verdict"])


def super_node(results: pathlib.Path) -> pd.DataFrame:
    """Digits as their own super-node sees them."""
    columns = {
        "who adds noise": "{privacy}",
        "PSNR, dB": _PSNR,
        "SSIM": "{ssim_mean:.2f}",
        "bound on finding it among 10": "{bound:.3f}",
    }
    return _cells(_read(results, "super_node"), columns | _EPSILON)


def rotation(results: pathlib.Path) -> pd.DataFrame:
    """One that leads a zone never, or again and again, under LDP and under HDP."""
    return _led(results, {"aggregates seen": "{aggregates}"}, together=False)


def rotation_leaders(results: pathlib.Path) -> pd.DataFrame:
    """Several that lead a zone once each, under LDP and under HDP."""
    keys = {"leaders together": "{aggregates}", "left unknown": "{unknown_clients}"}
    return _led(results, keys, together=True)


def rotation_together(results: pathlib.Path) -> pd.DataFrame:
    """Other zones' super-nodes that collude with whoever gets the model."""
    frame = _read(results, "rotation_together")
    allies = frame["observer"].str.extract(r"(\d+) super-nodes")[0].fillna("0")
    keys = {"colluding super-nodes of 9 others": "{allies}", "nu": _NOISE["nu"]}
    return _cells(frame.assign(allies=allies), keys | _FOUND | _EPSILON)


def membership_sampled(results: pathlib.Path) -> pd.DataFrame:
    """Cohorts that are drawn; without noise everybody sees who came."""
    frame = _read(results, "membership_sampled")
    frame["came"] = frame["sampling"].str.rpartition(" ")[2]
    frame.loc[frame["noise_multiplier"] == 0, "came"] = "seen"
    columns = _OBSERVER | _NOISE | {"who came": "{came}"}
    return _cells(frame, columns | _AUC | _NEIGHBOURS)


def lira(results: pathlib.Path) -> pd.DataFrame:
    """The released model alone."""
    columns = _NOISE | {"probability": "{sampling_probability:g}"}
    return _cells(_read(results, "lira"), columns | _AUC | _NEIGHBOURS)


def systems(results: pathlib.Path) -> pd.DataFrame:
    """The four neighbour systems."""
    frame = _read(results, "systems")
    keys = zip(frame["system"], frame["observer"], strict=True)
    frame["party"] = [_PARTIES.get(key) for key in keys]
    share = frame["ratio"].map(", {:.0%} of weights".format, na_action="ignore")
    frame["name"] = frame["system"].map(_SYSTEMS) + share.fillna("")
    columns = {
        "system": "{name}",
        "observer": "{party}",
        "nu": "{noise_multiplier:.3g}",
        "clip norm": "{clip_norm:.3f}",
        "found": _SHARE,
        "bound": "{bound:.3f}",
    }
    return _cells(frame.dropna(subset="party"), columns | _NEIGHBOURS)


def kinds(results: pathlib.Path) -> pd.DataFrame:
    """What kind of client it is, after some rounds."""
    columns = _OBSERVER | _NOISE | {"rounds": "{rounds}"}
    return _cells(_read(results, "property"), columns | _AUC | _NEIGHBOURS)


def update_difference(results: pathlib.Path) -> pd.DataFrame:
    """What kind of client it is, from successive models."""
    frame = _read(results, "update_difference")
    return _cells(frame, _NOISE | _AUC | _NEIGHBOURS)


def without_noise(results: pathlib.Path) -> pd.DataFrame:
    """What reconstructions reach with no noise of anybody, or next to none."""
    columns = {
        **{"attack": "{attack}", "task": "{task}", "model": "{model}"},
        **{"local steps": "{local_steps}", "nu": _NOISE["nu"]},
        **{"victims": "{victims}", "PSNR": _PSNR, "guessing": "{psnr_floor:.1f}"},
    }
    return _cells(_read(results, "without_noise"), columns)


def inversion(results: pathlib.Path) -> pd.DataFrame:
    """Two attacks beside another library's."""
    paths = [results / "benchmarks" / f"inversion_{it}.csv" for it in ("dlg", "ig")]
    columns = {
        "attack": "{attack}",
        "library": "{library}",
        "evaluations": "{evaluations:.0f}",
        "PSNR, median": "{psnr_median:.1f}",
        "least, most": "{psnr_min:.1f}, {psnr_max:.1f}",
        "seconds, median": "{seconds_median:.1f}",
    }
    return _cells(pd.concat(map(pd.read_csv, paths)), columns)


TABLES: dict[str, Callable[[pathlib.Path], pd.DataFrame]] = {
    "attacks/observers": observers,
    "attacks/table4_mnist": table4_mnist,
    "attacks/table4_others": table4_others,
    "attacks/table4_found": table4_found,
    "attacks/table4_printed": table4_printed,
    "attacks/conclusions": conclusions,
    "attacks/super_node": super_node,
    "attacks/rotation": rotation,
    "attacks/rotation_together": rotation_together,
    "attacks/rotation_leaders": rotation_leaders,
    "attacks/membership_sampled": membership_sampled,
    "attacks/lira": lira,
    "attacks/systems": systems,
    "attacks/property": kinds,
    "attacks/update_difference": update_difference,
    "attacks/without_noise": without_noise,
    "benchmarks/inversion": inversion,
}


def _read(results: pathlib.Path, name: str) -> pd.DataFrame:
    """A CSV of attacks over seeds, what is missing or no number in a page's words."""
    frame = over_seeds(results / "attacks" / f"{name}.csv")
    neighbours = frame["neighbours"].str.replace("_", " ")
    frame["neighbours"] = neighbours.where(frame["epsilon"].notna(), "")
    frame["epsilon"] = frame["epsilon"].map(_epsilon)
    if name.startswith("table4_"):
        cells = zip(frame["task"], frame["privacy"], frame["level"], strict=True)
        frame["paper_lpips"] = [_printed(*cell) for cell in cells]
    frame["privacy"] = frame["privacy"].map(_MODES)
    frame["noise_multiplier"] = frame["noise_multiplier"].fillna(0.0)
    return frame


def _printed(task: str, mode: str, level: int) -> float | str:
    """What Table IV prints, of a malicious client (level 0) alone."""
    printed = TABLE_IV.get(task)
    modes = ("ldp", "hdp", "cdp", "none")
    return printed[modes.index(mode)] if printed and level == 0 else ""


def _others(results: pathlib.Path) -> dict[str, pd.DataFrame]:
    """Table IV's CSVs of other data, each with what the page calls it."""
    return {
        name: _read(results, f"table4_{name}").assign(data=data)
        for name, data in OTHER_DATA.items()
    }


def _cells(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """By its head, what each column's format makes of the rows."""
    rows = frame.to_dict("records")
    cells = {
        # One seed has no spread.
        head: [text.format(**row).replace(" ± nan", "") for row in rows]
        for head, text in columns.items()
    }
    return pd.DataFrame(cells)


def _by_mode(frame: pd.DataFrame, keys: Mapping[str, str], cell: str) -> pd.DataFrame:
    """A row for each of the keys, with a cell for every mode."""
    cells = _cells(frame, {**keys, "mode": "{privacy}", "cell": cell})
    wide = cells.pivot(index=list(keys), columns="mode", values="cell")
    return wide[["LDP", "HDP", "CDP", "none"]].reset_index()


def _led(
    results: pathlib.Path, keys: Mapping[str, str], *, together: bool
) -> pd.DataFrame:
    """LDP's rows and, of the same keys, what is found under HDP of unknown others."""
    frames = [_read(results, f"rotation_{mode}") for mode in ("ldp", "hdp")]
    of_several = [frame["observer"].str.contains("together") for frame in frames]
    ldp, hdp = (
        frame[several == together]
        for frame, several in zip(frames, of_several, strict=True)
    )
    nus = ldp[["noise_multiplier", "models_noise_multiplier"]].map("{:.3g}".format)
    nus = nus.where(nus != "nan", "")
    # Who never leads sees no sum.
    ldp = ldp.assign(
        nu=nus["noise_multiplier"].where(ldp["aggregates"] > 0, ""),
        models_nu=nus["models_noise_multiplier"],
    )
    known = {"LDP, nu": "{nu}", "of models": "{models_nu}", **_FOUND, **_EPSILON}
    share = "{identified_others_unknown:.3f} ± {identified_others_unknown_sd:.3f}"
    unknown = {"HDP, others unknown": share}
    rows = _cells(ldp, {**keys, **known})
    return rows.merge(_cells(hdp, {**keys, **unknown}), on=list(keys))


def _epsilon(epsilon: float) -> str:
    """Three digits, or all before the point."""
    if pd.isna(epsilon):
        return "none"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:,.0f}"
