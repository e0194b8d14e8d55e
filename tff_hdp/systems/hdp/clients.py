"""What clients do in a round of HDP: train, clip, perhaps noise or encode.

Two ways to train, each client alone or many in a stack, give the same contributions
to the zones' sums.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators import WEIGHT_TYPE
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.aggregators.zoned_model import is_zoned
from tff_hdp.clients.batches import check_data_type
from tff_hdp.clients.client_work import build_zoned_client_work
from tff_hdp.clients.contributions import (
    each_client,
    norms_decide,
    sent_apart,
    sum_by_norms,
    sum_one_by_one,
    zones_of,
)
from tff_hdp.clients.sgd import SgdRule
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import (
    one_by_one,
    profiles,
    train_metrics,
    train_one_by_one,
    train_stack,
)
from tff_hdp.errors import ArgumentError, check_makes_models, require
from tff_hdp.privacy.plan import NoisePlan

# From `mean.client_state`, the weights and the data, all at CLIENTS, to what each TFF
# client sends, at CLIENTS, and training metrics, at SERVER.
Train = Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients:
    """Clients of a learning process.

    Attributes:
      initial_weights: A `tff.Computation` without argument, to `ModelWeights`.
      data_type: Of a TFF client's data.
      bind: From a mean, the type of its `client_state`, and whether clients of a TFF
        client send apart, to a `Train`. A TFF client sends a pair of contribution
        and zones; apart, the vectors of its C clients are not in the contribution
        but beside the pair, as `contributions.sent_apart` has them.
    """

    initial_weights: tff.Computation
    data_type: tff.Type
    bind: Callable[[ZonedMean, tff.Type, bool], Train]


def single_clients(
    *,
    model_fn: Callable[[], tff.learning.models.VariableModel],
    client_optimizer: tff.learning.optimizers.Optimizer,
) -> Clients:
    """A TFF client for every client, of any model that TFF trains.

    With plain SGD on one full batch at rate 1 an update is a gradient, which is
    FedSGD.

    Args:
      model_fn: Returns a new `tff.learning.models.VariableModel`.
      client_optimizer: For local training.

    Returns:
      Clients whose data is the structure (examples: sequence of batches, profile:
      sequence of one `client_profile`).

    Raises:
      ArgumentError: If an argument is something else.
    """
    kinds = "a function to a new VariableModel of tff.learning, without a profile (of "
    kinds += "a Keras model: tff.learning.models.from_keras_model)"
    check_makes_models("model_fn", model_fn, kinds)
    is_optimizer = isinstance(client_optimizer, tff.learning.optimizers.Optimizer)
    allowed = "one of tff.learning.optimizers"
    require(is_optimizer, "client_optimizer", client_optimizer, allowed)

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        model = model_fn()
        is_one = isinstance(model, tff.learning.models.VariableModel)
        require(is_one, "model_fn", f"a function to a {type(model).__name__}", kinds)
        return tff.learning.models.ModelWeights.from_model(model)

    # Beside the examples comes one too; a model's would be trained as a weight.
    plain = not is_zoned(initial_weights.type_signature.result.trainable)
    require(plain, "model_fn", "one of zoned_model", kinds)
    work = build_zoned_client_work(
        tff.learning.templates.build_model_delta_client_work(
            model_fn,
            client_optimizer,
            client_weighting=tff.learning.ClientWeighting.UNIFORM,
        )
    )

    def bind(mean: ZonedMean, sent_type: tff.Type, apart: bool) -> Train:
        result_type = work.next.type_signature.result.result.member

        @tff.tensorflow.computation(sent_type, result_type.update, WEIGHT_TYPE)
        def contribute(sent: Any, update: Any, profile: Any) -> Any:
            profile = mean.seated(profile)
            contribution = mean.contribution(sent, update, profile)
            if not apart:
                return mean.sent_by_one(contribution, profile["zone"])
            one = tf.nest.map_structure(
                lambda t: t[tf.newaxis], (contribution, profile)
            )
            zones = zones_of(one[1])
            summed, shares = sent_apart(*one, zones)
            return (summed, zones), shares

        def train(sent: Any, weights: Any, data: Any) -> tuple[Any, Any]:
            output = work.next(work.initialize(), weights, data)
            result = output.result
            contributions = tff.federated_map(
                contribute, (sent, result.update, result.update_weight)
            )
            return contributions, output.measurements

        return train

    return Clients(
        initial_weights=initial_weights,
        data_type=work.next.type_signature.parameter[2].member,
        bind=bind,
    )


def chunks_span_zones(plan: NoisePlan, model: StackedModel) -> bool:
    """Whether chunks of `stacked_clients` had better be of clients of any zones.

    A zone costs such a chunk a sum, which is little where all its clients' updates are
    there at once, and as much as an update where they come one by one.
    """
    return norms_decide(plan, None) and not one_by_one(model)


def stacked_clients(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    client_learning_rate: float,
    client_momentum: float = 0.0,
) -> Clients:
    """A TFF client for a chunk of clients: the same rounds, faster.

    It trains all clients of the chunk by SGD, makes of each update what
    `single_clients` make of it, and passes their sum on.

    Args:
      build_model: Returns a new Keras model that `StackedModel` takes, to logits.
      data_type: `chunk_type` of the data.
      client_learning_rate: Of the clients' SGD.
      client_momentum: Of the clients' SGD.

    Raises:
      ArgumentError: If rate or momentum is out of range, the model has an unsupported
        layer, or another argument is something else.
    """
    try:
        rule = SgdRule(learning_rate=client_learning_rate, momentum=client_momentum)
    except ArgumentError as error:
        names = ("learning_rate", "momentum")
        raise error.renamed({name: f"client_{name}" for name in names}) from error
    check_data_type(data_type)
    stacked = StackedModel.built_by(build_model)

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        model = build_model()
        softmax = (tf.keras.activations.softmax, tf.nn.softmax)
        is_softmax = getattr(model.layers[-1], "activation", None) in softmax
        # Cross entropy takes the softmax itself.
        require(not is_softmax, "build_model", "ending in a softmax", "one to logits")
        return tff.learning.models.ModelWeights.from_model(model)

    weights_type = initial_weights.type_signature.result

    def bind(mean: ZonedMean, sent_type: tff.Type, apart: bool) -> Train:
        by_norms = norms_decide(mean.plan, mean.given_queries)
        add_up = sum_by_norms if by_norms else sum_one_by_one
        # One by one adds up over clients, of whom apart none may be lost.
        alone = one_by_one(stacked) and not apart

        @tff.tensorflow.computation(sent_type, weights_type, data_type)
        def train_chunk(sent: Any, weights: Any, data: tf.data.Dataset) -> Any:
            chunk = mean.seated(data.get_single_element())
            whose = profiles(chunk)
            zones = zones_of(whose)

            def contribute(updates: list[tf.Tensor], part: Any) -> Any:
                given = (mean, sent, updates, weights.trainable, profiles(part))
                return each_client(*given) if apart else add_up(*given, zones)

            given = (stacked, tf.nest.flatten(weights.trainable), chunk, rule)
            if alone:
                contribution, sums = train_one_by_one(*given, then=contribute)
            else:
                updates, sums = train_stack(*given)
                contribution = contribute(updates, chunk)
            if not apart:
                return (contribution, zones), sums
            summed, shares = sent_apart(contribution, whose, zones)
            return ((summed, zones), shares), sums

        def train(sent: Any, weights: Any, data: Any) -> tuple[Any, Any]:
            trained = tff.federated_map(train_chunk, (sent, weights, data))
            return trained[0], train_metrics(trained[1])

        return train

    return Clients(initial_weights=initial_weights, data_type=data_type, bind=bind)
