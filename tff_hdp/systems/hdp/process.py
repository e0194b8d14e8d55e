"""HDP: federated averaging over zones with noise at any level (HDP, Algorithm 1)."""

from collections.abc import Callable

import tensorflow_federated as tff

from tff_hdp.aggregators import (
    WEIGHT_TYPE,
    HierarchicalMeanFactory,
    LevelQueries,
    SecureHierarchicalMeanFactory,
)
from tff_hdp.clients.client_work import build_zoned_client_work
from tff_hdp.privacy.plan import NoisePlan


def build_hdp(
    *,
    model_fn: Callable[[], tff.learning.models.VariableModel],
    plan: NoisePlan,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_optimizer: tff.learning.optimizers.Optimizer,
    queries: LevelQueries | None = None,
) -> tff.learning.templates.LearningProcess:
    """Builds the zoned learning process.

    Each round every client in the cohort trains locally on its batches, its
    update is clipped, weighted and perhaps noised, zones sum and perhaps noise,
    the server mixes, perhaps noises, and steps with its optimizer. With plain
    SGD on one full batch at rate 1 an update is a gradient, which is FedSGD.

    Args:
      model_fn: Returns a new `tff.learning.models.VariableModel`.
      plan: Who adds which noise; with an encoding, sums are secure, see
        `SecureHierarchicalMeanFactory`.
      client_optimizer: For local training.
      server_optimizer: Applied to the aggregated update; SGD at rate 1 adds it.
      queries: See `HierarchicalMeanFactory`; none with an encoding.

    Returns:
      A `LearningProcess` whose client data is the structure (examples: sequence
      of batches, profile: sequence of one `client_profile`).

    Raises:
      ValueError: If queries are given beside an encoding.
    """
    client_work = build_zoned_client_work(
        tff.learning.templates.build_model_delta_client_work(
            model_fn,
            client_optimizer,
            client_weighting=tff.learning.ClientWeighting.UNIFORM,
        )
    )
    weights_type = tff.learning.models.weights_type_from_model(model_fn)
    if plan.encoding is None:
        factory = HierarchicalMeanFactory(plan, queries=queries)
    elif queries is None:
        factory = SecureHierarchicalMeanFactory(plan)
    else:
        raise ValueError("queries are given but plan.encoding fixes the noise")
    aggregator = factory.create(weights_type.trainable, WEIGHT_TYPE)

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        return tff.learning.models.ModelWeights.from_model(model_fn())

    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer, weights_type
    )
    return tff.learning.templates.compose_learning_process(
        initial_weights,
        tff.learning.templates.build_broadcast_process(weights_type),
        client_work,
        aggregator,
        finalizer,
    )
