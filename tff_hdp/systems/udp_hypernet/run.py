"""UDP-Alg as the training loop runs it."""

import collections
import dataclasses
import functools
import math
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import personal
from tff_hdp.clients.batches import client_batches, make_order
from tff_hdp.privacy import (
    Clipping,
    NoisePlan,
    PoissonSampling,
    calibrate,
    configurations,
)
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import System, aggregate_columns, for_the_operator
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet import process as udp_hypernet
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.evaluation import UserTests
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.personal_model import LocalModel
from tff_hdp.topology import one_zone

NOTES = (
    "Epsilon is that of the hypernetwork phi. Descriptors are stepped with un-noised "
    "updates: toward the other users the whole is private (joint DP) as long as each "
    "stays with the server and its user; who sees one is promised nothing.",
    "The server sees every user's clipped update and descriptor: it is trusted.",
    for_the_operator(
        "accuracy, user_accuracy, loss, train_loss, clients, rejected and update_norm, "
        "and users.csv,"
    ),
    "The server draws the cohort and does not show it. One process plays all parties "
    "here, so this is assumed, not enforced.",
)


class UdpHypernet(System):
    """A hypernetwork that makes every user's model from the user's descriptor.

    Args:
      config: The run's settings.
      folder: Remembers what was drawn and calibrated.
    """

    def __init__(self, config: UdpHypernetConfig, folder: RunFolder) -> None:
        seed = folder.resolved["partition_seed"]
        self.config, self.task = config, config.load_task(seed)
        self.train, own_tests = personal.split(self.task, seed=seed)
        self.weights = _weights(config, self.train.sizes)
        self.plan = _plan(config, self.weights, folder.resolved.get("noise_multiplier"))
        self.zoning, self.sampling = one_zone(self.train.client_ids), self.plan
        features = self.train.features
        self.model = LocalModel.from_keras(
            self.task.build_model,
            (
                tf.TensorSpec([None, *features.shape[1:]], features.dtype),
                tf.TensorSpec([None], tf.int32),
            ),
        )
        self.hypernetwork = Hypernetwork(
            descriptor_dim=config.descriptor_dim,
            width=config.hidden_width,
            targets=self.model.shapes,
        )
        self.process = udp_hypernet.build_udp_hypernet(
            model=self.model,
            hypernetwork=self.hypernetwork,
            plan=self.plan,
            client_learning_rate=config.client_learning_rate,
            server_learning_rate=config.server_learning_rate,
            descriptor_learning_rate=config.descriptor_learning_rate,
        )
        self.tests = UserTests(
            task=self.task,
            own=own_tests,
            per_round=config.tests_per_user,
            seed=seed,
            model=self.model,
            hypernetwork=self.hypernetwork,
        )
        folder.resolve(
            noise_multiplier=self.plan.server_noise_multiplier or None,
            W=float(self.weights.sum()),
            hypernetwork_parameters=self.hypernetwork.num_parameters,
            task=self.task.description,
            own_tests=len(own_tests.labels),
        )

    def initial_weights(self) -> Any:
        """The hypernetwork's weights and every user's descriptor, drawn."""
        users = len(self.train.client_ids)
        return udp_hypernet.initial_weights(self.model, self.hypernetwork, users)

    def round_data(
        self, number: int, cohort: np.ndarray, rng: np.random.Generator
    ) -> list[Any]:
        """See base class."""
        del number
        data = []
        for user in cohort:
            features, labels = self.train.examples(user)
            order = _local_order(self.config, len(labels), rng)
            profile = udp_hypernet.user_profile(user=user, weight=self.weights[user])
            data.append(
                collections.OrderedDict(
                    examples=client_batches(features, labels, order), profile=profile
                )
            )
        return data

    def weights_of(self, state: Any) -> list[np.ndarray]:
        """See base class."""
        return [*state["phi"], state["descriptors"]]

    def measure(self, metrics: Any) -> dict[str, float]:
        """See base class."""
        loss = float(metrics["train_loss"])
        return {"train_loss": loss, **aggregate_columns(metrics["aggregator"])}

    def evaluate(self, state: Any) -> dict[str, float]:
        """See base class."""
        return self.tests.columns(state["phi"], state["descriptors"])

    def new_ledger(self) -> udp_alg.UdpLedger:
        """See base class."""
        return udp_alg.UdpLedger()

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        return NOTES

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Tests every user's model on all its tests, into users.csv."""
        models = (state["phi"], state["descriptors"])
        return self.tests.write(path / "users.csv", self.train, *models)


def _weights(config: UdpHypernetConfig, sizes: np.ndarray) -> np.ndarray:
    """w_u (Algorithm 1, line 3), float64 [users]."""
    if config.weighting == "uniform":
        return np.ones(len(sizes))
    return np.minimum(sizes / (config.example_cap or sizes.max()), 1.0)


def _plan(
    config: UdpHypernetConfig, weights: np.ndarray, noise_multiplier: float | None
) -> NoisePlan:
    """The plan; z is `noise_multiplier` where the folder remembers it."""
    users, q, S = len(weights), config.sampling_rate, config.clip_norm
    W = float(weights.sum())
    if config.privacy == "none":
        return configurations.none(
            zone_sizes=(users,),
            sampling=PoissonSampling((q,)),
            clipping=Clipping(source="no clipping"),
        )

    of_sigma = functools.partial(udp_alg.plan, users=users, q=q, S=S, W=W)

    def plan(z: float) -> NoisePlan:
        # Not by way of sigma and back: a resumed run must find the very same plan.
        return dataclasses.replace(of_sigma(sigma=1.0), server_noise_multiplier=z)

    if noise_multiplier is not None:
        return plan(noise_multiplier)
    if config.sigma is not None:
        return of_sigma(sigma=config.sigma)
    if config.noise_multiplier is not None:
        return plan(config.noise_multiplier)
    z = calibrate(
        plan,
        target_epsilon=config.target_epsilon,
        observer="released_model",
        rounds=config.rounds,
        delta=config.delta,
    )
    return plan(z)


def _local_order(
    config: UdpHypernetConfig, size: int, rng: np.random.Generator
) -> np.ndarray:
    """K batches of a user's examples, shuffled anew every pass over them."""
    batch_size = min(config.batch_size, size)
    passes = math.ceil(config.local_steps / math.ceil(size / batch_size))
    order = make_order(size, epochs=passes, batch_size=batch_size, rng=rng)
    return order[: config.local_steps]
