"""UDP-Alg as the training loop runs it."""

import functools
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import ClientData, personal
from tff_hdp.aggregators import round_events
from tff_hdp.clients.batches import (
    dataset_of_one,
    example_weights,
    make_chunk,
    order_of_steps,
)
from tff_hdp.files import read_arrays
from tff_hdp.simulation.classifier import Classify, classes, load_keras
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import (
    Process,
    RngOf,
    System,
    aggregate_columns,
    for_the_operator,
)
from tff_hdp.systems.udp_hypernet import process as udp_hypernet
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.evaluation import UserTests
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.setup import build_plan, evenly, users_at_once
from tff_hdp.topology import one_zone

_STEPPED = (
    "Epsilon is that of the hypernetwork phi. Descriptors are stepped with un-noised "
    "updates: toward the other users the whole is private (joint DP) as long as each "
    "stays with the server and its user; who sees one is promised nothing."
)
_AS_DRAWN = (
    "Epsilon is that of the hypernetwork phi, and of descriptors and users' models "
    "too: descriptors stay as they were drawn, before any data."
)
NOTES = (
    "The server sees every user's clipped update and descriptor: it is trusted.",
    for_the_operator(
        "accuracy, user_accuracy, loss, train_loss, clients, rejected and update_norm",
        ", and users.csv,",
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

    is_personal = True

    def __init__(self, config: UdpHypernetConfig, folder: RunFolder) -> None:
        self._seed = seed = folder.resolved["partition_seed"]
        self.config, self.task = config, config.load_task(seed)
        self.train, self._own_tests = personal.split(self.task, seed=seed)
        sizes, cap = self.train.sizes, config.example_cap
        # Algorithm 1, line 3.
        self.weights = example_weights(config.weighting, sizes, cap)
        self.plan = build_plan(
            config, self.weights, folder.resolved.get("noise_multiplier")
        )
        self.zoning, self.sampling = one_zone(self.train.client_ids), self.plan
        self.hypernetwork = Hypernetwork(
            descriptor_dim=config.descriptor_dim,
            width=config.hidden_width,
            targets=tuple(w.shape for w in self.task.model.trainable_weights),
        )
        expected = config.sampling_rate * len(self.train.client_ids)
        self.users_at_once = users_at_once(expected)
        folder.resolve(
            noise_multiplier=self.plan.server_noise_multiplier or None,
            W=float(self.weights.sum()),
            hypernetwork_parameters=self.hypernetwork.num_parameters,
            task=self.task.description,
            own_tests=len(self._own_tests.labels),
        )

    @functools.cached_property
    def process(self) -> Process:
        """See base class."""
        config = self.config
        return udp_hypernet.build_udp_hypernet(
            build_model=config.training_model(self.task),
            data_type=udp_hypernet.user_type(*self.train.feature_spec),
            hypernetwork=self.hypernetwork,
            plan=self.plan,
            client_learning_rate=config.client_learning_rate,
            server_learning_rate=config.server_learning_rate,
            descriptor_learning_rate=config.descriptor_learning_rate,
            users_at_once=self.users_at_once,
        )

    @functools.cached_property
    def tests(self) -> UserTests:
        """What tests users' models; layers made before `process` would not work."""
        return UserTests(
            task=self.task,
            own=self._own_tests,
            per_round=self.config.tests_per_user,
            seed=self._seed,
            hypernetwork=self.hypernetwork,
        )

    def initial_weights(self) -> Any:
        """The hypernetwork's weights and every user's descriptor, drawn."""
        return udp_hypernet.initial_weights(
            self.task.build_model, self.hypernetwork, len(self.train.client_ids)
        )

    def round_data(
        self, number: int, cohort: np.ndarray, rng_of: RngOf
    ) -> list[tf.data.Dataset]:
        """See base class."""
        del number
        steps, batch_size = self.config.local_steps, self.config.batch_size
        data = []
        for users in evenly(cohort, self.users_at_once):
            sizes = self.train.sizes[users].tolist()
            chunk = make_chunk(
                [self.train.examples(user) for user in users],
                [
                    order_of_steps(
                        size,
                        steps=steps,
                        batch_size=min(batch_size, size),
                        rng=rng_of(user),
                    )
                    for user, size in zip(users, sizes, strict=True)
                ],
                weights=self.weights[users],
                carries_noise=[False] * len(users),
                zone=0,
            )
            chunk["user"] = users.astype(np.int32)
            data.append(dataset_of_one(chunk))
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

    def released(self, state: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """The hypernetwork's weights, and every user's descriptor."""
        return list(state["phi"]), state["descriptors"]

    def save_model(self, released: Any, path: pathlib.Path) -> None:
        """The hypernetwork, a blank local model, and descriptors, for the operator.

        A user's model is the local one with the weights that the hypernetwork makes of
        the user's descriptor; who sees a descriptor is promised nothing.
        """
        phi, descriptors = released
        self.hypernetwork.as_keras(phi).save(path / "hypernetwork.keras")
        self.task.build_model().save(path / "local_model.keras")
        users = np.array(self.train.client_ids)
        np.savez(path / "descriptors.npz", users=users, descriptors=descriptors)

    def load_model(self, path: pathlib.Path) -> Classify:
        """See base class. Every client's examples go to its own model."""
        network = load_keras(path / "hypernetwork.keras")
        model = load_keras(path / "local_model.keras")
        (descriptors,) = read_arrays(path / "descriptors.npz", "descriptors")

        def classify(features: np.ndarray, users: np.ndarray) -> np.ndarray:
            found = np.empty(len(features), np.int64)
            for user in np.unique(users):
                theta = network(descriptors[user : user + 1])
                model.set_weights([tensor[0] for tensor in theta])
                own = users == user
                found[own] = classes(model, features[own], self.task.num_classes)
            return found

        return classify

    @property
    def own_tests(self) -> ClientData:
        """See base class."""
        return self._own_tests

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """See base class."""
        return {"plan": self.plan, "events": round_events(metrics["aggregator"])}

    @property
    def published(self) -> tuple[str, ...]:
        """See base class: tests are users' own, of models that descriptors make."""
        return ()

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        stepped = self.config.descriptor_learning_rate > 0
        return (_STEPPED if stepped else _AS_DRAWN, *NOTES)

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Tests every user's model on all its tests, into users.csv."""
        models = (state["phi"], state["descriptors"])
        return self.tests.write(path / "users.csv", self.train, *models)
