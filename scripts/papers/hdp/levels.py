"""Trees with noise at one level: the HDP paper's formula beside the sound account."""

import math
from collections.abc import Sequence
from typing import Any

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import paper
from tff_hdp.privacy.accountant import account, worst
from tff_hdp.privacy.configurations import c1, c2, c4, even_levels
from tff_hdp.privacy.parts import PoissonSampling
from tff_hdp.privacy.plan import NoisePlan


def multi_level(
    *,
    fan_ins: Sequence[int] = (10, 5, 2),
    q: float = 0.2,
    noise_multiplier: float = 1.0,
    rounds: int = 200,
    delta: float = 1e-5,
) -> list[dict[str, Any]]:
    """Epsilon at every level of a tree, for noise added at any one level.

    The paper's section IV-C: noise worth eps where it is added is worth
    eps / sqrt(k_(a+1) ... k_b) at level b above level a.

    Args:
      fan_ins: k_1 clients online in every zone, k_2 zones under every node of
        level 2, ..., and last the nodes under the server.
      q: Sampling probability; a zone has k_1 / q clients.
      noise_multiplier: z of every party of the noising level.
      rounds: T.
      delta: In (0, 1).

    Returns:
      A row per noising level (0: clients, 1: super-nodes, ..., the last the
      server) and level from there on: who sees that level's output, the paper's
      epsilon, the sound one by RDP, and what it rests on.

    Raises:
      ArgumentError: If an argument is out of range or k_1 / q is no whole number.
    """
    if not fan_ins or any(int(k) != k or k < 1 for k in fan_ins):
        raise ArgumentError("fan_ins", fan_ins, "whole numbers >= 1")
    if not 0.0 < q <= 1.0:
        raise ArgumentError("q", q, "(0, 1]")
    size = round(fan_ins[0] / q)
    if not math.isclose(size * q, fan_ins[0]):
        raise ArgumentError("q", q, f"{fan_ins[0]} / q a whole number")
    epsilon = paper.accountant_epsilon(q, noise_multiplier, rounds, delta)
    rows = []
    for noising in range(len(fan_ins) + 1):
        plan = _plan(fan_ins, size, q, noising, noise_multiplier)
        accounts = account(plan, rounds, delta, ("rdp",))
        for level in range(noising, len(fan_ins) + 1):
            # Level b's output is seen by the node above it.
            seen = [row for row in accounts if row.level == level + 1]
            row = worst(seen, seen[0].observer)
            rows.append(
                {
                    "noise_at": noising,
                    "level": level,
                    "observer": row.observer,
                    "epsilon_paper": paper.levels(epsilon, fan_ins[noising:level]),
                    "epsilon_rdp": row.epsilon_rdp,
                    "noise_multiplier": row.noise_multiplier,
                    "delta": delta,
                    "neighbours": row.neighbours,
                    "sampling": row.sampling,
                    "assumptions": row.assumptions,
                }
            )
    return rows


def _plan(
    fan_ins: Sequence[int], size: int, q: float, noising: int, z: float
) -> NoisePlan:
    zones = math.prod(fan_ins[1:])
    counts = [math.prod(fan_ins[i:]) for i in range(2, len(fan_ins))]
    server = len(fan_ins)
    noise = {noising: z} if 2 <= noising < server else {}
    options: dict[str, Any] = {
        "zone_sizes": (size,) * zones,
        "sampling": PoissonSampling((q,) * zones),
        "upper_levels": even_levels(zones, counts, noise),
    }
    if noising == server:
        return c4(noise_multiplier=z, **options)
    if noising > 1:
        return NoisePlan(**options)
    return (c1, c2)[noising](noise_multiplier=z, **options)
