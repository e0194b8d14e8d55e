"""How zones' sums become one mean: what each is worth, and the levels in between."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels
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
    released = [u / plan.clipping.clip_norm for u in plan.released_sensitivities]
    if plan.estimator == "fixed":
        return [1.0] * s, released
    floors = tf.constant(plan.denominators, tf.float32)
    ratio = 0.5 * floors / tf.maximum(floors, weight)
    return [ratio[i] for i in range(s)], released


def noise_upper_levels(
    plan: NoisePlan,
    queries: levels.LevelQueries,
    state: Any,
    outputs: list[Any],
    units: list[float],
) -> tuple[list[list[Any]], list[float], list[Any], list[Any]]:
    """Sums the nodes of each further level and adds each node's noise.

    Returns:
      Every level's outputs, the zones' first; the units of the last; the queries' new
      states and events.
    """
    by_level, states, events = [outputs], [], []
    for depth, nodes in enumerate(queries.upper):
        parents = plan.upper_levels[depth].parents
        children = [
            [i for i, parent in enumerate(parents) if parent == node]
            for node in range(len(nodes))
        ]
        units = [max(units[i] for i in group) for group in children]
        noised = [
            levels.noise_sum(query, st, added([outputs[i] for i in group]), unit)
            for query, st, group, unit in zip(
                nodes, state["upper"][depth], children, units, strict=True
            )
        ]
        outputs = [value for value, _, _ in noised]
        by_level.append(outputs)
        states.append([st for _, st, _ in noised])
        events.append([event.to_named_tuple() for _, _, event in noised])
    return by_level, units, states, events


def added(values: list[Any]) -> Any:
    """The sum of structures, tensor by tensor."""
    return tf.nest.map_structure(lambda *t: tf.add_n(t), *values)
