"""Training tasks: a data set split over clients, and a model for it.

Importing this package imports neither TensorFlow nor any data set.
"""

import contextlib
import contextvars
import importlib
from collections.abc import Iterator

from tasks import (
    breast_cancer,
    celeba,
    cifar,
    coarse_mnist,
    digits,
    emnist,
    fashion_mnist,
    mnist,
    pages,
    rare_digit,
    shakespeare,
)
from tasks.dataset import Dataset
from tasks.loading import DATA_DIR_VARIABLE, DataNotFoundError, load_task
from tasks.task import ClientData, Task
from tff_hdp.errors import ArgumentError

TASKS: dict[str, Dataset] = {
    each.name: each
    for each in (
        digits.DIGITS,
        mnist.MNIST,
        rare_digit.RARE_DIGIT,
        coarse_mnist.COARSE_MNIST,
        emnist.EMNIST,
        emnist.FEMNIST,
        cifar.CIFAR10,
        cifar.CIFAR100,
        cifar.CIFAR10_MIRRORED,
        cifar.CIFAR100_MIRRORED,
        fashion_mnist.FASHION_MNIST,
        celeba.CELEBA,
        breast_cancer.BREAST_CANCER,
        pages.PAGES,
        shakespeare.SHAKESPEARE,
    )
}
MODELS: dict[str, tuple[str, ...]] = {
    name: tuple(each.models) for name, each in TASKS.items()
}
PARTITIONS: dict[str, tuple[str, ...]] = {
    name: each.partitions for name, each in TASKS.items()
}
# What was loaded, by arguments, while `kept` is entered.
_KEPT: contextvars.ContextVar[dict[str, Task] | None] = contextvars.ContextVar(
    "kept", default=None
)
# In words, what may be given for a task.
_ALLOWED = f"{', '.join(TASKS)}, or module:NAME of a tasks.Dataset of yours"


def find(name: str) -> Dataset:
    """A data set by its name.

    Args:
      name: One of `TASKS`, or `module:NAME` of a `Dataset` of one's own, in a module
        that can be imported. Nothing of the module is called but by its import.

    Raises:
      ArgumentError: If there is none of that name.
    """
    if not isinstance(name, str):
        raise ArgumentError("task", name, _ALLOWED)
    if name in TASKS:
        return TASKS[name]
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ArgumentError("task", name, _ALLOWED)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ArgumentError(
            "task", name, f"a module on the path (PYTHONPATH): {error}"
        ) from error
    except SyntaxError as error:
        raise ArgumentError("task", name, f"a module of Python: {error}") from error
    if not isinstance(found, Dataset):
        raise ArgumentError("task", name, f"a tasks.Dataset {attribute} in {module}")
    return found


def load(
    name: str,
    *,
    model: str | None = None,
    data_dir: str | None = None,
    num_clients: int | None = None,
    partition: str | None = None,
    dirichlet_alpha: float | None = None,
    seed: int = 0,
) -> Task:
    """Reads a data set, splits it over clients and pairs it with a model.

    The training/test split of a set is fixed; `seed` only decides which
    training example goes to which client. The result does not depend on where
    a set was read from, nor on the order of its examples there; only `description`
    says which of its files were.

    Args:
      name: As `tasks.find` takes it: a bundled set's, or module:NAME.
      model: One of `tasks.MODELS[name]`; the first if None.
      data_dir: Folder with the data set's files; the environment variable
        TFF_HDP_DATA if None. Sets that a dependency bundles need none.
      num_clients: How many clients; None is the task's own number. With
        partition "writer", that many writers drawn at random, and the
        examples of the others are left out.
      partition: One of `tasks.PARTITIONS[name]`; the first if None.
      dirichlet_alpha: Concentration of partition "dirichlet", which needs it;
        smaller is more skewed.
      seed: Seed of the partition.

    Returns:
      The task.

    Raises:
      ArgumentError: If an argument is not allowed.
      DataNotFoundError: If the data set is not there and cannot be fetched;
        says what to get, where to put it and what to use instead.
    """
    # As text: an argument of another kind may have no hash, and is refused below.
    asked = repr((name, model, data_dir, num_clients, partition, dirichlet_alpha, seed))
    kept = _KEPT.get()
    if kept is not None and asked in kept:
        return kept[asked]
    task = load_task(
        find(name),
        model=model,
        data_dir=data_dir,
        num_clients=num_clients,
        partition=partition,
        dirichlet_alpha=dirichlet_alpha,
        seed=seed,
    )
    if kept is not None:
        kept[asked] = task
    return task


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Has `load` read every task once only, for runs that are to be compared.

    Whoever asks again in this block, with the same arguments, gets the same object.
    """
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


__all__ = [
    "DATA_DIR_VARIABLE",
    "MODELS",
    "PARTITIONS",
    "TASKS",
    "ClientData",
    "DataNotFoundError",
    "Dataset",
    "Task",
    "find",
    "kept",
    "load",
]
