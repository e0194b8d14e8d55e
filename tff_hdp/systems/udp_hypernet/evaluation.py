"""Tests of users' models: on what, how, and what came of it in words."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from tasks.task import ClientData, Task
from tff_hdp.clients.updates import cross_entropy
from tff_hdp.files import write_text
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork

# How many examples of the common test set every user's model is tried on at the end.
COMMON_TESTS = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class PersonalTests:
    """Test examples stored together, a run of rows for every user.

    Attributes:
      features: [N, ...].
      labels: [N] int32.
      starts: [users] int64, where each user's rows begin.
      sizes: [users] int64, how many they are; users may share rows.
    """

    features: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def build_personal_evaluation(
    *,
    build_model: Callable[[], tf.keras.Model],
    hypernetwork: Hypernetwork,
    tests: PersonalTests,
) -> Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]:
    """Returns a function that tests every user's model on the user's rows.

    Args:
      build_model: Returns a new local model.
      hypernetwork: h.
      tests: Which rows are whose.

    Returns:
      A function from phi and the table of descriptors [users, descriptor_dim] to
      how many examples each user's model classifies rightly, int64 [users], and
      its summed cross-entropy in nats, float32 [users].
    """
    features, labels = tf.constant(tests.features), tf.constant(tests.labels)
    starts, sizes = tf.constant(tests.starts), tf.constant(tests.sizes)
    network = build_model()

    @tf.function(autograph=False)
    def test_all(phi: Any, descriptors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        @tf.autograph.experimental.do_not_convert
        def test_one(args: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
            descriptor, start, size = args
            theta = hypernetwork(phi, descriptor)
            for variable, value in zip(network.trainable_weights, theta, strict=True):
                variable.assign(value)
            logits = network(features[start : start + size], training=False)
            y = labels[start : start + size]
            hits = tf.equal(tf.argmax(logits, -1, tf.int32), y)
            losses = cross_entropy(y, logits)
            return tf.math.count_nonzero(hits), tf.reduce_sum(losses)

        return tf.map_fn(
            test_one,
            (descriptors, starts, sizes),
            fn_output_signature=(tf.int64, tf.float32),
            parallel_iterations=1,  # the users take turns in one model's variables
        )

    def evaluate(phi: Any, descriptors: Any) -> tuple[np.ndarray, np.ndarray]:
        right, loss = test_all(
            [tf.convert_to_tensor(p) for p in phi], tf.convert_to_tensor(descriptors)
        )
        return right.numpy(), loss.numpy()

    return evaluate


class UserTests:
    """Tests every user's model: each round on a sample, at the end on all.

    Args:
      task: Whose local model and common test set.
      own: Every user's own test examples.
      per_round: At most so many of a user's each round, the same ones; None is all.
      seed: Decides which.
      hypernetwork: h.
    """

    def __init__(
        self,
        *,
        task: Task,
        own: ClientData,
        per_round: int | None,
        seed: int,
        hypernetwork: Hypernetwork,
    ) -> None:
        self._task, self._own, self._seed = task, own, seed
        self._build: Callable[..., Any] = functools.partial(
            build_personal_evaluation,
            build_model=task.build_model,
            hypernetwork=hypernetwork,
        )
        self._sample = sample(own, per_round, seed)
        self._test_sample = self._build(tests=self._sample)

    def columns(self, phi: Any, descriptors: Any) -> dict[str, float]:
        """Columns of metrics.csv: accuracy and loss over all tests, and over users."""
        right, loss = self._test_sample(phi, descriptors)
        sizes = self._sample.sizes
        return {
            "accuracy": float(right.sum() / sizes.sum()),
            "user_accuracy": float(np.mean(right / sizes)),
            "loss": float(loss.sum() / sizes.sum()),
        }

    def write(
        self, path: pathlib.Path, train: ClientData, phi: Any, descriptors: Any
    ) -> str:
        """Writes a row a user into a CSV file and says what it holds.

        Where test examples belong to nobody, all models are tried on common ones too.
        """
        every = sample(self._own, None, self._seed)
        own = self._build(tests=every)(phi, descriptors)[0] / self._own.sizes
        columns = {
            "user": train.client_ids,
            "examples": train.sizes,
            "own_tests": self._own.sizes,
            "own_accuracy": own,
        }
        lines = [f"users' models on their own tests: {_spread(own)}"]
        if self._task.test_owners is None:
            tests = _common_tests(self._task, len(own))
            common = self._build(tests=tests)(phi, descriptors)[0] / tests.sizes
            columns |= {"common_tests": tests.sizes, "common_accuracy": common}
            lines.append(
                f"on {tests.sizes[0]} examples of the common test set: "
                f"{_spread(common)}"
            )
        write_text(path, pd.DataFrame(columns).to_csv(index=False))
        return "\n".join(lines)


def sample(own: ClientData, most: int | None, seed: int) -> PersonalTests:
    """At most `most` examples of every user, drawn once; None takes all."""
    rng = np.random.default_rng(seed)
    rows = [
        start + rng.permutation(size)[:most]
        for start, size in zip(own.offsets[:-1], own.sizes, strict=True)
    ]
    sizes = np.array([len(some) for some in rows])
    chosen = np.concatenate(rows)
    return PersonalTests(
        features=own.features[chosen],
        labels=own.labels[chosen],
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
    )


def _common_tests(task: Task, users: int) -> PersonalTests:
    """The first examples of the common test set, for every user the same."""
    count = min(COMMON_TESTS, len(task.test_labels))
    return PersonalTests(
        features=task.test_features[:count],
        labels=task.test_labels[:count],
        starts=np.zeros(users, np.int64),
        sizes=np.full(users, count, np.int64),
    )


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return (
        f"mean {np.mean(values):.4f}, quantiles 10 % {low:.4f}, 50 % {middle:.4f}, "
        f"90 % {high:.4f}"
    )
