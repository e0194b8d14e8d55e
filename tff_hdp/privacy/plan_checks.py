"""What a noise plan may hold besides its zones and noise, and what not together."""

import math
from typing import TYPE_CHECKING

from tff_hdp.errors import (
    ArgumentError,
    check_bool,
    check_count,
    check_nonnegative,
    check_positive,
    check_word,
    require,
)
from tff_hdp.privacy.parts import (
    LEAST_WEIGHT,
    MIN_STEPS,
    FixedSizeSampling,
    FullParticipation,
    PoissonSampling,
)
from tff_hdp.privacy.planned_noise import put, put_per_zone
from tff_hdp.protocols.secagg import FixedPoint

if TYPE_CHECKING:
    from tff_hdp.privacy.plan import NoisePlan


def check_plan(plan: "NoisePlan") -> None:
    """Checks a new plan, but for `PlannedNoise`, and puts fields into their types.

    Raises:
      ArgumentError: If a field is out of range, or two contradict each other.
    """
    for name in ("secure_aggregation", "secure_server", "top_up"):
        put(plan, name, check_bool(name, getattr(plan, name)))
    _check_sampling(plan)
    _check_adaptive(plan)
    _check_estimator(plan)
    _check_sums(plan)


def _check_sampling(plan: "NoisePlan") -> None:
    put(plan, "size", check_count("size", plan.size, 1))
    sizes = plan.zone_sizes
    if isinstance(plan.sampling, PoissonSampling):
        drawn = plan.sampling.probabilities
    elif isinstance(plan.sampling, FixedSizeSampling):
        drawn = plan.sampling.sizes
        for i, (k, n) in enumerate(zip(drawn, sizes, strict=False)):
            name = f"sampling.sizes[{i}]"
            require(k <= n, name, k, f"at most {n}, the zone's clients")
    else:
        ok = isinstance(plan.sampling, FullParticipation)
        require(ok, "sampling", plan.sampling, "a Sampling")
        return
    s = len(sizes)
    require(len(drawn) == s, "sampling", plan.sampling, f"{s} entries, as zones")


def _check_adaptive(plan: "NoisePlan") -> None:
    if plan.clipping.kind != "adaptive":
        return
    alone = not (plan.client_noise or plan.super_nodes_add_noise or plan.upper_levels)
    require(
        alone or not plan.is_noisy,
        "clipping.kind",
        "adaptive",
        "flat or per_layer unless the server alone adds noise (cdp, c4), with "
        "no levels between it and the zones",
    )


def _check_estimator(plan: "NoisePlan") -> None:
    allowed = ("fixed", "bounded", "realised")
    check_word("estimator", plan.estimator, allowed)
    if plan.estimator == "realised" and plan.is_noisy:
        raise ArgumentError(
            "estimator",
            "realised",
            "fixed or bounded with noise; its sensitivity is unbounded",
        )
    if plan.top_up and plan.estimator == "bounded" and plan.clients_carry_noise:
        raise ArgumentError(
            "top_up",
            True,
            "False with estimator bounded, whose random denominator scales noise",
        )
    if plan.zone_weights is not None:
        given = plan.zone_weights
        weights = put_per_zone(plan, "zone_weights", given, check_positive)
        for i, (w, n) in enumerate(zip(weights, plan.zone_sizes, strict=True)):
            ok = LEAST_WEIGHT <= w <= n * (1 + 1e-9)
            allowed = f"{LEAST_WEIGHT:g}..{n}, weights being <= 1"
            require(ok, f"zone_weights[{i}]", w, allowed)
    if isinstance(plan.mixing, str):
        ok = plan.mixing in ("weighted", "equal")
        require(ok, "mixing", plan.mixing, "weighted, equal or p_i")
        return
    mixing = put_per_zone(plan, "mixing", plan.mixing, check_nonnegative)
    for i, p in enumerate(mixing):
        allowed = f"0, or {LEAST_WEIGHT:g} and more"
        require(p == 0 or p >= LEAST_WEIGHT, f"mixing[{i}]", p, allowed)
        ok = p > 0 or plan.clipping.kind != "adaptive"
        allowed = "above 0 with adaptive clipping, which counts every client"
        require(ok, f"mixing[{i}]", p, allowed)
    ok = math.isclose(sum(mixing), 1.0, rel_tol=1e-6)
    require(ok, "mixing", mixing, f"numbers that sum to 1, not {sum(mixing):g}")


def _check_sums(plan: "NoisePlan") -> None:
    least, sizes = plan.min_zone_clients, plan.zone_sizes
    least = check_count("min_zone_clients", least)
    put(plan, "min_zone_clients", least)
    if isinstance(plan.sampling, FixedSizeSampling):
        sizes = plan.sampling.sizes
    require(
        1 <= least <= min(sizes),
        "min_zone_clients",
        least,
        f"1..{min(sizes)}, the clients of the smallest zone or fixed cohort",
    )
    if plan.secure_server:
        _check_secure_server(plan)
    if plan.encoding is not None:
        _check_encoding(plan, plan.encoding)


def _check_secure_server(plan: "NoisePlan") -> None:
    equal = True
    if plan.estimator == "realised":
        equal = plan.mixing == "weighted"
    elif plan.estimator == "fixed":
        units = plan.released_sensitivities
        equal = math.isclose(min(units), max(units), rel_tol=1e-9)
    for ok, allowed in (
        (not plan.upper_levels, "False with upper_levels: it sums zones"),
        (plan.num_zones > 1, "False with 1 zone, whose output is the sum"),
        (
            plan.estimator != "bounded",
            "False with estimator bounded, which divides each zone's sum by its "
            "own random denominator; use fixed",
        ),
        (equal, f"False with mixing {plan.mixing}: zones' sums count differently"),
    ):
        require(ok, "secure_server", True, allowed)


def _check_encoding(plan: "NoisePlan", encoding: FixedPoint) -> None:
    ok = isinstance(encoding, FixedPoint)
    require(ok, "encoding", encoding, "a FixedPoint or None")
    if not (plan.secure_aggregation or plan.secure_server):
        raise ArgumentError("encoding", encoding, "None without secure aggregation")
    if plan.clipping.kind == "adaptive":
        raise ArgumentError(
            "clipping.kind",
            "adaptive",
            "flat or per_layer with an encoding, which is for one clip norm",
        )
    most, largest = plan.most_summed, encoding.max_clients
    ok = largest >= most
    require(ok, "encoding.max_clients", largest, f"at least {most}, as in a sum")
    client, *nodes = plan.noise_by_field.items()
    least = MIN_STEPS * plan.relative_step
    allowed = f"0 or at least {least:.3g} with an encoding of step "
    allowed += f"{encoding.step:.3g}; use more bits"
    for name, noise in [client, *(nodes if plan.secure_server else ())]:
        noise.check_at_least(name, least, allowed)
