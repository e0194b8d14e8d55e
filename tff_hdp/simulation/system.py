"""The learning process of a run, and how many clients it trains at once."""

import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.learning import stacked_work
from tff_hdp.learning.client_work import model_fn_from_keras
from tff_hdp.learning.hdp import build_hdp
from tff_hdp.learning.optimizers import SGD_MOMENTUM, build_optimizer
from tff_hdp.learning.stacked import is_supported
from tff_hdp.learning.stacked_hdp import build_stacked_hdp, chunk_type
from tff_hdp.simulation.config import ConfigError, TrainConfig
from tff_hdp.simulation.federation import Federation


@dataclasses.dataclass(frozen=True)
class System:
    """What runs a round.

    Attributes:
      process: The learning process.
      chunk_size: Clients of a zone per TFF client; 0 for one TFF client each.
    """

    process: tff.learning.templates.LearningProcess
    chunk_size: int


def build_system(config: TrainConfig, federation: Federation) -> System:
    """Builds the HDP process of a run.

    Raises:
      ConfigError: If `config.cohort_chunk` asks for stacks of a model or of an
        optimizer that cannot be stacked.
    """
    task = federation.task
    features = task.test_features
    # One step on the whole data at rate 1 makes the update the gradient.
    rate = 1.0 if config.algorithm == "fedsgd" else config.client_learning_rate
    server_optimizer = build_optimizer(
        config.server_optimizer, config.server_learning_rate
    )
    chunk_size = _chunk_size(config, federation)
    if chunk_size:
        process = build_stacked_hdp(
            build_model=task.build_model,
            data_type=chunk_type(features.shape[1:], features.dtype),
            plan=federation.plan,
            client_learning_rate=rate,
            client_momentum=SGD_MOMENTUM[config.client_optimizer],
            server_optimizer=server_optimizer,
        )
    else:
        spec = (
            tf.TensorSpec([None, *features.shape[1:]], features.dtype),
            tf.TensorSpec([None], tf.int32),
        )
        process = build_hdp(
            model_fn=model_fn_from_keras(task.build_model, spec),
            plan=federation.plan,
            client_optimizer=build_optimizer(config.client_optimizer, rate),
            server_optimizer=server_optimizer,
        )
    return System(process, chunk_size)


def _chunk_size(config: TrainConfig, federation: Federation) -> int:
    model = federation.task.build_model()
    can_stack = config.client_optimizer in SGD_MOMENTUM and is_supported(model)
    if config.cohort_chunk and not can_stack:
        raise ConfigError(
            f"--cohort_chunk is {config.cohort_chunk}; allowed: 0 with "
            f"--model={federation.task.model_name} and "
            f"--client_optimizer={config.client_optimizer}"
        )
    if config.cohort_chunk is not None:
        return config.cohort_chunk
    return stacked_work.chunk_size(model.count_params()) if can_stack else 0
