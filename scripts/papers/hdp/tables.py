"""The HDP paper's Tables I and III, and who is protected from whom by what."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import paper
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method, account, worst
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.configurations import CONFIGURATIONS, even_sizes
from tff_hdp.privacy.parts import PoissonSampling
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.systems.hfl_dp import noise as hfl_dp
from tff_hdp.systems.udp_hypernet import plan as udp_alg

ZONES, DELTA = 10, 1e-5
FORMULAS = {
    "c1": "eps/sqrt(k)",
    "c2": "eps/sqrt(s)",
    "c3": "eps/sqrt(beta s m) + eps/sqrt((1-beta) s)",
    "c4": "eps",
    "c5": "eps/sqrt(alpha k) + eps",
    "c6": "eps/sqrt(beta s) + eps",
    "c7": "eps/sqrt(beta s m) + eps/sqrt(alpha s) + eps",
}
SHARES: dict[str, dict[str, float]] = {
    "c3": {"beta": 0.5},
    "c5": {"alpha": 0.5},
    "c6": {"beta": 0.5},
    "c7": {"alpha": 0.3, "beta": 0.3},
}

# Data set, clients, clients a round, rounds and how they are known, and the
# printed epsilons of LDP, HDP and CDP.
_TABLE_III = (
    ("EMNIST", 3383, 100, 101, "inferred: reproduces 3.06", (0.30, 0.96, 3.06)),
    ("EMNIST", 3383, 100, 200, "as the text says", (0.30, 0.96, 3.06)),
    ("CIFAR-10/100", 500, 100, 200, "as the text says", (2.48, 7.48, 24.80)),
)

# Table IV: LPIPS at a malicious client, of LDP, HDP, CDP and no noise; MNIST stands for
# EMNIST's digits.
TABLE_IV = {
    "mnist": (0.571, 0.599, 0.62, 0.68),
    "cifar10": (0.423, 0.452, 0.494, 0.596),
    "cifar100": (0.447, 0.46, 0.474, 0.564),
}

# What the paper's formula does to the truth, and why.
VERDICTS = {
    "accountant of the time": "over-states: today's conversion and PLDs give less for "
    "the same Gaussian (but it takes Poisson sampling for granted)",
    "eps/sqrt(k)": "under-states: noise that participants carry shows who took part "
    "and varies with their number; its multiplier z sqrt(k) is right",
    "eps/sqrt(s)": "under-states against the aggregator, which sees every zone's "
    "output and so z itself; over-states in the released model, where amplification "
    "makes epsilon fall faster than 1/sqrt(s)",
    "eps/sqrt(prod k_j)": "under-states like eps/sqrt(k), and against everybody who "
    "sees more than the last level's output",
    "Table I's sums": "over-state in the released model, where variances of "
    "independent noises add and more noise never costs epsilon; without meaning "
    "against an aggregator that sees a zone without noise",
    "eps/k (shuffling)": "under-states: secure aggregation is no shuffler; the sum of "
    "k Gaussians has multiplier z sqrt(k) and nothing more",
}

OTHERS_REST_ON = (
    "At delta 1e-05, but for GFL, whose epsilon is pure. HFL-DP: one example or client "
    "replaced, every exposure seen. GFL: one client's samples replaced. UDP-Alg: "
    "add_or_remove neighbours, Poisson, the cohort hidden, against whoever gets the "
    "hypernetwork. FL-TOP-DP: one client replaced, 100 of 6000 without replacement, "
    "against whoever gets the models."
)


def table_i(
    rounds: int = 200, methods: Sequence[Method] = METHODS
) -> list[dict[str, Any]]:
    """Table I with numbers: the paper's epsilon beside the sound one.

    Of 500 clients in 10 zones, 100 a round, and z = 1 wherever noise is added.

    Args:
      rounds: T.
      methods: Which epsilons to compute.

    Returns:
      A row per configuration and kind of client: the formula and its epsilon,
      the released model's multiplier, and the sound epsilons of the released
      model and of the aggregator's view (None without a guarantee).
    """
    rows = []
    for name, formula in FORMULAS.items():
        plan = CONFIGURATIONS[name](
            zone_sizes=(50,) * ZONES,
            sampling=PoissonSampling((0.2,) * ZONES),
            noise_multiplier=1.0,
            **SHARES.get(name, {}),
        )
        accounts = account(plan, rounds, DELTA, methods)
        for kind in dict.fromkeys(r.client_kind for r in accounts):
            released = worst(accounts, "released_model", kind)
            seen = worst(accounts, "aggregator", kind)
            rows.append(
                {
                    "configuration": name.upper(),
                    "client_kind": kind,
                    "formula": formula,
                    "epsilon_paper": released.epsilon_paper,
                    "released_noise_multiplier": released.noise_multiplier,
                    "released_epsilon_rdp": released.epsilon_rdp,
                    "released_epsilon_pld": released.epsilon_pld,
                    "aggregator_noise_multiplier": seen.noise_multiplier,
                    "aggregator_epsilon_rdp": seen.epsilon_rdp,
                    "aggregator_epsilon_pld": seen.epsilon_pld,
                    "delta": DELTA,
                    "released_rests_on": _basis(released),
                    "aggregator_rests_on": _basis(seen),
                }
            )
    return rows


def _basis(row: AccountRow) -> str:
    return f"{row.neighbours} neighbours; {row.sampling}; {row.assumptions}"


def table_iii() -> list[dict[str, Any]]:
    """Table III: printed, by the paper's formula, and sound, at z = 1 in 10 zones.

    The sound epsilons are the released model's; HDP's against the aggregator is
    that of CDP's released model, since its super-nodes' multiplier is z.

    Returns:
      A row per data set, number of rounds and mode.
    """
    rows = []
    for data, n, k, rounds, source, printed in _TABLE_III:
        sizes = even_sizes(n, ZONES)
        epsilon = paper.accountant_epsilon(k / n, 1.0, rounds, DELTA)
        by_formula = (paper.ldp(epsilon, k), paper.hdp(epsilon, ZONES), epsilon)
        for mode, shown, stated in zip(
            ("ldp", "hdp", "cdp"), printed, by_formula, strict=True
        ):
            plan = CONFIGURATIONS[mode](
                zone_sizes=sizes,
                sampling=PoissonSampling((k / n,) * ZONES),
                noise_multiplier=1.0,
            )
            accounts = account(plan, rounds, DELTA, ("rdp", "pld"))
            released = worst(accounts, "released_model")
            seen = worst(accounts, "aggregator")
            rows.append(
                {
                    "data_set": data,
                    "mode": mode,
                    "rounds": rounds,
                    "rounds_source": source,
                    "printed": shown,
                    "epsilon_paper": stated,
                    "released_noise_multiplier": released.noise_multiplier,
                    "released_epsilon_rdp": released.epsilon_rdp,
                    "released_epsilon_pld": released.epsilon_pld,
                    "aggregator_epsilon_rdp": seen.epsilon_rdp,
                    "aggregator_epsilon_pld": seen.epsilon_pld,
                    "delta": DELTA,
                    "released_rests_on": _basis(released),
                    "aggregator_rests_on": _basis(seen),
                }
            )
    return rows


def verdicts() -> list[str]:
    """What each of the paper's formulas does to the truth, a line each."""
    return [f"{formula}: {verdict}." for formula, verdict in VERDICTS.items()]


def other_papers() -> list[dict[str, Any]]:
    """Epsilons of the four other papers' settings, theirs and sound.

    Returns:
      A row per setting: the paper's epsilon, the sound one (None where there is
      no guarantee) and why they differ.
    """
    return [*_hfl_dp_rows(), *_gfl_rows(), *_udp_rows(), _fl_top_row()]


def _hfl_dp_rows() -> list[dict[str, Any]]:
    rows = []
    for t in (1, 25):
        shape = {"n": 10, "N": 5, "m": 1000, "C": 15, "delta": DELTA}
        setting = hfl_dp.Setting(**shape, eps1=20, eps2=20, t=(t, 13, t, 1, 12))
        noise = hfl_dp.theorem_1(setting)
        worth = {
            share: hfl_dp.true_epsilon(
                sigma=noise.sigma_u1,
                sensitivity=2 * 15 / share,
                exposures=t,
                delta=DELTA,
            )
            for share in (1000, 1)
        }
        uplink = f"uplink, n=10 N=5 m=1000 C=15, {t} exposures"
        who = "one example, if its part were clipped"
        why = (
            "exact Gaussian mechanism; sigma = c dS/eps holds only below 1 an exposure"
        )
        rows.append(_other("HFL-DP", f"{uplink}, {who}", 20.0, worth[1000], why))
        who = "one client or one example, as run"
        why = "the whole model is clipped to C, so it moves by 2C, not 2C/m"
        rows.append(_other("HFL-DP", f"{uplink}, {who}", 20.0, worth[1], why))
    return rows


def _gfl_rows() -> list[dict[str, Any]]:
    laplace = {"mu": 0.1, "B": 1.0, "sigma_g": 0.2}
    by_server = [
        _other(
            "GFL",
            f"one neighbouring server, M=2, mu=0.1 B=1 sigma_g=0.2, {i} iterations",
            gfl.epsilon(i=i, **laplace),
            gfl.epsilon(i=i, dimension=2, **laplace),
            "Laplace noise per coordinate needs the L1 norm: sqrt(M) more",
        )
        for i in (1, 10)
    ]
    stated, why = gfl.epsilon(i=10, **laplace), "the noise cancels in their average"
    by_all = _other("GFL", "all servers' models, 10 iterations", stated, None, why)
    return [*by_server, by_all]


def _udp_rows() -> list[dict[str, Any]]:
    rows = []
    for q, z, rounds in ((0.1, 5, 1430), (0.2, 10, 1467)):
        plan = udp_alg.plan(users=100, q=q, sigma=0.05, S=0.1)
        accounts = account(plan, rounds, DELTA, ("pld",))
        setting = f"CIFAR-10, sigma=0.05 S=0.1 W=100 q={q} (z={z}), {rounds} rounds"
        stated = paper.accountant_epsilon(q, z, rounds, DELTA)
        sound = worst(accounts, "released_model", method="pld").epsilon_pld
        why = "PLD; of the hypernetwork, toward everybody but the user itself"
        rows.append(_other("UDP-Alg", setting, stated, sound, why))
    return rows


def _fl_top_row() -> dict[str, Any]:
    plan = fl_top_dp.plan(clients=6000, per_round=100, sigma=1.54)
    accounts = account(plan, 200, DELTA, ("pld",), threat=fl_top_dp.THREAT)
    setting = "sigma=1.54, 100 of 6000 clients, 200 rounds"
    stated = paper.accountant_epsilon(1 / 60, 1.54, 200, DELTA)
    sound = worst(accounts, "released_model", method="pld").epsilon_pld
    why = "PLD; cohorts have a fixed size: replace-one neighbours, without replacement"
    return _other("FL-TOP-DP", setting, stated, sound, why)


def _other(
    system: str, setting: str, stated: float, sound: float | None, why: str
) -> dict[str, Any]:
    return {
        "system": system,
        "setting": setting,
        "epsilon_paper": stated,
        "epsilon_sound": sound,
        "why": why,
    }


def comparison(
    request: AccountConfig, equal: Literal["multiplier", "release"]
) -> list[dict[str, Any]]:
    """LDP, HDP and CDP side by side, against every observer.

    Args:
      request: The federation; its `privacy` and shares are not used.
      equal: `multiplier` gives every noising party the request's multiplier, as
        the paper does; `release` takes it as the released model's, so that all
        three put the same noise into it.

    Returns:
      A row per mode and observer.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    if equal not in ("multiplier", "release"):
        raise ArgumentError("equal", equal, "multiplier, release")
    rows = []
    for mode in ("ldp", "hdp", "cdp"):
        shares = {"alpha": None, "beta": None}
        own = dataclasses.replace(request, privacy=mode, compare=None, **shares)
        if equal == "release":
            unit = worst(
                account(
                    own.noise_plan(1.0), own.rounds, own.delta, (), threat=own.threat
                ),
                "released_model",
            )
            if not unit.noise_multiplier:
                allowed = f"multiplier: with privacy={mode} no noise is left in the "
                raise ArgumentError("compare", equal, f"{allowed}model to be equal")
            z = request.noise_multiplier / unit.noise_multiplier
            own = dataclasses.replace(own, noise_multiplier=z)
        rows += [
            {"mode": mode, "party_noise_multiplier": own.noise_multiplier}
            | row.to_dict()
            for row in own.rows()
        ]
    return rows
