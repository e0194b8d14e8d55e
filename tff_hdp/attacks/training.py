"""HDP's own process on examples that an attacker chooses, round by round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp import runtime
from tff_hdp.attacks.setting import started
from tff_hdp.attacks.victims import Target
from tff_hdp.clients.batches import Participant, chunk_type, chunks, dataset_of_one
from tff_hdp.clients.client_work import build_optimizer
from tff_hdp.clients.training import chunk_size
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.systems.hdp.clients import chunks_span_zones, stacked_clients
from tff_hdp.systems.hdp.process import build_hdp

# A client's batch, features [B, ...] and labels [B]; None sends an update of zero, with
# the noise that it carries, as a client that is zeroed out does.
Batch = tuple[np.ndarray, np.ndarray] | None


class Training:
    """A federation that can be trained again and again from the target's weights."""

    def __init__(self, target: Target, plan: NoisePlan) -> None:
        runtime.set_context("in_process")
        self._target, self._plan = target, plan
        self._zone_of = np.repeat(np.arange(plan.num_zones), plan.zone_sizes)
        first = np.repeat(np.cumsum(plan.zone_sizes) - plan.zone_sizes, plan.zone_sizes)
        # The first of each zone noise, as a `Federation` and the bounds have it.
        place = np.arange(plan.num_clients) - first
        self._noising = place < np.take(plan.noise_carriers, self._zone_of)
        self._process = build_hdp(
            clients=stacked_clients(
                build_model=lambda: tf.keras.models.clone_model(target.keras_model),
                data_type=chunk_type(target.features.shape[1:], target.features.dtype),
                client_learning_rate=target.learning_rate,
            ),
            plan=plan,
            server_optimizer=build_optimizer("sgd", 1.0),
        )
        self.start = started(self._process, target)

    def round(
        self, state: Any, batches: Sequence[Batch], present: Sequence[bool]
    ) -> tuple[Any, list[np.ndarray]]:
        """A round with some of the clients.

        Args:
          state: At its beginning.
          batches: Of every client, zone by zone.
          present: Whether each takes part.

        Returns:
          The new state, and the weights that are released.
        """
        blank = self._target.features[:1], self._target.labels[:1]
        first = next((batch for batch in batches if batch is not None), blank)
        size, members = len(first[1]), []
        who = zip(batches, self._zone_of, self._noising, present, strict=True)
        for batch, zone, noises, is_here in who:
            row = np.arange(size, dtype=np.int32)
            if batch is None:
                row = np.full(size, -1, np.int32)
            if is_here:
                members.append(
                    Participant(
                        first if batch is None else batch,
                        np.tile(row, [self._target.local_steps, 1]),
                        carries_noise=bool(noises),
                        zone=int(zone),
                    )
                )
        at_once = chunk_size(self._target.model, len(batches))
        across = chunks_span_zones(self._plan, self._target.model)
        made = chunks(members, at_once, across_zones=across)
        data = list(map(dataset_of_one, made))
        state = self._process.next(state, data).state
        return state, list(self._process.get_model_weights(state).trainable)
