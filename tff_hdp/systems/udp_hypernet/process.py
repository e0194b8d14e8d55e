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

from tff_hdp.aggregators.secure_mean import build_mean
from tff_hdp.aggregators.sums import zone_sums
from tff_hdp.aggregators.totals import federated_total
from tff_hdp.clients.batches import check_data_type, chunk_type, seated
from tff_hdp.clients.contributions import (
    norms_decide,
    sum_by_norms,
    sum_one_by_one,
    zones_of,
)
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import profiles
from tff_hdp.clients.updates import OuterProducts
from tff_hdp.errors import check_count, check_nonnegative, check_positive, require
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.udp_hypernet.client_work import train_users
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork


def user_type(feature_shape: tuple[int, ...], dtype: Any) -> tff.SequenceType:
    """The type of some users' data: a sequence of one `make_chunk`, and `user`.

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.

    Returns:
      As `chunk_type`, and `user`, the users' rows in the table of descriptors,
      int32 [U].
    """
    fields = chunk_type(feature_shape, dtype).element._asdict()
    user = tff.TensorType(np.int32, [None])
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
    users_at_once: int = 1,
) -> tff.learning.templates.LearningProcess:
    """Builds the process of Algorithm 1.

    A round: every user of the cohort gets phi by broadcast and its own v_u, and
    no one else's, by `tff.federated_select` (for speed a TFF client may stand for
    several users); it makes theta_u = h(phi, v_u), trains it, and pulls Delta theta_u
    back to the coordinates of phi and v_u. The first goes through the plan's mean
    (clipped to S, weighted, summed, noised, divided by q W) and steps phi; zeta times
    the second is subtracted from the user's own row of the table of descriptors,
    without noise.

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
      descriptor_learning_rate: zeta, of v_u; at 0 they stay as drawn.
      users_at_once: How many users a TFF client may stand for.

    Returns:
      A `LearningProcess` whose TFF clients are some users each. Its state holds `phi`
      (a list of tensors), `descriptors` float32 [users, descriptor_dim] and
      `aggregator`; its model weights are the first two.

    Raises:
      ArgumentError: If the plan has more than one zone, the model an unsupported
        layer, the hypernetwork's targets are not the model's shapes, or an argument is
        out of range.
    """
    check_data_type(data_type)
    check_positive("client_learning_rate", client_learning_rate)
    check_positive("server_learning_rate", server_learning_rate)
    check_nonnegative("descriptor_learning_rate", descriptor_learning_rate)
    users_at_once = check_count("users_at_once", users_at_once, 1)
    model = StackedModel.built_by(build_model)
    _check_fit(model, hypernetwork, plan)
    users = plan.num_clients
    rule = SgdRule(learning_rate=client_learning_rate)
    phi_type = tff.to_type([(np.float32, shape) for shape in hypernetwork.shapes])
    vector_type = tff.TensorType(np.float32, [hypernetwork.descriptor_dim])
    table_type = tff.TensorType(np.float32, [users, hypernetwork.descriptor_dim])
    records = [tf.TensorSpec(shape, tf.float32) for shape in hypernetwork.shapes]
    mean = build_mean(plan, records)
    by_norms = norms_decide(plan, None)
    initial_state = tff.tensorflow.computation(mean.initial_state)
    mean_state_type = initial_state.type_signature.result

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
                aggregator=tff.federated_eval(initial_state, tff.SERVER),
            )
        )

    def known(data: tf.data.Dataset) -> Any:
        return mean.seated(seated(data.get_single_element(), "user", users))

    @tff.tensorflow.computation(data_type)
    def keys_of(data: tf.data.Dataset) -> tf.Tensor:
        return row_keys(known(data)["user"], users_at_once)

    @tff.tensorflow.computation(table_type, np.int32)
    def row(table: tf.Tensor, user: tf.Tensor) -> tf.Tensor:
        return table[user]

    @tff.tensorflow.computation(phi_type, mean_state_type)
    def message(phi: Any, state: Any) -> Any:
        return collections.OrderedDict(phi=phi, protocol=mean.client_state(state))

    message_type = message.type_signature.result

    @tff.tensorflow.computation(message_type, tff.SequenceType(vector_type), data_type)
    def train(sent: Any, own_rows: tf.data.Dataset, data: tf.data.Dataset) -> Any:
        """Lines 8-12."""
        chunk, phi = known(data), list(sent["phi"])
        rows = own_rows.batch(users_at_once).get_single_element()
        chunk["descriptor"] = rows[: tf.shape(chunk["user"])[0]]
        pulled, moved, losses = train_users(model, hypernetwork, phi, chunk, rule)
        whose, add_up = profiles(chunk), sum_by_norms
        if not by_norms:
            pulled, add_up = list(map(_formed, pulled)), sum_one_by_one
        zones = zones_of(whose)
        contribution = add_up(mean, sent["protocol"], pulled, phi, whose, zones)
        return (contribution, zones), collections.OrderedDict(
            user=_padded(chunk["user"], users_at_once),
            descriptor=_padded(moved, users_at_once),
            loss=tf.reduce_sum(losses),
            users=tf.cast(tf.shape(losses)[0], tf.float32),
        )

    own_type = train.type_signature.result[1]

    @tff.tensorflow.computation
    def no_users() -> Any:
        return collections.OrderedDict(
            descriptors=tf.zeros(table_type.shape), loss=0.0, users=0.0
        )

    total_type = no_users.type_signature.result

    @tff.tensorflow.computation(total_type, own_type)
    def add_users(total: Any, own: Any) -> Any:
        return collections.OrderedDict(
            descriptors=tf.tensor_scatter_nd_add(
                total["descriptors"], own["user"][:, tf.newaxis], own["descriptor"]
            ),
            loss=total["loss"] + own["loss"],
            users=total["users"] + own["users"],
        )

    @tff.tensorflow.computation
    def step_phi(phi: Any, state: Any, total: Any) -> Any:
        step, new_state, measurements = mean.release(state, total)
        pairs = zip(phi, step, strict=True)
        stepped = [w - server_learning_rate * g for w, g in pairs]
        return stepped, new_state, measurements

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
            tff.federated_map(keys_of, data),
            tff.federated_value(users, tff.SERVER),
            state.descriptors,
            row,
        )
        sent = tff.federated_broadcast(
            tff.federated_map(message, (state.phi, state.aggregator))
        )
        trained = tff.federated_map(train, (sent, own_rows, data))
        phi, mean_state, measurements = tff.federated_map(
            step_phi, (state.phi, state.aggregator, zone_sums(mean, trained[0]))
        )
        total = federated_total(no_users, add_users, trained[1])
        own = tff.federated_map(step_descriptors, (state.descriptors, total))
        new_state = tff.federated_zip(
            collections.OrderedDict(
                phi=phi, descriptors=own.descriptors, aggregator=mean_state
            )
        )
        metrics = tff.federated_zip(
            collections.OrderedDict(aggregator=measurements, train_loss=own.loss)
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


def _check_fit(
    model: StackedModel, hypernetwork: Hypernetwork, plan: NoisePlan
) -> None:
    require(isinstance(plan, NoisePlan), "plan", plan, "a NoisePlan")
    sizes = plan.zone_sizes
    require(plan.num_zones == 1, "plan.zone_sizes", sizes, "one zone")
    is_one = isinstance(hypernetwork, Hypernetwork)
    require(is_one, "hypernetwork", hypernetwork, "a Hypernetwork")
    targets, allowed = hypernetwork.targets, f"{model.shapes}, the shapes of the "
    allowed += "model's weights"
    fits = targets == model.shapes
    require(fits, "hypernetwork.targets", str(targets), allowed)


def row_keys(users: tf.Tensor, count: int) -> tf.Tensor:
    """Which rows of the table are sent for some users: no one else's.

    Args:
      users: int32 [U], U at least 1.
      count: How many rows are sent, U or more.

    Returns:
      int32 [count].
    """
    return _padded(users, count, users[0])


def _padded(of_users: tf.Tensor, count: int, rest_as: tf.Tensor | int = 0) -> tf.Tensor:
    """Of `count` users, another value after those that are."""
    rest = count - tf.shape(of_users)[0]
    said = tf.debugging.assert_non_negative(rest, "more users than users_at_once")
    with tf.control_dependencies([said]):
        rest = tf.identity(rest)
    paddings = [[0, rest], *[[0, 0]] * (of_users.shape.rank - 1)]
    filled = tf.pad(of_users, paddings, constant_values=rest_as)
    return tf.ensure_shape(filled, [count, *of_users.shape[1:]])


def _formed(updates: tf.Tensor | OuterProducts) -> tf.Tensor:
    return updates.formed() if isinstance(updates, OuterProducts) else updates
