"""What a run says of its secure sums: in privacy.json, and in metrics.csv."""

from typing import Any

from tff_hdp.privacy import NoisePlan
from tff_hdp.privacy.parts import MIN_STEPS

_UNSIGNED = (
    "parties are honest but curious, identities are authentic, and the super-node or "
    "server colludes with fewer clients than the protocol's threshold"
)
_SPARSE = (
    "parties are honest but curious, identities are authentic, and of a sum's clients "
    "at most a tenth, or one, are the super-node or server or collude with it"
)
_SIGNED = (
    "keys to sign by are known beforehand, and the super-node or server colludes with "
    "fewer clients than the protocol's threshold and than a third of them; parties "
    "may lie, since every message is signed and what was changed is refused, but a "
    "client's own wrong update counts, and clients are not said to have dropped out of "
    "a sum, which is then tried again without them, when they did not"
)


def notes(
    plan: NoisePlan, protocol: str, *, signed: bool = False, one_server: bool = False
) -> tuple[str, ...]:
    """What privacy.json says of secure sums.

    Args:
      plan: Without an encoding there are none.
      protocol: `intrinsic`, or which was run.
      signed: Whether its parties sign.
      one_server: Whether a server sums for all clients, and there are no zones.
    """
    encoding = plan.encoding
    if encoding is None:
        return ()
    protected = []
    if plan.secure_aggregation and one_server:
        protected.append("the server sees only the sum of a round's updates")
    elif plan.secure_aggregation:
        protected.append("each super-node sees only the sum of its zone's updates")
    if plan.secure_server:
        protected.append("the server sees only the sum of all zones' outputs")
    assumed = _SPARSE if protocol == "graph" else _UNSIGNED
    how = (
        "TFF's secure sums, which its simulation computes in the clear"
        if protocol == "intrinsic"
        else f"the {protocol} protocol, run for every sum"
    )
    found = [
        f"Secure aggregation: {' and '.join(protected)}, by {how}. Assumed: "
        f"{_SIGNED if signed else assumed}. One process plays all "
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
    if plan.min_zone_clients > 1 and not one_server:
        still = (
            "; its super-node still adds its noise"
            if plan.super_nodes_add_noise
            else ""
        )
        found.append(
            f"A zone with fewer than {plan.min_zone_clients} participants reveals "
            f"nothing and is left out of the round{still}, and the account holds."
        )
    return tuple(found)


def _law(plan: NoisePlan) -> str:
    """Which noise is discrete, and why it is accounted as a Gaussian."""
    parties = []
    if plan.clients_carry_noise:
        parties.append("clients'")
    if plan.secure_server and plan.super_nodes_add_noise:
        parties.append("super-nodes'")
    if not parties:
        return "All noise is continuous and added to sums that are out of the mask."
    steps = plan.discrete_steps
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
