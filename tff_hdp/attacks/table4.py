"""The HDP paper's Table IV, over all modes and levels, with the bound beside."""

from typing import Any

import numpy as np

from tff_hdp.attacks.analytic import first_dense
from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.membership import MODES
from tff_hdp.attacks.vantage import Vantage

LEVELS = ("0", "1", "2")


def table4(config: AttackConfig) -> Outcome:
    """Every mode at every level; cells of one (m, nu, clip) are run once.

    A cell has the better one of DLG and, on a dense model with one unknown client, the
    analytic attack; and identification with all other clients known.
    """
    attacker = Attacker(config)
    dense = first_dense(attacker.target) == 0
    done: dict[Any, tuple[dict[str, Any], np.ndarray]] = {}
    rows, images = [], []
    for level in LEVELS:
        for mode in MODES:
            vantage = config.vantage(attacker.clip_norm, privacy=mode, level=level)
            cell = (
                vantage.unknown_clients,
                round(vantage.noise_multiplier, 9),
                vantage.clip_norm,
            )
            if cell not in done:
                columns = attacker.identified(vantage)
                attacks = ("dlg", "analytic") if dense and cell[0] == 1 else ("dlg",)
                originals, seen = attacker.observe(vantage)
                reached, found = _best(attacker, vantage, attacks, originals, seen)
                done[cell] = columns | reached, found
            columns, found = done[cell]
            rows.append(attacker.row(vantage, privacy=mode) | columns)
            images.append(found)
    # Victims are the same whoever looks.
    return Outcome(rows, originals, images)


def _best(
    attacker: Attacker,
    vantage: Vantage,
    attacks: tuple[str, ...],
    originals: np.ndarray,
    seen: np.ndarray,
) -> tuple[dict[str, Any], np.ndarray]:
    """Columns and images of the attack of the larger PSNR."""
    reached = []
    for attack in attacks:
        images = attacker.reconstruct(attack, vantage, seen)
        columns, found = attacker.distances(originals, images)
        columns = {"reconstruction": attack, "victims": len(seen), **columns}
        reached.append((columns, found))
    return max(reached, key=lambda pair: pair[0]["psnr_mean"])
