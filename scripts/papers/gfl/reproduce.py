"""Figure 2 of the GFL paper, and the same comparison on MNIST by writer.

    python scripts/papers/gfl/reproduce.py --scale=reduced

Runs the presets scripts/papers/gfl/*.flags (or resumes them) and leaves
figure2.png, mnist.png and table.csv in --out. All runs share data and graph. Takes
every flag of scripts/gfl.py, which then counts for all runs instead of the presets'.
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.report import Run
from tff_hdp.systems.gfl.config import GflConfig

PRESETS = {
    "figure2": (
        *("gfl/figure2_none", "gfl/figure2_iid", "gfl/figure2_hybrid"),
        *("gfl/figure2_large_iid", "gfl/figure2_large_hybrid"),
    ),
    "mnist": ("gfl/mnist_none", "gfl/mnist_iid", "gfl/mnist_hybrid"),
}
# What a scale changes of the presets, which are the full one.
SCALES = {
    "full": {"figure2": {}, "mnist": {}},
    "reduced": {"figure2": {"rounds": 200}, "mnist": {"rounds": 60}},
    "tiny": {"figure2": {"rounds": 3, "repetitions": 2}, "mnist": {"rounds": 3}},
}
# A run's last value is its mean over so many iterations.
LAST = 20
PARTITION_SEED = 0

SCALE = flags.DEFINE_enum("scale", "reduced", list(SCALES), "How many iterations.")
WHAT = flags.DEFINE_list("what", list(PRESETS), "figure2, mnist or both.")


def row(name: str, run: Run) -> dict[str, object]:
    """A run's line of table.csv."""
    last = run.metrics.iloc[-LAST:]
    others = [r for r in run.accounts if r.observer == "other_servers"]
    found: dict[str, object] = {"run": name, "scheme": run.flags["scheme"]}
    found["sigma_g"] = run.flags["sigma_g"]
    found["iterations"] = int(last["round"].iloc[-1])
    for column in ("msd", "msd_servers", "accuracy"):
        if column in last:
            found[column] = last[column].mean()
    for row in others:
        found["epsilon_other_servers"] = row.epsilon_rdp
        found["epsilon_paper"] = row.epsilon_paper
    return found


def draw_figure_2(runs: dict[str, Run], path: pathlib.Path) -> None:
    """MSD of the centroid over iterations, one panel a noise level."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {"none": "no privacy", "iid": "iid noise", "hybrid": "hybrid"}
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axes, level in zip(panels, ("", "large_"), strict=True):
        for scheme, label in labels.items():
            noise = "" if scheme == "none" else level
            run = runs[f"gfl/figure2_{noise}{scheme}"]
            msd = run.metrics["msd"]
            axes.semilogy(run.metrics["round"], msd, label=label, linewidth=1.5)
            if scheme == "iid":
                axes.set_title(f"$\\sigma_g$ = {run.flags['sigma_g']:g}")
        axes.set_xlabel("iteration")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("MSD of the centroid")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    """Runs the presets and prints the table."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", WHAT.value, PRESETS)
    import pandas as pd

    from scripts.papers import presets
    from tff_hdp.simulation import report

    given = presets.given(GflConfig)
    folder = pathlib.Path(given.pop("out", "runs/gfl"))
    runs: dict[str, Run] = {}
    for part, names in PRESETS.items():
        if part in WHAT.value:
            runs |= presets.run_all(
                names,
                GflConfig,
                folder=folder,
                changes=SCALES[SCALE.value][part] | given,
                partition_seed=PARTITION_SEED,
            )
    if "figure2" in WHAT.value:
        draw_figure_2(runs, folder / "figure2.png")
    if "mnist" in WHAT.value:
        report.metric_figure(
            {
                runs[name].flags["scheme"]: runs[name].metrics
                for name in PRESETS["mnist"]
            },
            folder / "mnist.png",
            title="GFL on MNIST by writer, 10 servers",
        )
    table = pd.DataFrame([row(name, run) for name, run in runs.items()])
    table.to_csv(folder / "table.csv", index=False)
    print(f"\n{table.to_string(index=False, float_format=lambda x: f'{x:.4g}')}")
    delta = next(iter(runs.values())).flags["delta"]
    print(
        f"msd, msd_servers, accuracy: means over the last {LAST} iterations. Epsilon "
        "is one client's against all other servers together, replace-one, at delta "
        f"{delta:g}; against its own server and whoever gets all models there is none "
        "under hybrid. Under iid it is the same for every observer."
    )
    print(f"figures and table: {folder}")
    return 0


if __name__ == "__main__":
    cli.define_flags(GflConfig)
    sys.exit(cli.run(main))
