"""How the MSD that is left grows with noise and step, and what Theorem 1 says of it.

The theorem bounds it by O(mu) s^2 + O(mu + 1/mu) sigma^2 + O(mu^3), s^2 being the
variance of the gradients and sigma^2 that of the noise; without O(1/mu) for the hybrid
scheme, whose noise cancels in the centroid.
"""

import pathlib

import numpy as np
import pandas as pd

from tff_hdp.files import write_figure

# The exponents of the bound's leading term, by scheme and what grows, and what is held.
BOUND = {
    ("none", "mu", 0.0): 1.0,
    ("iid", "mu", 0.2): -1.0,
    ("hybrid", "mu", 0.2): 1.0,
    ("hybrid", "mu", 1.0): 1.0,
    ("iid", "sigma_g", 0.1): 2.0,
    ("hybrid", "sigma_g", 0.1): 2.0,
}
_WITHIN = 0.3


def points(runs: pd.DataFrame, scheme: str, over: str, held: float) -> pd.DataFrame:
    """The runs of a scheme where one quantity grows and the other is held.

    Over sigma_g the MSD is that above the same seed's without noise.
    """
    other = "sigma_g" if over == "mu" else "mu"
    own = runs[(runs["scheme"] == scheme) & np.isclose(runs[other], held)]
    if over == "mu":
        return own.sort_values(over)
    bare = runs[(runs["scheme"] == "none") & np.isclose(runs[other], held)]
    floor = own["seed"].map(bare.set_index("seed")["msd"])
    return own.assign(msd=own["msd"] - floor).sort_values(over)


def slopes(runs: pd.DataFrame) -> pd.DataFrame:
    """The slope of log MSD over log of noise or step, by least squares, seed by seed.

    Args:
      runs: The CSV of figure 2.

    Returns:
      A row a scheme, quantity and seed, as `result_tables.table` takes them.
    """
    rows = []
    for (scheme, over, held), printed in BOUND.items():
        for seed, own in points(runs, scheme, over, held).groupby("seed"):
            seen = own[own["msd"] > 0]
            if len(seen) < 2:
                continue
            slope, _ = np.polyfit(np.log(seen[over]), np.log(seen["msd"]), 1)
            rows.append(
                {
                    "scheme": scheme,
                    "over": over,
                    "at": f"{'sigma_g' if over == 'mu' else 'mu'} = {held:g}",
                    "printed": printed,
                    "metric": "slope",
                    "within": _WITHIN,
                    "seed": seed,
                    "points": len(seen),
                    "slope": slope,
                }
            )
    return pd.DataFrame(rows)


def draw(runs: pd.DataFrame, path: pathlib.Path) -> None:
    """MSD over step and over noise on logarithmic axes, mean and spread over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4))
    panels = figure.subplots(1, 2)
    colours = {"none": "C0", "iid": "C1", "hybrid": "C2"}
    for (scheme, over, held), bound in BOUND.items():
        axes = panels[0 if over == "mu" else 1]
        seeds = points(runs, scheme, over, held).groupby(over)["msd"]
        mean, spread = seeds.mean(), seeds.std().fillna(0.0)
        above = mean > 0
        if above.sum() < 2:
            continue
        slope, _ = np.polyfit(np.log(mean.index[above]), np.log(mean[above]), 1)
        label = f"{scheme}, sigma_g = {held:g}" if over == "mu" and held else scheme
        axes.errorbar(
            *(mean.index, mean, spread),
            label=f"{label}: slope {slope:.2f}, bound {bound:g}",
            marker="o",
            capsize=3,
            color=colours[scheme],
            linestyle="--" if held == 1.0 else "-",
        )
    panels[0].set(xlabel="mu", ylabel="MSD of the centroid")
    panels[1].set(xlabel="sigma_g", ylabel="MSD above that without noise")
    for axes in panels:
        axes.set(xscale="log", yscale="log")
        axes.grid(alpha=0.3, which="both")
        axes.legend(frameon=False, fontsize="small")
    write_figure(path, figure)
