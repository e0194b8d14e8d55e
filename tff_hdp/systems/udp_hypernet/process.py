"""UDP-Alg: personalised models from a hypernetwork trained with user-level DP.

Source: Nemala, Lai and Phan (CIKM 2023), Algorithm 1.

The sign used here: Delta theta_u = theta_u - theta~_u, initial minus trained, as
everywhere in TFF. It points up the loss, so phi and v_u are both stepped against
it, as the paper's lines 15 and 16 do. (Its line 11 has the opposite sign, with
which those lines would climb.)
"""

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.aggregators.levels import screen
from tff_hdp.aggregators.sums import federated_total
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.personal_model import LocalModel

PROFILE_TYPE = tff.to_type(
    collections.OrderedDict(user=np.int32, contribution=WEIGHT_TYPE)
)


def user_profile(*, user: int, weight: float) -> tf.data.Dataset:
    """Who a user is, as a data set of one element of `PROFILE_TYPE`.

    Args:
      user: The user's row in the table of descriptors.
      weight: w_u in (0, 1].
    """
    return tf.data.Dataset.from_tensors(
        collections.OrderedDict(
            user=tf.constant(user, tf.int32),
            contribution=collections.OrderedDict(
                weight=tf.constant(weight, tf.float32),
                zone=tf.constant(0, tf.int32),
                carries_noise=tf.constant(False),
            ),
        )
    )


def initial_weights(
    model: LocalModel, hypernetwork: Hypernetwork, users: int
) -> collections.OrderedDict[str, Any]:
    """Draws `phi` and the table of `descriptors` [users, descriptor_dim].

    Descriptors are standard normal. Works eagerly and within a TFF computation.
    """
    local = [tf.identity(w) for w in model.build_model().trainable_weights]
    return collections.OrderedDict(
        phi=hypernetwork.initial(local),
        descriptors=tf.random.normal([users, hypernetwork.descriptor_dim]),
    )


def build_udp_hypernet(
    *,
    model: LocalModel,
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
      model: The local model.
      hypernetwork: h, for the model's shapes.
      plan: One zone, over all users; who adds which noise.
      client_learning_rate: eta.
      server_learning_rate: lambda, of phi.
      descriptor_learning_rate: zeta, of v_u.

    Returns:
      A `LearningProcess`. Its state holds `phi` (a list of tensors),
      `descriptors` float32 [users, descriptor_dim] and `aggregator`; its model
      weights are the first two. Client data is the structure (examples: sequence
      of batches, profile: sequence of one `PROFILE_TYPE`).

    Raises:
      ValueError: If the plan has more than one zone or the hypernetwork's targets
        are not the model's shapes.
    """
    if plan.num_zones != 1:
        raise ValueError(f"plan.zone_sizes is {plan.zone_sizes}; allowed is one zone")
    if hypernetwork.targets != model.shapes:
        raise ValueError(
            f"hypernetwork.targets is {hypernetwork.targets}; the model's weights "
            f"have shapes {model.shapes}"
        )
    users = plan.num_clients
    phi_type = tff.to_type([(np.float32, shape) for shape in hypernetwork.shapes])
    vector_type = tff.TensorType(np.float32, [hypernetwork.descriptor_dim])
    table_type = tff.TensorType(np.float32, [users, hypernetwork.descriptor_dim])
    examples_type = tff.SequenceType(
        tff.types.tensorflow_to_type(model.functional.input_spec)
    )
    profile_type = tff.SequenceType(PROFILE_TYPE)
    aggregator = HierarchicalMeanFactory(plan).create(phi_type, WEIGHT_TYPE)

    @tff.tensorflow.computation
    def new_weights() -> Any:
        return initial_weights(model, hypernetwork, users)

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

    @tff.tensorflow.computation(profile_type)
    def key_of(profile: Any) -> tf.Tensor:
        return _only(profile)["user"][tf.newaxis]

    @tff.tensorflow.computation(table_type, np.int32)
    def row(table: tf.Tensor, user: tf.Tensor) -> tf.Tensor:
        return table[user]

    @tff.tensorflow.computation(
        phi_type, tff.SequenceType(vector_type), examples_type, profile_type
    )
    def train(phi: Any, own_row: Any, examples: Any, profile: Any) -> Any:
        phi, descriptor, who = list(phi), _only(own_row), _only(profile)
        theta = hypernetwork(phi, descriptor)
        trained, loss, batches = model.train(theta, examples, client_learning_rate)
        update = [a - b for a, b in zip(theta, trained, strict=True)]
        phi_update, descriptor_update = hypernetwork.pull_back(phi, descriptor, update)
        # A user whose training diverged keeps its descriptor.
        descriptor_update, _ = screen(descriptor_update)
        return collections.OrderedDict(
            phi=phi_update,
            weight=who["contribution"],
            own=collections.OrderedDict(
                user=who["user"],
                descriptor=descriptor_update,
                loss=tf.math.divide_no_nan(loss, batches),
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
                total["descriptors"], [[own["user"]]], [own["descriptor"]]
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

    data_type = tff.FederatedType(
        collections.OrderedDict(examples=examples_type, profile=profile_type),
        tff.CLIENTS,
    )

    @tff.federated_computation(initialize.type_signature.result, data_type)
    def next_fn(state: Any, data: Any) -> Any:
        own_rows = tff.federated_select(
            tff.federated_map(key_of, data.profile),
            tff.federated_value(users, tff.SERVER),
            state.descriptors,
            row,
        )
        sent = tff.federated_broadcast(state.phi)
        trained = tff.federated_map(
            train, (sent, own_rows, data.examples, data.profile)
        )
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


def _only(sequence: tf.data.Dataset) -> Any:
    """The single element of a TFF sequence."""
    blank = tf.nest.map_structure(
        lambda s: tf.zeros(s.shape, s.dtype), sequence.element_spec
    )
    return sequence.reduce(blank, lambda _, element: element)
