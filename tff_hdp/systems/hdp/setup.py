"""From settings and a federation to the process that trains it."""

import tensorflow as tf

from tff_hdp.clients import training
from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.client_work import (
    SGD_MOMENTUM,
    build_optimizer,
    model_fn_from_keras,
)
from tff_hdp.clients.stacked_model import StackedModel, is_supported
from tff_hdp.errors import ArgumentError
from tff_hdp.simulation.system import Process
from tff_hdp.systems.hdp.clients import (
    chunks_span_zones,
    single_clients,
    stacked_clients,
)
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.federation import Federation
from tff_hdp.systems.hdp.process import build_hdp
from tff_hdp.systems.hdp.round_data import Chunking
from tff_hdp.systems.secure_sums import SecureSums


def chunking(config: HdpConfig, federation: Federation) -> Chunking:
    """Which clients one TFF client trains.

    Raises:
      ArgumentError: If clients cannot be trained together and are to be.
    """
    model = federation.task.build_model()
    can_stack = config.client_optimizer in SGD_MOMENTUM and is_supported(model)
    if config.cohort_chunk and not can_stack:
        raise ArgumentError(
            "cohort_chunk",
            config.cohort_chunk,
            f"0 with model={federation.task.model_name} and "
            f"client_optimizer={config.client_optimizer}",
        )
    if not can_stack:
        return Chunking(0)
    stacked, clients = StackedModel(model), config.cohort_chunk
    if clients is None:
        clients = training.chunk_size(stacked, config.clients_per_round)
    return Chunking(clients, chunks_span_zones(federation.plan, stacked))


def build_process(
    config: HdpConfig, federation: Federation, *, stacked: bool
) -> Process:
    """The process of a federation's plan.

    Args:
      config: Optimizers, and how sums are secure.
      federation: Whose model and plan.
      stacked: Whether a TFF client is a chunk of clients.
    """
    task, plan = federation.task, federation.plan
    features = task.test_features
    # One step on the whole data at rate 1 makes the update the gradient.
    rate = 1.0 if config.algorithm == "fedsgd" else config.client_learning_rate
    if stacked:
        clients = stacked_clients(
            build_model=config.training_model(task),
            data_type=chunk_type(features.shape[1:], features.dtype),
            client_learning_rate=rate,
            client_momentum=SGD_MOMENTUM[config.client_optimizer],
        )
    else:
        spec = (
            tf.TensorSpec([None, *features.shape[1:]], features.dtype),
            tf.TensorSpec([None], tf.int32),
        )
        clients = single_clients(
            model_fn=model_fn_from_keras(config.training_model(task), spec),
            client_optimizer=build_optimizer(config.client_optimizer, rate),
        )
    secure_sums = None
    if plan.encoding is not None and config.runs_protocol:
        secure_sums = SecureSums(
            config.secure_aggregation_protocol, signed=config.parties_sign
        )
    return build_hdp(
        clients=clients,
        plan=plan,
        server_optimizer=build_optimizer(
            config.server_optimizer, config.server_learning_rate
        ),
        secure_sums=secure_sums,
    )
