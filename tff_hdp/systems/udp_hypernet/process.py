"""UDP-Alg: personalised models from a hypernetwork trained with user-level DP.

Source: Nemala, Lai and Phan (CIKM 2023), Algorithm 1.

The sign used here: Delta theta_u = theta_u - theta~_u, initial minus trained, as
everywhere in TFF. It points up the loss, so phi and v_u are both stepped against
it, as the paper's lines 15 and 16 do. (Its line 11 has the opposite sign, with
which those lines would climb.)
"""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.aggregators.totals import federated_total
from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import train_clients
from tff_hdp.clients.updates import screen
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork


def user_type(feature_shape: tuple[int, ...], dtype: Any) -> tff.SequenceType:
    """The type of a user's data: a sequence of one `make_chunk` of one, and `user`.

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.

    Returns:
      As `chunk_type`, and `user`, the user's row in the table of descriptors,
      int32 [1].
    """
    fields = chunk_type(feature_shape, dtype).element._asdict()
    user = tff.TensorType(np.int32, [1])
    return tff.SequenceType(collections.OrderedDict(fields, user=user))


def initial_weights(
    build_model: Callable[[], tf.keras.Model], hypernetwork: Hypernetwork, users: int
) -> collections.OrderedDict[str, Any]:
    """Draws `phi` and the table of `descriptors` [users, descriptor_dim].

    Descriptors are standard normal. Works eagerly and within a TFF computation.
    """
    local = [tf.identity(w) for w in build_model().trainable_weights]
    return collections.OrderedDict(
        phi=hypernetwork.initial(local),
        descriptors=tf.random.normal([users, hypernetwork.descriptor_dim]),
    )


def build_udp_hypernet(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    hypernetwork: Hypernetwork,
    plan: NoisePlan,
    client_learning_rate: float,
    server_learning_rate: float,
    descriptor_learning_rate: float,
) -> tff.learning.templates.LearningProcess:
    """Builds the process of Algorithm 1.

    A round: every user of the cohort gets phi by broadcast and its own v_u, and
    no one else's, by `tff.federated_select`; it makes theta_u = h(phi, v_u),
    trains it, and pulls Delta theta_u back to the coordinates of phi and v_u. The
    first goes through the plan's aggregator (clipped to S, weighted, summed,
    noised, divided by q W) and steps phi; the second is added to the user's own
    row of the table of descriptors, without noise.

    In the paper the server itself computes h and the pull-back and so sends and
    receives |theta| numbers a user; here users do, at |phi| numbers, so that the
    clip can come before anything leaves them and the sum may be a secure one. The
    arithmetic is the same. A user sees phi (which is released anyway) and its
    own descriptor; the server sees each clipped update and each v_u's step.

    Args:
      build_model: Returns a new local model, one that `StackedModel` takes.
      data_type: `user_type` of the data.
      hypernetwork: h, for the model's shapes.
      plan: One zone, over all users; who adds which noise.
      client_learning_rate: eta.
      server_learning_rate: lambda, of phi.
      descriptor_learning_rate: zeta, of v_u.

    Returns:
      A `LearningProcess` whose TFF clients are users. Its state holds `phi` (a list
      of tensors), `descriptors` float32 [users, descriptor_dim] and `aggregator`;
      its model weights are the first two.

    Raises:
      ArgumentError: If the plan has more than one zone, the model an unsupported
        layer, or the hypernetwork's targets are not the model's shapes.
    """
    if plan.num_zones != 1:
        raise ArgumentError("plan.zone_sizes", plan.zone_sizes, "one zone")
    model = StackedModel.built_by(build_model)
    if hypernetwork.targets != model.shapes:
        raise ArgumentError(
            "hypernetwork.targets",
            str(hypernetwork.targets),
            f"{model.shapes}, the shapes of the model's weights",
        )
    users = plan.num_clients
    rule = SgdRule(learning_rate=client_learning_rate)
    phi_type = tff.to_type([(np.float32, shape) for shape in hypernetwork.shapes])
    vector_type = tff.TensorType(np.float32, [hypernetwork.descriptor_dim])
    table_type = tff.TensorType(np.float32, [users, hypernetwork.descriptor_dim])
    aggregator = HierarchicalMeanFactory(plan).create(phi_type, WEIGHT_TYPE)

    @tff.tensorflow.computation
    def new_weights() -> Any:
        return initial_weights(build_model, hypernetwork, users)

    @tff.federated_computation
    def initialize() -> Any:
        weights = tff.federated_eval(new_weights, tff.SERVER)
        return tff.federated_zip(
            collections.OrderedDict(
                phi=weights.phi,
                descriptors=weights.descriptors,
                aggregator=aggregator.initialize(),
            )
        )

    def known(data: tf.data.Dataset) -> Any:
        """A user's chunk; if it is none, that of the first, and its labels no class.

        Such labels have an update rejected.
        """
        chunk = collections.OrderedDict(data.get_single_element())
        user = chunk["user"]
        is_one = tf.logical_and(user >= 0, user < users)
        chunk["user"] = tf.where(is_one, user, 0)
        chunk["labels"] = tf.where(is_one, chunk["labels"], -1)
        return chunk

    @tff.tensorflow.computation(data_type)
    def key_of(data: tf.data.Dataset) -> tf.Tensor:
        return known(data)["user"]

    @tff.tensorflow.computation(table_type, np.int32)
    def row(table: tf.Tensor, user: tf.Tensor) -> tf.Tensor:
        return table[user]

    @tff.tensorflow.computation(phi_type, tff.SequenceType(vector_type), data_type)
    def train(phi: Any, own_row: tf.data.Dataset, data: tf.data.Dataset) -> Any:
        """Lines 8-12."""
        phi, descriptor = list(phi), own_row.get_single_element()
        chunk = known(data)
        theta = hypernetwork(phi, descriptor)
        updates, sums = train_clients(model, theta, chunk, rule)
        phi_update, descriptor_update = hypernetwork.pull_back(
            phi, descriptor, [update[0] for update in updates]
        )
        # A user whose training diverged keeps its descriptor.
        descriptor_update, _ = screen(descriptor_update[tf.newaxis], instead=0.0)
        return collections.OrderedDict(
            phi=phi_update,
            weight=collections.OrderedDict(
                weight=chunk["weight"][0],
                zone=chunk["zone"],
                carries_noise=chunk["carries_noise"][0],
            ),
            own=collections.OrderedDict(
                user=chunk["user"],
                descriptor=descriptor_update,
                loss=tf.math.divide_no_nan(sums["loss"], sums["examples"]),
            ),
        )

    own_type = train.type_signature.result.own

    @tff.tensorflow.computation
    def no_users() -> Any:
        return collections.OrderedDict(
            descriptors=tf.zeros(table_type.shape), loss=0.0, users=0.0
        )

    total_type = no_users.type_signature.result

    @tff.tensorflow.computation(total_type, own_type)
    def add_user(total: Any, own: Any) -> Any:
        return collections.OrderedDict(
            descriptors=tf.tensor_scatter_nd_add(
                total["descriptors"], own["user"][tf.newaxis], own["descriptor"]
            ),
            loss=total["loss"] + own["loss"],
            users=total["users"] + 1.0,
        )

    @tff.tensorflow.computation(phi_type, phi_type)
    def step_phi(phi: Any, mean: Any) -> Any:
        return [w - server_learning_rate * g for w, g in zip(phi, mean, strict=True)]

    @tff.tensorflow.computation(table_type, total_type)
    def step_descriptors(table: tf.Tensor, total: Any) -> Any:
        return collections.OrderedDict(
            descriptors=table - descriptor_learning_rate * total["descriptors"],
            loss=tf.math.divide_no_nan(total["loss"], total["users"]),
        )

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(data_type, tff.CLIENTS)
    )
    def next_fn(state: Any, data: Any) -> Any:
        own_rows = tff.federated_select(
            tff.federated_map(key_of, data),
            tff.federated_value(users, tff.SERVER),
            state.descriptors,
            row,
        )
        sent = tff.federated_broadcast(state.phi)
        trained = tff.federated_map(train, (sent, own_rows, data))
        mean = aggregator.next(state.aggregator, trained.phi, trained.weight)
        total = federated_total(no_users, add_user, trained.own)
        own = tff.federated_map(step_descriptors, (state.descriptors, total))
        new_state = tff.federated_zip(
            collections.OrderedDict(
                phi=tff.federated_map(step_phi, (state.phi, mean.result)),
                descriptors=own.descriptors,
                aggregator=mean.state,
            )
        )
        metrics = tff.federated_zip(
            collections.OrderedDict(aggregator=mean.measurements, train_loss=own.loss)
        )
        return tff.learning.templates.LearningProcessOutput(new_state, metrics)

    state_type = initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state: Any) -> Any:
        return collections.OrderedDict(
            phi=state["phi"], descriptors=state["descriptors"]
        )

    @tff.tensorflow.computation(state_type, new_weights.type_signature.result)
    def set_model_weights(state: Any, weights: Any) -> Any:
        return collections.OrderedDict(weights, aggregator=state["aggregator"])

    return tff.learning.templates.LearningProcess(
        initialize, next_fn, get_model_weights, set_model_weights
    )
