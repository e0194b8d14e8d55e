"""How zones' sums become one mean: what each is worth, and the levels above."""

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_hdp.aggregators import levels
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.noise import grid_step
from tff_hdp.privacy.plan import NoisePlan


def zone_factors(
    plan: NoisePlan, weight: tf.Tensor
) -> tuple[Sequence[float] | tf.Tensor, Sequence[float] | tf.Tensor]:
    """Per zone: sum -> value of sensitivity S, and that value -> p_i X_i.

    Args:
      plan: With s zones.
      weight: Of the zones' clients that came, summed, float32 [s].

    Returns:
      s numbers each; a float32 tensor [s] where they depend on `weight`.
    """
    s = plan.num_zones
    if plan.estimator == "realised":
        if plan.mixing == "weighted":
            whole = tf.math.divide_no_nan(1.0, tf.reduce_sum(weight))
            return [1.0] * s, tf.fill([s], whole)
        return tf.math.divide_no_nan(tf.ones([s]), weight), plan.mixing_weights
    if plan.estimator == "fixed":
        return [1.0] * s, plan.released_units
    floors = tf.constant(plan.denominators, tf.float32)
    return 0.5 * floors / tf.maximum(floors, weight), plan.released_units


def clients_steps(plan: NoisePlan, zone: int) -> list[float]:
    """Steps of the grids on which a zone's clients' values lie, one of each kind.

    In fixed point all lie on the encoding's, with noise or without.
    """
    noising, n = plan.noise_carriers[zone], plan.zone_sizes[zone]
    if plan.encoding is not None:
        return [plan.encoding.step if noising else 0.0]
    if not noising:
        return [0.0]
    own = plan.client_noise
    step, given = grid_step(own.stddev), (n, own.sensitivity, own.stddev)
    alike = noising == n and levels.adds_up_in_float32(*given)
    return [step] if alike else [step, 0.0]


def hidden_step(plan: NoisePlan, zone: int) -> float:
    """Step of the grid that a super-node hides before it adds its noise; 0 for none.

    By the plan alone: nothing may depend on who came.
    """
    if plan.encoding is not None:
        return 0.0
    return levels.step_to_hide(clients_steps(plan, zone), plan.zone_noise[zone].stddev)


def zone_step(plan: NoisePlan, zone: int) -> float:
    """Step of the grid on which a zone's sum with all its noise lies; 0 without any."""
    own = plan.zone_noise[zone].stddev or levels.SMOOTHING * hidden_step(plan, zone)
    return grid_step(own) or max(clients_steps(plan, zone))


def noise_above_zones(
    plan: NoisePlan, queries: LevelQueries, state: Any, outputs: list[Any]
) -> tuple[list[list[Any]], Any, Any]:
    """Sums the nodes of every level above the zones, the server last, and noises them.

    Args:
      plan: Who adds which noise.
      queries: Of these levels; a level between is left out if its nodes have none.
      state: The queries' states, by level.
      outputs: The zones', p_i X_i.

    Returns:
      Every level's outputs, the zones' first; the queries' new states and their events,
      by level.
    """
    upper = plan.upper_levels if queries.upper else ()
    by_level, states, events = [outputs], [], []
    s = plan.num_zones
    units = plan.released_units if plan.estimator != "realised" else (1.0,) * s
    steps = [u * zone_step(plan, i) for i, u in enumerate(units)]
    # Scaled by what each zone's clients weigh, no two grids are alike.
    unlike = [0.0] if plan.estimator == "bounded" else []
    for parents, asked, given, noises in zip(
        [*(level.parents for level in upper), itertools.repeat(0)],
        [*queries.upper, [queries.server]],
        [*state.get("upper", ()), [state.get("server")]],
        [*plan.node_noise[1 : 1 + len(upper)], plan.node_noise[-1]],
        strict=True,
    ):
        children: list[list[int]] = [[] for _ in noises]
        for child, parent in zip(range(len(units)), parents, strict=False):
            children[parent].append(child)
        found = []
        for beneath, query, own, noise in zip(
            children, asked, given, noises, strict=True
        ):
            unit = max(units[i] for i in beneath)
            value, step = passed_on(
                [outputs[i] for i in beneath],
                [steps[i] for i in beneath] + unlike,
                unit * noise.stddev,
            )
            event = None
            if query is not None:
                value, own, event = levels.noise_sum(query, own, value, unit)
                event = event.to_named_tuple()
            step = unit * grid_step(noise.stddev) or step
            found.append((value, own, event, unit, step))
        outputs, new, emitted, units, steps = map(list, zip(*found, strict=True))
        unlike = []
        by_level.append(outputs)
        states.append(new)
        events.append(emitted)
    new_state, all_events = {}, {}
    if upper:
        new_state["upper"], all_events["upper"] = states[:-1], events[:-1]
    if queries.server is not None:
        (new_state["server"],), (all_events["server"],) = states[-1], events[-1]
    return by_level, new_state, all_events


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
        # What float32 rounds away from a sum depends on what is added up.
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
