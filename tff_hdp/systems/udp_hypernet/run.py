"""UDP-Alg as the training loop runs it."""

import dataclasses
import functools
import math
import pathlib
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import tensorflow as tf

from tasks import personal
from tasks.task import ClientData, Task
from tff_hdp.clients.batches import make_chunk, make_order
from tff_hdp.privacy import (
    Clipping,
    NoisePlan,
    PoissonSampling,
    calibrate,
    configurations,
)
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.config import flag_error
from tff_hdp.simulation.loading import load_task
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import RoundInput, System
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet import process as udp_hypernet
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork
from tff_hdp.systems.udp_hypernet.personal_model import (
    PersonalTests,
    build_personal_evaluation,
)
from tff_hdp.topology import Zoning

NOTES = (
    "Epsilon is that of the hypernetwork phi. Descriptors are stepped with un-noised "
    "updates: toward the other users the whole is private (joint DP) as long as each "
    "stays with the server and its user; who sees one is promised nothing.",
    "The server sees every user's clipped update and descriptor: it is trusted.",
    "accuracy, user_accuracy, loss, train_loss, clients, rejected and update_norm in "
    "metrics.csv, and users.csv, carry no noise: they are for the operator of the "
    "simulation, and releasing them would void the epsilons.",
    "The server draws the cohort and does not show it. One process plays all parties "
    "here, so this is assumed, not enforced.",
)
# How many examples of the common test set every user's model is tried on at the end.
COMMON_TESTS = 500


def build(config: UdpHypernetConfig, folder: RunFolder) -> System:
    """Builds UDP-Alg for the training loop.

    Args:
      config: The run's settings.
      folder: Remembers what was drawn and calibrated.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If the task's data is missing.
    """
    seed = folder.resolved["partition_seed"]
    task = load_task(config, seed)
    try:
        train, test = personal.split(task, seed=seed)
        weights = _weights(config, train.sizes)
        plan = _plan(config, weights, folder.resolved.get("noise_multiplier"))
    except ValueError as error:
        raise flag_error(error, config, f"--task is {config.task}") from error
    hypernetwork = Hypernetwork(
        descriptor_dim=config.descriptor_dim,
        width=config.hidden_width,
        targets=tuple(w.shape for w in task.build_model().trainable_weights),
    )
    folder.resolve(
        noise_multiplier=plan.server_noise_multiplier or None,
        W=float(weights.sum()),
        hypernetwork_parameters=hypernetwork.num_parameters,
        task=task.description,
        own_tests=len(test.labels),
    )
    process = udp_hypernet.build_udp_hypernet(
        build_model=task.build_model,
        data_type=udp_hypernet.user_type(
            train.features.shape[1:], train.features.dtype
        ),
        hypernetwork=hypernetwork,
        plan=plan,
        client_learning_rate=config.client_learning_rate,
        server_learning_rate=config.server_learning_rate,
        descriptor_learning_rate=config.descriptor_learning_rate,
    )
    test_users = functools.partial(
        build_personal_evaluation,
        build_model=task.build_model,
        hypernetwork=hypernetwork,
    )
    sample = _sample(test, config.tests_per_user, seed)
    test_sample = test_users(tests=sample)
    zoning = Zoning(train.client_ids, (0,) * len(train.client_ids))

    def prepare(entropy: int, number: int, carried: dict[str, Any]) -> RoundInput:
        sampler = CohortSampler(plan=plan, zoning=zoning, entropy=entropy)
        rng = sampler.generator(number, stream=1)
        data = []
        for user in sampler.draw(number):
            chunk = make_chunk(
                [train.examples(user)],
                [_local_order(config, int(train.sizes[user]), rng)],
                weights=[weights[user]],
                carries_noise=[False],
                zone=0,
            )
            chunk["user"] = np.array([user], np.int32)
            data.append(tf.data.Dataset.from_tensors(chunk))
        return RoundInput(data, carried)

    def initial_state(seed: int | None) -> Any:
        if seed is not None:
            tf.keras.utils.set_random_seed(seed)
        drawn = udp_hypernet.initial_weights(
            task.build_model, hypernetwork, len(train.client_ids)
        )
        if seed is not None:
            # Graphs traced from here on must not inherit the seed: they draw noise.
            tf.random.set_seed(None)
        drawn = tf.nest.map_structure(lambda t: t.numpy(), drawn)
        return process.set_model_weights(process.initialize(), drawn)

    def record(ledger: udp_alg.UdpLedger, metrics: Any, count: int) -> None:
        if not plan.is_noisy:
            return
        events = None
        if metrics is not None:
            emitted = metrics["aggregator"]["events"]["server"]
            events = {"server": dp_accounting.DpEvent.from_named_tuple(emitted)}
        ledger.record(plan, count, events=events)

    def evaluate(state: Any) -> dict[str, float]:
        right, loss = test_sample(state["phi"], state["descriptors"])
        return {
            "accuracy": float(right.sum() / sample.sizes.sum()),
            "user_accuracy": float(np.mean(right / sample.sizes)),
            "loss": float(loss.sum() / sample.sizes.sum()),
        }

    def finish(path: pathlib.Path, state: Any) -> str:
        every = _sample(test, None, seed)
        right, _ = test_users(tests=every)(state["phi"], state["descriptors"])
        own = right / test.sizes
        columns = {
            "user": train.client_ids,
            "examples": train.sizes,
            "own_tests": test.sizes,
            "own_accuracy": own,
        }
        lines = [f"users' models on their own tests: {_spread(own)}"]
        if task.test_owners is None:
            tests = _common_tests(task, len(own))
            right, _ = test_users(tests=tests)(state["phi"], state["descriptors"])
            common = right / tests.sizes
            columns |= {"common_tests": tests.sizes, "common_accuracy": common}
            lines.append(
                f"on {tests.sizes[0]} examples of the common test set: "
                f"{_spread(common)}"
            )
        pd.DataFrame(columns).to_csv(path / "users.csv", index=False)
        return "\n".join(lines)

    return System(
        process=process,
        initial_state=initial_state,
        prepare=prepare,
        new_ledger=udp_alg.UdpLedger,
        record=record,
        weights_of=lambda state: [*state["phi"], state["descriptors"]],
        evaluate=evaluate,
        measure=_measure,
        notes=_notes(plan),
        finish=finish,
    )


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


def _sample(test: ClientData, most: int | None, seed: int) -> PersonalTests:
    """At most `most` examples of every user, drawn once; None takes all."""
    rng = np.random.default_rng(seed)
    rows = [
        start + rng.permutation(size)[:most]
        for start, size in zip(test.offsets, test.sizes, strict=False)
    ]
    sizes = np.array([len(own) for own in rows])
    chosen = np.concatenate(rows)
    return PersonalTests(
        features=test.features[chosen],
        labels=test.labels[chosen],
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


def _measure(metrics: Any) -> dict[str, float]:
    measured = metrics["aggregator"]
    return {
        "train_loss": float(metrics["train_loss"]),
        "clients": int(np.sum(measured["clients"])),
        "rejected": int(measured["rejected"]),
        "update_norm": float(measured["update_norm"]),
        "clip_norm": float(measured["clip_norm"]),
    }


def _notes(plan: NoisePlan) -> tuple[str, ...]:
    if not plan.is_noisy:
        return ("No noise was added: no observer is promised anything.",)
    return NOTES


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return (
        f"mean {np.mean(values):.4f}, quantiles 10 % {low:.4f}, 50 % {middle:.4f}, "
        f"90 % {high:.4f}"
    )
