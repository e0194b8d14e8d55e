"""How zones' sums become one mean: what each is worth, and the levels in between."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels
from tff_hdp.noise import STEPS
from tff_hdp.privacy.plan import NoisePlan


def zone_factors(
    plan: NoisePlan, weight: tf.Tensor
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Per zone: sum -> value of sensitivity S, and that value -> p_i X_i."""
    s = plan.num_zones
    if plan.estimator == "realised":
        if plan.mixing == "weighted":
            whole = tf.math.divide_no_nan(1.0, tf.reduce_sum(weight))
            return [1.0] * s, [whole] * s
        inverse = tf.math.divide_no_nan(tf.ones([s]), weight)
        return [inverse[i] for i in range(s)], plan.mixing_weights
    if plan.estimator == "fixed":
        return [1.0] * s, plan.released_units
    floors = tf.constant(plan.denominators, tf.float32)
    ratio = 0.5 * floors / tf.maximum(floors, weight)
    return [ratio[i] for i in range(s)], plan.released_units


def clients_stddev(plan: NoisePlan, zone: int) -> float:
    """Of the noise of a zone's clients in its sum, where all are there.

    In fixed point all sums share one grid, which matters only beside other noise: then
    it is that of noise with `STEPS` such steps.
    """
    if not plan.clients_carry_noise:
        return 0.0
    if plan.encoding is None:
        return plan.client_stddev * math.sqrt(plan.noise_carriers[zone])
    others = any(map(any, plan.node_noise[:-1]))
    return STEPS * plan.encoding.step if others else 0.0


def noise_upper_levels(
    plan: NoisePlan,
    queries: levels.LevelQueries,
    state: Any,
    outputs: list[Any],
    units: Sequence[float],
) -> tuple[list[list[Any]], Sequence[float], list[float], tuple[list[Any], list[Any]]]:
    """Sums the nodes of each further level and adds each node's noise.

    Returns:
      Every level's outputs, the zones' first; the units of the last, and how much
      noise is in them; the queries' new states and events.
    """
    by_level, states, events = [outputs], [], []
    # A bounded estimator halves zones' sums, and doubles what their outputs count.
    halved = 0.5 if plan.estimator == "bounded" else 1.0
    stddevs = [
        u * math.hypot(halved * clients_stddev(plan, i), own)
        for i, (u, own) in enumerate(zip(units, plan.node_stddevs[0], strict=True))
    ]
    for depth, level in enumerate(plan.upper_levels if queries.upper else ()):
        own = plan.node_stddevs[depth + 1]
        nodes = range(len(own))
        children = [
            [i for i, parent in enumerate(level.parents) if parent == node]
            for node in nodes
        ]
        units = [max(units[i] for i in group) for group in children]
        noised = [
            levels.noise_sum(
                queries.upper[depth][node],
                state["upper"][depth][node],
                passed_on(
                    [outputs[i] for i in children[node]],
                    [stddevs[i] for i in children[node]],
                ),
                units[node],
            )
            for node in nodes
        ]
        stddevs = [
            math.hypot(*(stddevs[i] for i in group), unit * stddev)
            for group, stddev, unit in zip(children, own, units, strict=True)
        ]
        outputs = [value for value, _, _ in noised]
        by_level.append(outputs)
        states.append([st for _, st, _ in noised])
        events.append([event.to_named_tuple() for _, _, event in noised])
    return by_level, units, stddevs, (states, events)


def passed_on(values: list[Any], stddevs: list[float]) -> Any:
    """The sum of structures, tensor by tensor, `smoothed`.

    Args:
      values: Of the nodes beneath.
      stddevs: Of the noise in each.
    """
    spread = math.hypot(*stddevs)
    if not spread:
        return tf.nest.map_structure(lambda *t: tf.add_n(t), *values)

    def total(*parts: tf.Tensor) -> tf.Tensor:
        # What float32 rounds away from a sum hangs on what is added up.
        return tf.add_n([tf.cast(t, tf.float64) for t in parts])

    whole = levels.smoothed(tf.nest.map_structure(total, *values), spread)
    return tf.nest.map_structure(
        lambda t, like: tf.cast(t, like.dtype), whole, values[0]
    )
