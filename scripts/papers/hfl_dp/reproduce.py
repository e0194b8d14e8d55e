"""Figures 2 to 6 and table 3 of the HFL-DP paper.

    python scripts/papers/hfl_dp/reproduce.py --scale=reduced

Runs the presets scripts/papers/hfl_dp/*.flags (or resumes them) and leaves
figures.png and table.csv in --out. Takes every flag of scripts/hfl_dp.py, which then
counts for all runs instead of the presets'.
"""

import math
import pathlib
import sys

from absl import flags

from tff_hdp import cli
from tff_hdp.simulation.report import Run
from tff_hdp.systems.hfl_dp.config import HflDpConfig

TITLES = {
    "2": "Figure 2: MNIST",
    "3": "Figure 3: CIFAR-10",
    "4": "Figure 4: epsilon",
    "5": "Figure 5: n clients in all, N edges",
    "6": "Figure 6: clipping bound",
    "table": "Table 3",
}
# Presets by label. Figure 6's C = 15 is figure 4's epsilon 20.
PRESETS = {
    "2": {
        "HierFAVG": "hfl_dp/figure2_none",
        "HFL-DP": "hfl_dp/figure2_noisy",
    },
    "3": {
        "HierFAVG": "hfl_dp/figure3_none",
        "HFL-DP": "hfl_dp/figure3_noisy",
    },
    "4": {f"epsilon {e}": f"hfl_dp/figure4_eps{e}" for e in (10, 20, 50)},
    "5": {
        f"n = {n}, N = {N}": f"hfl_dp/figure5_n{n}_N{N}"
        for n, N in ((10, 5), (20, 10), (50, 10), (100, 20))
    },
    "6": {
        "C = 5": "hfl_dp/figure6_C5",
        "C = 10": "hfl_dp/figure6_C10",
        "C = 15": "hfl_dp/figure4_eps20",
    },
    "table": {"100 clients, 10 edges": "hfl_dp/table3"},
}
SCALES = {
    "full": {},
    "reduced": {"local_steps": 4, "batch_size": 16, "learning_rate": 0.1},
    "tiny": {"local_steps": 1, "batch_size": 2, "rounds": 2},
}
PARTITION_SEED = 0

SCALE = flags.DEFINE_enum("scale", "reduced", list(SCALES), "How much local work.")
WHAT = flags.DEFINE_list(
    "what", list(TITLES), "Which figures, and `table` for table 3."
)


def row(name: str, run: Run) -> dict[str, object]:
    """A run's line of table.csv: accuracies, and the released model's epsilon."""
    accuracy = run.metrics["accuracy"]
    found: dict[str, object] = {
        "run": name.removeprefix("hfl_dp/"),
        "accuracy": accuracy.iloc[-1],
        "best": accuracy.max(),
    }
    for account in run.accounts:
        if account.observer == "released_model":
            found["epsilon_stated"] = account.epsilon_paper
            found["epsilon_exact"] = account.epsilon_pld
    return found


def draw(panels: dict[str, dict[str, Run]], path: pathlib.Path) -> None:
    """Test accuracy over local iterations, one panel a figure of the paper."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = math.ceil(len(panels) / 3)
    figure, grid = pyplot.subplots(rows, 3, figsize=(13, 3.5 * rows), squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, runs) in zip(grid.flat, panels.items(), strict=False):
        for label, run in runs.items():
            iterations = run.metrics["round"] * run.flags["k1"]
            axes.plot(iterations, run.metrics["accuracy"], label=label, linewidth=1.5)
        axes.set(title=title, xlabel="local iteration", ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    """Runs the presets and prints the table."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", WHAT.value, TITLES)
    panels = {TITLES[part]: PRESETS[part] for part in PRESETS if part in WHAT.value}
    import pandas as pd

    from scripts.papers import presets

    given = presets.given(HflDpConfig)
    folder = pathlib.Path(given.pop("out", "runs/hfl_dp"))
    names = dict.fromkeys(name for runs in panels.values() for name in runs.values())
    runs = presets.run_all(
        list(names),
        HflDpConfig,
        folder=folder,
        changes=SCALES[SCALE.value] | given,
        partition_seed=PARTITION_SEED,
    )
    found = {
        title: {label: runs[name] for label, name in labelled.items()}
        for title, labelled in panels.items()
    }
    draw(found, folder / "figures.png")
    table = pd.DataFrame([row(name, run) for name, run in runs.items()])
    table.to_csv(folder / "table.csv", index=False)
    print(f"\n{table.to_string(index=False, float_format=lambda x: f'{x:.4g}')}")
    delta = next(iter(runs.values())).flags["delta"]
    print(
        "epsilon_stated: the paper's, for one example. epsilon_exact: one client's "
        "(and one example's, as run) against whoever gets the cloud's models, "
        f"replace-one, full participation, at delta {delta:g}."
    )
    print(f"figures and table: {folder}")
    return 0


if __name__ == "__main__":
    cli.define_flags(HflDpConfig)
    sys.exit(cli.run(main))
