"""This project's HDP, clients trained in stacks."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import works
from programs import tensorflow_model
from serving import Federation, read_spec, serve

from tff_hdp.clients.batches import chunk_type, make_chunk
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.clients.training import chunk_size
from tff_hdp.privacy import Clipping, FullParticipation, NoisePlan
from tff_hdp.privacy.configurations import CONFIGURATIONS
from tff_hdp.systems.hdp.clients import stacked_clients
from tff_hdp.systems.hdp.process import build_hdp


def noise_plan(work: works.Work, privacy: str, noise_multiplier: float) -> NoisePlan:
    """All of the work's clients every round, in equal zones."""
    options = {} if privacy == "none" else {"noise_multiplier": noise_multiplier}
    return CONFIGURATIONS[privacy](
        zone_sizes=(work.clients // work.zones,) * work.zones,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=work.clip_norm),
        **options,
    )


def federation(
    work: works.Work, plan: NoisePlan, data: Sequence[tf.data.Dataset]
) -> tensorflow_model.ProcessFederation:
    """The work's process, over `make_data` of its clients."""
    process = build_hdp(
        clients=stacked_clients(
            build_model=lambda: tensorflow_model.build_model(work),
            data_type=chunk_type(work.input_shape, np.float32),
            client_learning_rate=work.learning_rate,
        ),
        plan=plan,
        server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
    )
    return tensorflow_model.ProcessFederation(process, work, data)


def clients_at_once(work: works.Work) -> int:
    """How many clients one stack is of, as `scripts/train.py` has it."""
    model = StackedModel.built_by(lambda: tensorflow_model.build_model(work))
    return chunk_size(model, work.clients, work.epochs * work.examples)


def make_data(
    work: works.Work, plan: NoisePlan, clients: Sequence[int]
) -> tf.data.Dataset:
    """Some clients, to be trained as one stack."""
    count = len(clients)
    zones = [client % plan.num_zones for client in clients]
    order = np.tile(np.arange(work.examples, dtype=np.int32), work.epochs)
    return tf.data.Dataset.from_tensors(
        make_chunk(
            [works.client_examples(work, client) for client in clients],
            [order.reshape(work.steps, work.batch_size)] * count,
            weights=[1.0] * count,
            carries_noise=[plan.noising_clients[zone] > 0 for zone in zones],
            zone=zones,
        )
    )


def _stacked(
    work: works.Work, plan: NoisePlan, chunk: int
) -> tensorflow_model.ProcessFederation:
    clients = sorted(range(work.clients), key=lambda client: client % work.zones)
    starts = range(0, work.clients, chunk)
    data = [make_data(work, plan, clients[at : at + chunk]) for at in starts]
    return federation(work, plan, data)


def builder(spec: dict[str, Any]) -> Callable[..., Federation]:
    """Installs the spec's runtime; returns how to build the spec's process."""
    work = spec["work"]
    tensorflow_model.install_runtime(spec)

    def build(
        *, noise_multiplier: float, privacy: str = "cdp", clients: int = work.clients
    ) -> Federation:
        cohort = dataclasses.replace(work, clients=clients)
        plan = noise_plan(cohort, privacy, noise_multiplier)
        return _stacked(cohort, plan, clients_at_once(cohort))

    return build


if __name__ == "__main__":
    options = read_spec()
    serve(builder(options), options["replies"])
