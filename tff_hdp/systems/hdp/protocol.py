"""HDP with secure sums: in TFF, or by the protocol among simulated parties."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_hdp.aggregators.secure_factory import operator_sums, zone_totals
from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.secure_protocol import Share, protocol_sums
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.protocols.secagg.rounds import Protocol
from tff_hdp.systems.hdp.clients import Clients
from tff_hdp.systems.hdp.server import HdpServer
from tff_hdp.systems.states import process_of_model

State = tff.learning.templates.LearningAlgorithmState
Output = tff.learning.templates.LearningProcessOutput


def build_secure_hdp(
    *,
    clients: Clients,
    plan: NoisePlan,
    server_optimizer: tff.learning.optimizers.Optimizer,
) -> tff.learning.templates.LearningProcess:
    """Builds HDP with TFF's secure sums.

    See `SecureHierarchicalMeanFactory`, whose sums these are. Where TFF clients are
    chunks of a zone, a chunk's clients are summed before.

    Args:
      clients: What clients do.
      plan: Who adds which noise, in which fixed point.
      server_optimizer: Applied to the aggregated update.

    Raises:
      ValueError: If the plan's encoding does not suit the model.
    """
    server = _SecureServer(clients, plan, server_optimizer, draws_noise=True)

    @tff.federated_computation(
        server.state_type, tff.FederatedType(clients.data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        contributions, train = server.train(state, data, apart=False)
        total = zone_totals(server.mean, contributions)
        return Output(*server.finish(state, total, train))

    return process_of_model(server.initialize, next_fn)


@dataclasses.dataclass(frozen=True)
class ProtocolData:
    """A round's data for `ProtocolHdp`.

    Attributes:
      clients: One entry per TFF client.
      dropped: Per zone how many clients fall silent before they send an update.
    """

    clients: Sequence[Any]
    dropped: tuple[int, ...]


class ProtocolHdp:
    """HDP whose rounds run the secure aggregation protocol for real.

    Looks like a `LearningProcess`, but a round is two TFF computations with the
    protocol between them: clients train, clip and encode; every zone's parties
    mask, exchange and unmask what the clients sent; the server mixes what came
    out. Metrics have besides `secagg`, the costs of `ProtocolSums`.

    Args:
      clients: What clients do.
      plan: Who adds which noise, in which fixed point.
      server_optimizer: Applied to the aggregated update.
      protocol: `bonawitz` or `graph`.
      signed: Whether its parties sign, as where clients may be Byzantine.

    Raises:
      ValueError: If the plan's encoding does not suit the model.
    """

    def __init__(
        self,
        *,
        clients: Clients,
        plan: NoisePlan,
        server_optimizer: tff.learning.optimizers.Optimizer,
        protocol: Protocol,
        signed: bool = False,
    ) -> None:
        self._plan, self._protocol, self._signed = plan, protocol, signed
        server = _SecureServer(clients, plan, server_optimizer, draws_noise=False)
        self._size = server.mean.vector_size
        self._initialize = server.initialize

        @tff.federated_computation(
            server.state_type, tff.FederatedType(clients.data_type, tff.CLIENTS)
        )
        def collect(state: Any, data: Any) -> Any:
            contributions, train = server.train(state, data, apart=True)
            return contributions, operator_sums(plan, contributions), train

        _, operator_type, train_type = collect.type_signature.result
        shape = [self._size] if plan.secure_server else [plan.num_zones, self._size]
        total_type = tff.to_type(
            collections.OrderedDict(
                vectors=(np.int64, shape),
                left_out=(np.bool_, [plan.num_zones]),
                **dict(tff.structure.to_elements(operator_type.member)),
            )
        )

        @tff.federated_computation(
            server.state_type, tff.FederatedType(total_type, tff.SERVER), train_type
        )
        def finish(state: Any, total: Any, train: Any) -> Any:
            return server.finish(state, total, train)

        self._collect, self._finish = collect, finish

    def initialize(self) -> State:
        """The state before the first round."""
        return self._initialize()

    def next(self, state: Any, data: ProtocolData) -> Output:
        """One round.

        Args:
          state: What `initialize` or the round before returned.
          data: Who takes part with what.
        """
        contributions, operator, train = self._collect(state, list(data.clients))
        zones: list[list[Share]] = [[] for _ in range(self._plan.num_zones)]
        for sent in contributions:
            pairs = zip(sent["vector"], sent["carries_noise"], strict=True)
            zones[int(sent["zone"])] += [
                Share(vector, self._plan.client_noise_multiplier if carries else 0.0)
                for vector, carries in pairs
            ]
        sums = protocol_sums(
            self._plan,
            zones,
            protocol=self._protocol,
            round_number=int(state.aggregator["round"]),
            size=self._size,
            dropped=data.dropped,
            signed=self._signed,
        )
        total = collections.OrderedDict(
            vectors=sums.vectors, left_out=sums.left_out, **operator
        )
        new_state, metrics = self._finish(state, total, train)
        return Output(new_state, collections.OrderedDict(metrics, secagg=sums.costs))

    def get_model_weights(self, state: Any) -> tff.learning.models.ModelWeights:
        """The model of a state."""
        return state.global_model_weights

    def set_model_weights(
        self, state: Any, weights: tff.learning.models.ModelWeights
    ) -> Any:
        """The state with another model."""
        return state._replace(global_model_weights=weights)


class _SecureServer(HdpServer):
    """An `HdpServer` of sums in fixed point, beside its clients."""

    mean: SecureZonedMean

    def __init__(
        self,
        clients: Clients,
        plan: NoisePlan,
        server_optimizer: tff.learning.optimizers.Optimizer,
        *,
        draws_noise: bool,
    ) -> None:
        self._clients = clients
        trainable = clients.initial_weights.type_signature.result.trainable
        record = tff.types.type_to_tf_tensor_specs(trainable)
        mean = SecureZonedMean(plan, record, draws_noise=draws_noise)
        super().__init__(mean, clients.initial_weights, server_optimizer)

    def train(self, state: Any, data: Any, *, apart: bool) -> tuple[Any, Any]:
        """Clients' contributions, at CLIENTS, and training metrics, at SERVER."""
        sent, weights = self.send(state)
        train = self._clients.bind(self.mean, sent.type_signature.member, apart)
        return train(sent, weights, data)
