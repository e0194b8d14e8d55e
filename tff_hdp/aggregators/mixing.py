"""How zones' sums become one mean: what each is worth, and the levels in between."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.noise import grid_step
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


def clients_steps(plan: NoisePlan, zone: int) -> list[float]:
    """Of the grids on which a zone's clients' values lie, one of each kind.

    In fixed point all lie on the encoding's, with noise or without.
    """
    noising, n = plan.noise_carriers[zone], plan.zone_sizes[zone]
    if plan.encoding is not None:
        return [plan.encoding.step if noising else 0.0]
    step = grid_step(plan.client_stddev)
    if not noising:
        return [0.0]
    given = n, plan.clipping.clip_norm, plan.client_stddev
    alike = noising == n and levels.adds_up_in_float32(*given)
    return [step] if alike else [step, 0.0]


def zone_step(plan: NoisePlan, zone: int) -> float:
    """Of the grid on which a zone's sum with all its noise lies; 0 without any."""
    clients, own = clients_steps(plan, zone), plan.node_stddevs[0][zone]
    hidden = 0.0 if plan.encoding else levels.step_to_hide(clients, own)
    return grid_step(own or levels.SMOOTHING * hidden) or max(clients)


def noise_upper_levels(
    plan: NoisePlan,
    queries: LevelQueries,
    state: Any,
    outputs: list[Any],
    units: Sequence[float],
) -> tuple[list[list[Any]], Sequence[float], list[float], tuple[list[Any], list[Any]]]:
    """Sums the nodes of each further level and adds each node's noise.

    Returns:
      Every level's outputs, the zones' first; the units of the last, and the steps of
      the grids they lie on; the queries' new states and events.
    """
    by_level, states, events = [outputs], [], []
    steps = [u * zone_step(plan, i) for i, u in enumerate(units)]
    # Scaled by what each zone's clients weigh, no two grids are alike.
    unlike = [0.0] if plan.estimator == "bounded" else []
    for depth, level in enumerate(plan.upper_levels if queries.upper else ()):
        own = plan.node_stddevs[depth + 1]
        nodes = range(len(own))
        children = [
            [i for i, parent in enumerate(level.parents) if parent == node]
            for node in nodes
        ]
        units = [max(units[i] for i in group) for group in children]
        sums = [
            passed_on(
                [outputs[i] for i in children[node]],
                [steps[i] for i in children[node]] + unlike,
                units[node] * own[node],
            )
            for node in nodes
        ]
        noised = [
            levels.noise_sum(
                queries.upper[depth][node],
                state["upper"][depth][node],
                sums[node][0],
                units[node],
            )
            for node in nodes
        ]
        steps = [
            unit * grid_step(stddev) or step
            for unit, stddev, (_, step) in zip(units, own, sums, strict=True)
        ]
        unlike = []
        outputs = [value for value, _, _ in noised]
        by_level.append(outputs)
        states.append([st for _, st, _ in noised])
        events.append([event.to_named_tuple() for _, _, event in noised])
    return by_level, units, steps + unlike, (states, events)


def passed_on(values: list[Any], steps: list[float], own: float) -> tuple[Any, float]:
    """The sum of structures, tensor by tensor, with nothing to see between the steps.

    Args:
      values: Of the nodes beneath.
      steps: Of the grids on which they lie; 0 for one without noise.
      own: Standard deviation of the noise that will be added.

    Returns:
      The sum, and the step of its grid; 0 if there is no noise in it.
    """
    hidden, step = levels.step_to_hide(steps, own), steps[0]

    def total(*parts: tf.Tensor) -> tf.Tensor:
        # What float32 rounds away from a sum hangs on what is added up.
        exact = [tf.cast(t, tf.float64) for t in parts]
        if step and not hidden:
            # So does the last place of a number of steps, times the step.
            return step * tf.add_n([tf.round(t / step) for t in exact])
        return tf.add_n(exact)

    if not any(steps):
        return tf.nest.map_structure(lambda *t: tf.add_n(t), *values), 0.0
    whole = levels.smoothed(tf.nest.map_structure(total, *values), hidden)
    cast = tf.nest.map_structure(
        lambda t, like: tf.cast(t, like.dtype), whole, values[0]
    )
    return cast, grid_step(levels.SMOOTHING * hidden) or step
