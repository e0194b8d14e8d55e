"""Secure aggregation in a run of HDP: its fixed point, its process, its notes."""

from typing import Any

import numpy as np

from tasks.task import Task
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import NoisePlan
from tff_hdp.privacy.plan import MIN_STEPS
from tff_hdp.privacy.secure import with_encoding
from tff_hdp.protocols.secagg.errors import BadInputError
from tff_hdp.systems.hdp.config import DEFAULT_BITS, HdpConfig


def encoded(plan: NoisePlan, config: HdpConfig, task: Task) -> NoisePlan:
    """The plan with the fixed point of the run's secure sums, if there are any.

    Args:
      plan: With the fields of `config.secure_plan`, and the model's size.
      config: The run's settings.
      task: Whose model is summed.

    Raises:
      ArgumentError: If the sums do not fit secure_bits.
      ValueError: If the plan is none for secure sums.
    """
    if config.secure_aggregation == "none":
        return plan
    bits = config.secure_bits or DEFAULT_BITS
    try:
        return with_encoding(
            plan,
            size=plan.size,
            bits=bits,
            largest=config.secure_range,
        )
    except BadInputError as error:
        raise ArgumentError(
            "secure_bits", bits, f"what the sums fit in: {error}"
        ) from error


def model_size(task: Task) -> int:
    """How many numbers the task's model learns."""
    weights = task.build_model().trainable_weights
    return sum(int(np.prod(w.shape)) for w in weights)


_UNSIGNED = (
    "parties are honest but curious, identities are authentic, and the super-node or "
    "server colludes with fewer clients than the protocol's threshold"
)
_SIGNED = (
    "keys to sign by are known beforehand, and the super-node or server colludes with "
    "fewer clients than the protocol's threshold and than a third of them; parties "
    "may lie, since every message is signed and what was changed is refused, but a "
    "client's own wrong update counts"
)


def notes(plan: NoisePlan, config: HdpConfig) -> tuple[str, ...]:
    """What privacy.json says of secure sums."""
    encoding = plan.encoding
    if encoding is None:
        return ()
    protected = []
    if plan.secure_aggregation:
        protected.append("each super-node sees only the sum of its zone's updates")
    if plan.secure_server:
        protected.append("the server sees only the sum of all zones' outputs")
    how = (
        "TFF's secure sums, which its simulation computes in the clear"
        if not config.runs_protocol
        else f"the {config.secure_aggregation_protocol} protocol, run for every sum"
    )
    found = [
        f"Secure aggregation: {' and '.join(protected)}, by {how}. Assumed: "
        f"{_SIGNED if config.parties_sign else _UNSIGNED}. One process plays all "
        "parties here.",
        f"Sums are modulo 2^{encoding.bits} in steps of {encoding.step:.4g}, with "
        f"coordinates within {encoding.clip:.6g}.",
    ]
    if plan.is_noisy:
        found[-1] += (
            " Records are shortened before they are rounded, so that they keep to the "
            "clip norm: the sensitivity accounted includes rounding."
        )
        found.append(_law(plan))
    if plan.min_zone_clients > 1:
        found.append(
            f"A zone with fewer than {plan.min_zone_clients} participants reveals "
            "nothing and is left out of the round; its super-node still adds its "
            "noise, and the account holds with it."
        )
    return tuple(found)


def _law(plan: NoisePlan) -> str:
    """Which noise is discrete, and why it is accounted as a Gaussian."""
    parties = []
    if plan.clients_carry_noise:
        parties.append("clients'")
    if plan.secure_server and any(plan.node_noise[0]):
        parties.append("super-nodes'")
    if not parties:
        return "All noise is continuous and added to sums that are out of the mask."
    steps = min(plan.discrete_stddevs) / plan.encoding.step
    return (
        f"Under the mask the {' and '.join(parties)} noise is discrete Gaussian of at "
        f"least {steps:.4g} steps; from {MIN_STEPS:g} steps on, sums of such noise "
        "differ from one discrete Gaussian by less than e^-900 (Kairouz, Liu and "
        "Steinke 2021), and what that may cost beyond a Gaussian is accounted."
    )


def measured(metrics: Any) -> dict[str, float]:
    """Columns of metrics.csv, from the metrics of a process with secure sums."""
    aggregator = metrics["aggregator"]
    if "left_out" not in aggregator:
        return {}
    return {
        "left_out_zones": int(aggregator["left_out"]),
        "saturated": int(aggregator["saturated"]),
        **metrics.get("secagg", {}),
    }
