"""What HFL-DP's noise is worth in its figures' presets, without training."""

import dataclasses

import pandas as pd

from scripts.papers import presets
from tff_hdp.errors import ArgumentError
from tff_hdp.systems.hfl_dp import noise as formulas
from tff_hdp.systems.hfl_dp.account import account
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.plan import rounds_of
from tff_hdp.systems.hfl_dp.worth import noise_table

# Settings that the tables depend on.
HEEDED = (
    *("num_clients", "edges", "rounds", "k2", "clip_norm", "eps1", "eps2", "delta"),
    *("exposures", "min_examples"),
)
# Training examples of the two tasks, dealt evenly to all clients.
EXAMPLES = {"mnist": 60_000, "cifar10": 48_000}
READING = (
    "Each observer's column is a client's epsilon against it over the whole run, the "
    "tighter of RDP's and PLD's; PLD has none where it is too large."
)
SETTINGS = {
    "figure 2": "figure2_noisy",
    "figure 3": "figure3_noisy",
    **{f"figure 4, epsilon {eps}": f"figure4_eps{eps}" for eps in (10, 20, 50)},
    **{
        f"figure 5, n = {n}, N = {N}": f"figure5_n{n}_N{N}"
        for n, N in ((10, 5), (20, 10), (50, 10), (100, 20))
    },
    "table 3": "table3",
}


def noise(**changes: object) -> pd.DataFrame:
    """Each noise of figure 2, what Theorem 1 states for it and what it is worth.

    Args:
      **changes: Settings to have instead of the preset's.
    """
    config = presets.read("hfl_dp/figure2_noisy", HflDpConfig, **changes)
    setting = _setting(config)
    chosen = formulas.theorem_1(setting)
    rows = noise_table(chosen, setting, config.rounds_by_kind)
    return pd.DataFrame([dataclasses.asdict(row) for row in rows])


def epsilons(**changes: object) -> pd.DataFrame:
    """Epsilon of a whole run of each setting, one client, by observer.

    The tighter of RDP and PLD; the latter has none where an epsilon is too large.

    Args:
      **changes: Settings to have instead of the presets'.
    """
    asked = [(name, preset, formulas.theorem_1) for name, preset in SETTINGS.items()]
    asked.append(("figure 2, --noise=exact", "figure2_noisy", formulas.exact_noise))
    rows = []
    for name, preset, formula in asked:
        config = presets.read(f"hfl_dp/{preset}", HflDpConfig, **changes)
        setting = _setting(config)
        rows.append({"setting": name, **_row(config, setting, formula(setting))})
    return pd.DataFrame(rows)


def _row(
    config: HflDpConfig, setting: formulas.Setting, chosen: formulas.HflDpNoise
) -> dict[str, object]:
    n, N = setting.n, setting.N
    kinds = rounds_of(chosen, n=n, N=N, C=setting.C)
    history = list(zip(kinds, config.rounds_by_kind, strict=True))
    found = account(history, config.delta)
    worst = {
        row.observer: min(
            (e for e in (row.epsilon_rdp, row.epsilon_pld) if e is not None),
            default=None,
        )
        for row in found
    }
    return {
        "clients": n * N,
        "edges": N,
        "m": setting.m,
        "stated 1": config.eps1,
        "stated 2": config.eps2,
        **worst,
        "delta": config.delta,
        "neighbours": found[0].neighbours,
        "sampling": found[0].sampling,
    }


def _setting(config: HflDpConfig) -> formulas.Setting:
    """What a run of these settings chooses its noise for."""
    clients, examples = config.num_clients, EXAMPLES[config.task]
    if clients > examples:
        allowed = f"at most {examples:,}, the training examples of {config.task}"
        raise ArgumentError("num_clients", clients, allowed)
    smallest = examples // clients
    return formulas.setting_of(config, clients=clients, smallest=smallest)
