"""HDP: federated averaging over zones with noise at any level (HDP, Algorithm 1)."""

import collections
import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import LevelQueries
from tff_hdp.aggregators.secure_mean import build_mean
from tff_hdp.aggregators.sums import zone_sums
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.errors import require
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.hdp.clients import Clients
from tff_hdp.systems.states import (
    algorithm_state,
    check_secure_sums,
    process_of_model,
)

if TYPE_CHECKING:
    from tff_hdp.systems.secure_sums import ProtocolProcess, SecureSums


def build_hdp(
    *,
    clients: Clients,
    plan: NoisePlan,
    server_optimizer: tff.learning.optimizers.Optimizer,
    queries: LevelQueries | None = None,
    secure_sums: "SecureSums | None" = None,
) -> "tff.learning.templates.LearningProcess | ProtocolProcess":
    """Builds the zoned learning process.

    Each round every client in the cohort trains locally, its update is clipped,
    weighted and perhaps noised, zones sum and perhaps noise, the server mixes,
    perhaps noises, and steps with its optimizer.

    Args:
      clients: What clients do: `single_clients` or `stacked_clients`.
      plan: Who adds which noise; with an encoding, sums are secure, see
        `HierarchicalMeanFactory`.
      server_optimizer: Applied to the aggregated update; SGD at rate 1 adds it.
      queries: See `HierarchicalMeanFactory`; none with an encoding.
      secure_sums: Takes secure sums by a protocol; None leaves them to TFF.

    Returns:
      A `LearningProcess` over the clients' data, or with `secure_sums` the like.

    Raises:
      ArgumentError: If an argument is something else, there are secure sums or
        queries that the plan does not take, or the plan does not suit the model.
    """
    require(isinstance(plan, NoisePlan), "plan", plan, "a NoisePlan")
    kinds = "what single_clients or stacked_clients returns"
    require(isinstance(clients, Clients), "clients", clients, kinds)
    is_optimizer = isinstance(server_optimizer, tff.learning.optimizers.Optimizer)
    kinds = "one of tff.learning.optimizers"
    require(is_optimizer, "server_optimizer", server_optimizer, kinds)
    check_secure_sums(secure_sums, plan)
    trainable = clients.initial_weights.type_signature.result.trainable
    record = tff.types.type_to_tf_tensor_specs(trainable)
    mean = build_mean(plan, record, queries=queries, draws_noise=secure_sums is None)
    server = _Server(mean, clients, server_optimizer)
    if secure_sums is not None:
        return secure_sums.process(
            mean,
            initialize=server.initialize,
            data_type=clients.data_type,
            train=functools.partial(server.train, apart=True),
            finish=server.finish,
        )

    @tff.federated_computation(server.state_type, server.data_type)
    def next_fn(state: Any, data: Any) -> Any:
        sent, train = server.train(state, data, apart=False)
        return tff.learning.templates.LearningProcessOutput(
            *server.finish(state, zone_sums(mean, sent), train)
        )

    return process_of_model(server.initialize, next_fn)


class _Server:
    """Keeps the model, has its clients train, and steps by what they sent.

    Its methods are for use inside a `tff.federated_computation`.

    Attributes:
      initialize: The computation of the state before the first round, whose
        `aggregator` is the mean's.
      state_type: Of the state, at SERVER.
      data_type: Of the data, at CLIENTS.
    """

    def __init__(
        self,
        mean: ZonedMean,
        clients: Clients,
        server_optimizer: tff.learning.optimizers.Optimizer,
    ) -> None:
        self._mean, self._clients = mean, clients
        templates = tff.learning.templates
        self._finalizer = templates.build_apply_optimizer_finalizer(
            server_optimizer,
            clients.initial_weights.type_signature.result,
            # AutoGraph finds nothing to rewrite in it, and takes its time.
            tf.autograph.experimental.do_not_convert(
                templates.reject_non_finite_update
            ),
        )
        initial_state = tff.tensorflow.computation(mean.initial_state)
        self._client_state = tff.tensorflow.computation(
            mean.client_state, initial_state.type_signature.result
        )

        @tff.federated_computation
        def initialize() -> Any:
            return algorithm_state(
                tff.federated_eval(clients.initial_weights, tff.SERVER),
                tff.federated_eval(initial_state, tff.SERVER),
                self._finalizer.initialize(),
            )

        self.initialize = initialize
        self.state_type = initialize.type_signature.result
        self.data_type = tff.FederatedType(clients.data_type, tff.CLIENTS)

    def train(self, state: Any, data: Any, *, apart: bool) -> tuple[Any, Any]:
        """What clients send, at CLIENTS, and training metrics, at SERVER."""
        sent = tff.federated_map(self._client_state, state.aggregator)
        train = self._clients.bind(self._mean, sent.type_signature.member, apart)
        return train(
            tff.federated_broadcast(sent),
            tff.federated_broadcast(state.global_model_weights),
            data,
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
        release = tff.tensorflow.computation(self._mean.release)
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
