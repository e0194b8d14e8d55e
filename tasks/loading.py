"""Turns a data set into a task: read it, split it over clients, add a model."""

import functools
import itertools
import os
from pathlib import Path

import numpy as np

from tasks import large
from tasks import partition as partitions
from tasks.dataset import Dataset, Examples, canonical_order
from tasks.models import TextArchitecture
from tasks.originals import UnavailableError
from tasks.task import ClientData, Task
from tff_hdp.errors import ArgumentError, check_count, require

DATA_DIR_VARIABLE = "TFF_HDP_DATA"


class DataNotFoundError(FileNotFoundError):
    """A data set's files are missing; the message says how to get them."""


def load_task(
    dataset: Dataset,
    *,
    model: str | None,
    data_dir: str | None,
    num_clients: int | None,
    partition: str | None,
    dirichlet_alpha: float | None,
    seed: int,
) -> Task:
    """See `tasks.load`, which looks the data set up by name."""
    seed = check_count("seed", seed)
    if num_clients is not None:
        num_clients = check_count("num_clients", num_clients, 1)
    model = _choice("model", model, tuple(dataset.models), dataset.name)
    partition = _choice("partition", partition, dataset.partitions, dataset.name)
    if partition == "dirichlet" and dirichlet_alpha is None:
        raise ArgumentError(
            "dirichlet_alpha", None, "a number >= 0.0001 with partition=dirichlet"
        )
    if partition != "dirichlet" and dirichlet_alpha is not None:
        raise ArgumentError(
            "dirichlet_alpha",
            dirichlet_alpha,
            f"nothing with partition={partition}, only with partition=dirichlet",
        )
    examples = _read(dataset, data_dir)
    if not isinstance(examples, Examples):
        found = f"a function that returns {type(examples).__name__}"
        allowed = "one that returns tasks.dataset.Examples"
        raise ArgumentError(f"{dataset.name}.read", found, allowed)
    architecture = dataset.models[model]
    examples.check(
        dataset.name,
        dataset.input_shape,
        dataset.num_classes,
        are_ids=isinstance(architecture, TextArchitecture),
    )
    train, partition_text = _split_over_clients(
        examples,
        partition=partition,
        num_clients=num_clients,
        default_num_clients=dataset.num_clients,
        dirichlet_alpha=dirichlet_alpha,
        seed=seed,
    )
    if dataset.mirrored:
        train, partition_text = _mirrored(train), f"{partition_text}, images mirrored"
    shape = dataset.model_shape
    values = {"max_value": dataset.max_value, "min_value": dataset.min_value}
    return Task(
        name=dataset.name,
        train=train,
        test_features=examples.test_features,
        test_labels=examples.test_labels.astype(np.int32),
        test_owners=_test_owners(examples, train.client_ids, partition),
        tests_are_dealt=partition != "writer" and examples.test_writers is not None,
        num_classes=dataset.num_classes,
        class_names=dataset.class_names,
        encoding=dataset.encoding,
        mirrored=dataset.mirrored,
        build_model=functools.partial(architecture.build, **shape, **values),
        model_name=model,
        description="\n".join(
            [
                f"Source: {examples.source}.",
                f"Split: {examples.split}; {len(examples.labels):,} training and "
                f"{len(examples.test_labels):,} test examples.",
                f"Partition: {partition_text}; {len(train.client_ids):,} clients of "
                f"{train.sizes.min()} to {train.sizes.max()} examples "
                f"(median {np.median(train.sizes):g}).",
                f"Model: {model}: {architecture.describe(**shape, **values)}.",
            ]
        ),
    )


def _choice(
    argument: str, value: str | None, allowed: tuple[str, ...], name: str
) -> str:
    if value is None:
        return allowed[0]
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(argument, value, f"{', '.join(allowed)} for task {name}")
    return value


def _read(dataset: Dataset, data_dir: str | None) -> Examples:
    if dataset.files is None:
        return dataset.read(None)
    folder = data_folder(dataset, data_dir)
    try:
        return dataset.read(folder)
    except UnavailableError as error:
        raise DataNotFoundError(
            f"task {dataset.name!r} has no data in {str(folder)!r}: {error}. "
            f"{dataset.files}"
        ) from error


def data_folder(dataset: Dataset, data_dir: str | None) -> Path:
    """The folder that a data set's files lie in.

    Args:
      dataset: One that has files.
      data_dir: As for `tasks.load`; `~` is the user's home.

    Raises:
      ArgumentError: If it is no path.
      DataNotFoundError: If none is given, or it is not there.
    """
    is_path = data_dir is None or isinstance(data_dir, str | os.PathLike)
    require(is_path, "data_dir", data_dir, "a folder's path, or None")
    given = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        raise DataNotFoundError(
            f"task {dataset.name!r} needs a folder with its data: set data_dir or "
            f"the environment variable {DATA_DIR_VARIABLE}. {dataset.files}"
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise DataNotFoundError(
            f"data_dir is {given!r}, which is not a folder. {dataset.files}"
        )
    return folder


def _split_over_clients(
    examples: Examples,
    *,
    partition: str,
    num_clients: int | None,
    default_num_clients: int,
    dirichlet_alpha: float | None,
    seed: int,
) -> tuple[ClientData, str]:
    """Returns the clients' examples and the partition in words."""
    order = canonical_order(examples.features, examples.labels, examples.writers)
    labels = examples.labels[order].astype(np.int32)
    rng = np.random.default_rng(seed)
    if partition == "writer":
        if examples.writers is None:
            raise ArgumentError("partition", partition, "one that needs no writers")
        ids, parts = partitions.by_writer(examples.writers[order], num_clients, rng)
        text = "one client per writer"
        if num_clients is not None:
            text += f", {num_clients} writers drawn with seed {seed}"
    else:
        count = default_num_clients if num_clients is None else num_clients
        if partition == "dirichlet":
            parts = partitions.dirichlet(labels, count, dirichlet_alpha, rng)
            text = f"Dirichlet by label, alpha {dirichlet_alpha:g}, seed {seed}"
        elif partition == "classes":
            parts = partitions.by_classes(labels, count, rng)
            text = f"{partitions.CLASSES_PER_CLIENT} classes a client, seed {seed}"
        elif partition == "iid":
            parts = partitions.iid(len(labels), count, rng)
            text = f"iid, seed {seed}"
        else:
            allowed = ", ".join(partitions.KINDS)
            raise ArgumentError("partition", partition, allowed)
        digits = len(str(count - 1))
        ids = tuple(f"client_{i:0{digits}d}" for i in range(count))
    rows = np.concatenate(parts)
    sizes = [len(part) for part in parts]
    train = ClientData(
        client_ids=ids,
        features=large.taken(examples.features, order[rows]),
        labels=labels[rows],
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
    return train, text


def _mirrored(train: ClientData) -> ClientData:
    """Every client's images, then the same seen in a mirror."""
    runs = list(itertools.pairwise(train.offsets))
    features = large.empty(
        (2 * len(train.features), *train.features.shape[1:]), train.features.dtype
    )
    for a, b in runs:
        features[2 * a : a + b] = train.features[a:b]
        features[a + b : 2 * b] = train.features[a:b, :, ::-1]
    return ClientData(
        client_ids=train.client_ids,
        features=features,
        labels=np.concatenate([train.labels[a:b] for a, b in runs for _ in range(2)]),
        offsets=2 * train.offsets,
    )


def _test_owners(
    examples: Examples, client_ids: tuple[str, ...], partition: str
) -> np.ndarray | None:
    if partition != "writer" or examples.test_writers is None:
        return None
    index = {client: i for i, client in enumerate(client_ids)}
    owners = [index.get(str(writer), -1) for writer in examples.test_writers]
    return np.array(owners, np.int32)
