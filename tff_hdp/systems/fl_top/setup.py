"""What FL-TOP fixes before round 1: public data, w_0, the Top-K weights, S."""

import dataclasses
import hashlib
import pathlib

import numpy as np
import tensorflow as tf

import tasks
from tasks import large
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.errors import ArgumentError, FileError, require
from tff_hdp.files import read_arrays, write_arrays
from tff_hdp.simulation.classifier import seeded
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.fl_top.compressed_sensing import (
    CompressedSensing,
    largest_coefficients,
)
from tff_hdp.systems.fl_top.compressors import (
    Compressor,
    FixedSubset,
    Identity,
    RandomSubset,
)
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.public import (
    PublicRound,
    accumulated_gradients,
    subset_size,
    top_k,
)

SETUP_FILE = "setup.npz"
# Streams of the public randomness that the partition seed gives.
_BATCH, _SUBSETS, _ORDER = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class PublicBatch:
    """The examples the server has of its own.

    Attributes:
      features: [m, ...] uint8.
      labels: [m] int32.
      source: Where they come from, in words.
    """

    features: np.ndarray
    labels: np.ndarray
    source: str


def load_with_public(
    config: FlTopConfig, partition_seed: int
) -> tuple[tasks.Task, PublicBatch]:
    """The task, without those of its clients whose examples are the public ones.

    Args:
      config: The run's settings.
      partition_seed: Decides whose examples are whose, and which are public.

    Raises:
      ArgumentError: If a flag does not fit the task.
      DataNotFoundError: If data is missing; says what to get.
    """
    task = config.load_task(partition_seed)
    rng = _public_rng(partition_seed, _BATCH)
    if config.public_data == "held_out":
        return _hold_out(config, task, rng)
    mnist = tasks.load(
        "mnist", data_dir=config.data_dir, partition="iid", num_clients=1
    )
    most, asked = len(mnist.train.labels), config.public_examples
    require(asked <= most, "public_examples", asked, f"at most {most}, MNIST's images")
    rows = rng.choice(most, asked, replace=False)
    return task, PublicBatch(
        features=mnist.train.features[rows],
        labels=mnist.train.labels[rows],
        source=f"{len(rows)} images of MNIST",
    )


def set_up(
    config: FlTopConfig, task: tasks.Task, public: PublicBatch, folder: RunFolder
) -> tuple[list[np.ndarray], Compressor]:
    """Draws and computes the set-up, or reads what the run was started with.

    Args:
      config: The run's settings.
      task: The loaded task.
      public: The server's examples.
      folder: Remembers w_0, the scores and S (`clip_norm`).

    Returns:
      What all parties know before round 1, besides the program: w_0 per weight, in
      Keras' order, and what clients train and exchange.

    Raises:
      ArgumentError: If r leaves no weight, or the gradients on public data explode.
      FileError: If the file of the set-up is not the one the run began with.
    """
    with seeded(config.seed):
        model = task.build_model()
    shapes = [w.shape for w in model.trainable_weights]
    path = folder.path / SETUP_FILE
    if "clip_norm" not in folder.resolved:
        initial = [w.numpy() for w in model.trainable_weights]
        try:
            scores = accumulated_gradients(
                model,
                initial,
                public.features,
                public.labels,
                steps=config.selection_steps,
                learning_rate=config.client_learning_rate,
            )
        except FloatingPointError as error:
            raise ArgumentError(
                "client_learning_rate", config.client_learning_rate, f"less: {error}"
            ) from error
        arrays = {"initial": join(initial).numpy(), "scores": scores}
        if config.coefficients == "largest":
            arrays["coefficients"] = _largest(config, model, initial, public, folder)
        write_arrays(path, durable=True, **arrays)
        folder.resolve(setup=_digest(path))
    if _digest(path) != folder.resolved["setup"]:
        raise FileError(path, "is not the set-up that the run began with")
    flat, scores = read_setup(folder.path)
    initial = [w.numpy() for w in split(flat, shapes)]
    compressor = _compressor(config, flat, scores, folder)
    if "clip_norm" not in folder.resolved:
        norm = config.clip_norm if config.is_private else None
        if norm == "auto":
            one_round = _public_round(config, model, initial, public, folder)
            norm = one_round.clip_norm(compressor)
        folder.resolve(clip_norm=norm)
    return initial, compressor


def read_setup(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """w_0 and the scores, each [n], of a run folder.

    Raises:
      FileError: If the file holds none.
    """
    initial, scores = read_arrays(path / SETUP_FILE, "initial", "scores")
    return initial, scores


def _digest(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _public_rng(partition_seed: int, stream: int) -> np.random.Generator:
    seed = np.random.SeedSequence(partition_seed, spawn_key=(stream,))
    return np.random.default_rng(seed)


def _hold_out(
    config: FlTopConfig, task: tasks.Task, rng: np.random.Generator
) -> tuple[tasks.Task, PublicBatch]:
    train = task.train
    order = rng.permutation(len(train.client_ids))
    most = len(train.labels) - train.sizes[order[-1]]
    allowed = f"at most {most} with task={task.name}, so that a client is left"
    asked = config.public_examples
    require(asked <= most, "public_examples", asked, allowed)
    needed = np.searchsorted(np.cumsum(train.sizes[order]), asked) + 1
    given = [train.examples(client) for client in order[:needed]]
    kept = np.sort(order[needed:])
    begins, ends = train.offsets[kept], train.offsets[kept + 1]
    rows = np.concatenate(list(map(np.arange, begins, ends)))
    clients = tasks.ClientData(
        client_ids=tuple(train.client_ids[i] for i in kept),
        features=large.taken(train.features, rows),
        labels=train.labels[rows],
        offsets=np.concatenate([[0], np.cumsum(train.sizes[kept])]),
    )
    public = PublicBatch(
        features=np.concatenate([x for x, _ in given])[: config.public_examples],
        labels=np.concatenate([y for _, y in given])[: config.public_examples],
        source=(
            f"{config.public_examples} examples of {needed} clients, who give them to "
            "the public and do not take part"
        ),
    )
    place = np.full(len(order), -1, np.int32)
    place[kept] = np.arange(len(kept))
    owners = task.test_owners
    if owners is not None:
        owners = np.where(owners >= 0, place[owners], -1).astype(np.int32)
    return dataclasses.replace(task, train=clients, test_owners=owners), public


def _compressor(
    config: FlTopConfig, initial: np.ndarray, scores: np.ndarray, folder: RunFolder
) -> Compressor:
    n = len(initial)
    size = subset_size(config.ratio, n)
    partition_seed = folder.resolved["partition_seed"]
    seed = int(_public_rng(partition_seed, _SUBSETS).integers(2**31))
    if config.compression == "fl_std":
        return Identity(n)
    if config.compression == "fl_basic":
        return RandomSubset(n, size, seed)
    if config.compression == "fl_cs":
        coefficients = None
        if config.coefficients == "largest":
            (coefficients,) = read_arrays(folder.path / SETUP_FILE, "coefficients")
        return CompressedSensing(
            n,
            size,
            seed,
            iterations=config.recovery_iterations,
            coefficients=coefficients,
        )
    return FixedSubset(initial, top_k(scores, size))


def _largest(
    config: FlTopConfig,
    model: tf.keras.Model,
    initial: list[np.ndarray],
    public: PublicBatch,
    folder: RunFolder,
) -> np.ndarray:
    """The K cosine coefficients that are largest in a round's update on public data."""
    n = sum(weight.size for weight in initial)
    one_round = _public_round(config, model, initial, public, folder)
    (update,) = one_round.sent(Identity(n))
    return largest_coefficients(update, subset_size(config.ratio, n))


def _public_round(
    config: FlTopConfig,
    model: tf.keras.Model,
    initial: list[np.ndarray],
    public: PublicBatch,
    folder: RunFolder,
) -> PublicRound:
    return PublicRound(
        model=model,
        initial=initial,
        features=public.features,
        labels=public.labels,
        epochs=config.local_epochs,
        batch_size=min(config.batch_size, len(public.labels)),
        learning_rate=config.client_learning_rate,
        rng=_public_rng(folder.resolved["partition_seed"], _ORDER),
    )
