"""What the learning processes written by hand have in common."""

from typing import Any

import tensorflow_federated as tff

from tff_hdp.errors import require
from tff_hdp.privacy.plan import NoisePlan


def algorithm_state(weights: Any, aggregator: Any, finalizer: Any = None) -> Any:
    """A `LearningAlgorithmState` at SERVER, of its parts that hold something.

    For use inside a `tff.federated_computation`.

    Args:
      weights: The `global_model_weights`, at SERVER.
      aggregator: At SERVER.
      finalizer: At SERVER; None holds nothing.
    """
    nothing = tff.federated_value((), tff.SERVER)
    return tff.federated_zip(
        tff.learning.templates.LearningAlgorithmState(
            global_model_weights=weights,
            distributor=nothing,
            client_work=nothing,
            aggregator=aggregator,
            finalizer=nothing if finalizer is None else finalizer,
        )
    )


def check_secure_sums(secure_sums: Any, plan: NoisePlan) -> None:
    """Raises ArgumentError unless they are None, or sums that the plan takes."""
    if secure_sums is None:
        return
    is_one = hasattr(secure_sums, "process")
    require(is_one, "secure_sums", secure_sums, "a SecureSums, or None")
    allowed = "None where plan.encoding is None"
    has = plan.encoding is not None
    require(has, "secure_sums", secure_sums.protocol, allowed)


def process_of_model(
    initialize: tff.Computation, next_fn: tff.Computation
) -> tff.learning.templates.LearningProcess:
    """The learning process whose model is its state's `global_model_weights`.

    Args:
      initialize: To the first `LearningAlgorithmState`, at SERVER.
      next_fn: A round, as `LearningProcess` takes it.
    """
    state_type = initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> Any:
        return state.global_model_weights

    @tff.tensorflow.computation(state_type, state_type.global_model_weights)
    def set_model_weights(state: Any, weights: Any) -> Any:
        return state._replace(global_model_weights=weights)

    return tff.learning.templates.LearningProcess(
        initialize, next_fn, get_model_weights, set_model_weights
    )
