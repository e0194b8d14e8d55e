"""Rounds whose secure sums a protocol takes among simulated parties.

A round is two TFF computations with the protocol between them: what clients send apart,
and what the server makes of their sums.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_hdp.aggregators.secure_mean import SecureZonedMean
from tff_hdp.aggregators.secure_protocol import Share, protocol_sums
from tff_hdp.aggregators.sums import operator_sums
from tff_hdp.protocols.secagg.rounds import Protocol

Output = tff.learning.templates.LearningProcessOutput


@dataclasses.dataclass(frozen=True)
class SecureSums:
    """How a process takes its secure sums: by a protocol, among simulated parties.

    Attributes:
      protocol: `bonawitz` or `graph`.
      signed: Whether its parties sign, as where clients may be Byzantine.
    """

    protocol: Protocol
    signed: bool = False

    def process(
        self,
        mean: SecureZonedMean,
        *,
        initialize: tff.Computation,
        data_type: tff.Type,
        train: Callable[[Any, Any], tuple[Any, Any]],
        finish: Callable[[Any, Any, Any], tuple[Any, Any]],
    ) -> "ProtocolProcess":
        """The process whose sums are taken so.

        Args:
          mean: What is made of the sums; the parties of the protocol add its discrete
            noise.
          initialize: The computation of the first state.
          data_type: Of a TFF client's data.
          train: For use in a federated computation, from state and data to what TFF
            clients send apart, ((contribution, zones), shares) at CLIENTS with
            contribution and shares of `clients.contributions.sent_apart`, and
            training metrics, at SERVER.
          finish: Likewise, from state, the round's total, and training metrics, to the
            new state and the round's metrics, at SERVER.
        """
        state_type = initialize.type_signature.result

        @tff.federated_computation(
            state_type, tff.FederatedType(data_type, tff.CLIENTS)
        )
        def collect(state: Any, data: Any) -> Any:
            sent, metrics = train(state, data)
            return sent[1], operator_sums(mean, sent[0]), metrics

        _, operator_type, metrics_type = collect.type_signature.result
        zones = [] if mean.plan.secure_server else [mean.plan.num_zones]
        total_type = tff.to_type(
            collections.OrderedDict(
                vectors=(np.int64, [*zones, mean.vector_size]),
                left_out=(np.bool_, [mean.plan.num_zones]),
                **dict(tff.structure.to_elements(operator_type.member)),
            )
        )

        @tff.federated_computation(
            state_type, tff.FederatedType(total_type, tff.SERVER), metrics_type
        )
        def end(state: Any, total: Any, metrics: Any) -> Any:
            return finish(state, total, metrics)

        return ProtocolProcess(
            mean=mean,
            secure_sums=self,
            initialize=initialize,
            collect=collect,
            finish=end,
        )


@dataclasses.dataclass(frozen=True)
class ProtocolData:
    """A round's data for `ProtocolProcess`.

    Attributes:
      clients: One entry per TFF client.
      dropped: Per zone how many clients fall silent before they send an update.
    """

    clients: Sequence[Any]
    dropped: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtocolProcess:
    """A process whose rounds run the secure aggregation protocol for real.

    Looks like a `LearningProcess`, but a round is two TFF computations with the
    protocol between them: clients train, clip and encode; every zone's parties
    mask, exchange and unmask what the clients sent; the server mixes what came
    out. Metrics have besides `secagg`, the costs of `ProtocolSums`.

    Attributes:
      mean: What is made of the sums.
      secure_sums: By which protocol.
      initialize: The computation of the first state.
      collect: From state and clients' data to every TFF client's shares, sums for
        the operator, and training metrics.
      finish: From state, the zones' sums and training metrics to new state and
        metrics.
    """

    mean: SecureZonedMean
    secure_sums: SecureSums
    initialize: tff.Computation
    collect: tff.Computation
    finish: tff.Computation

    def next(self, state: Any, data: ProtocolData) -> Output:
        """One round.

        Args:
          state: What `initialize` or the round before returned.
          data: Who takes part with what.
        """
        plan = self.mean.plan
        sent, operator, train = self.collect(state, list(data.clients))
        zones: list[list[Share]] = [[] for _ in range(plan.num_zones)]
        for shares in sent:
            names = "zone", "vector", "carries_noise", "counted"
            clients = zip(*(shares[name] for name in names), strict=True)
            for zone, vector, carries, counted in clients:
                share = Share(vector, bool(carries), bool(counted))
                zones[int(zone)].append(share)
        sums = protocol_sums(
            plan,
            zones,
            protocol=self.secure_sums.protocol,
            round_number=int(state.aggregator["round"]),
            size=self.mean.vector_size,
            dropped=data.dropped,
            signed=self.secure_sums.signed,
        )
        total = collections.OrderedDict(
            vectors=sums.vectors, left_out=sums.left_out, **operator
        )
        new_state, metrics = self.finish(state, total, train)
        return Output(new_state, collections.OrderedDict(metrics, secagg=sums.costs))

    def get_model_weights(self, state: Any) -> tff.learning.models.ModelWeights:
        """The model of a state."""
        return state.global_model_weights

    def set_model_weights(
        self, state: Any, weights: tff.learning.models.ModelWeights
    ) -> Any:
        """The state with another model."""
        return state._replace(global_model_weights=weights)
