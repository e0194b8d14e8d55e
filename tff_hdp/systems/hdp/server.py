"""The server's part of a round of HDP, however its clients train."""

import collections
from typing import Any

import tensorflow_federated as tff

from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.systems.states import algorithm_state


class HdpServer:
    """Keeps the model, tells the clients, and steps by what they send.

    Args:
      mean: What is done to clients' updates; its state is the `aggregator`.
      initial_weights: Without argument, to the first `ModelWeights`.
      server_optimizer: Applied to the aggregated update.

    Attributes:
      initialize: The computation of the state before the first round.
      state_type: Of the state, at SERVER.
    """

    def __init__(
        self,
        mean: ZonedMean,
        initial_weights: tff.Computation,
        server_optimizer: tff.learning.optimizers.Optimizer,
    ) -> None:
        self.mean = mean
        self._finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
            server_optimizer, initial_weights.type_signature.result
        )
        initial_state = tff.tensorflow.computation(mean.initial_state)
        self._client_state = tff.tensorflow.computation(
            mean.client_state, initial_state.type_signature.result
        )

        @tff.federated_computation
        def initialize() -> Any:
            return algorithm_state(
                tff.federated_eval(initial_weights, tff.SERVER),
                tff.federated_eval(initial_state, tff.SERVER),
                self._finalizer.initialize(),
            )

        self.initialize = initialize
        self.state_type = initialize.type_signature.result

    def send(self, state: Any) -> tuple[Any, Any]:
        """`mean.client_state` and the weights, both at CLIENTS."""
        sent = tff.federated_map(self._client_state, state.aggregator)
        return (
            tff.federated_broadcast(sent),
            tff.federated_broadcast(state.global_model_weights),
        )

    def finish(self, state: Any, total: Any, train: Any) -> tuple[Any, Any]:
        """Ends a round.

        Args:
          state: At its beginning.
          total: What `mean.release` takes, at SERVER.
          train: Training metrics, at SERVER.

        Returns:
          The new state and the round's metrics, at SERVER.
        """
        release = tff.tensorflow.computation(self.mean.release)
        update, aggregator, measurements = tff.federated_map(
            release, (state.aggregator, total)
        )
        finalized = self._finalizer.next(
            state.finalizer, state.global_model_weights, update
        )
        metrics = tff.federated_zip(
            collections.OrderedDict(
                distributor=tff.federated_value((), tff.SERVER),
                client_work=train,
                aggregator=measurements,
                finalizer=finalized.measurements,
            )
        )
        new_state = algorithm_state(finalized.result, aggregator, finalized.state)
        return new_state, metrics
