"""Every client's own test examples, for systems that personalise."""

import numpy as np

from tasks import large
from tasks.dataset import TEST_SHARE
from tasks.task import ClientData, Task
from tff_hdp.errors import ArgumentError


def split(task: Task, *, seed: int) -> tuple[ClientData, ClientData]:
    """Each client's examples for training and for testing.

    Where the data set was split within clients, the two parts are the set's own.
    Elsewhere a fifth of each client's training examples, at least one, is held
    out at random, and the task's common test set is left alone. Of images that are
    mirrored too, a fifth of the images is: as they are, and without their mirror
    images, which are for neither.

    Args:
      task: Whose clients.
      seed: Decides what is held out.

    Returns:
      Training and test examples of the same clients in the same order.

    Raises:
      ArgumentError: If a client would be left without one or the other.
    """
    if task.test_owners is not None:
        without = set(range(len(task.train.client_ids))) - set(task.test_owners)
        if without:
            client = task.train.client_ids[min(without)]
            found = f"without client {client!r}"
            allowed = "one or more test examples of every client"
            raise ArgumentError("test_writers", found, allowed)
        test = _by_owner(
            task.train.client_ids,
            task.test_features,
            task.test_labels,
            task.test_owners,
        )
        return task.train, test
    train = task.train
    images = train.sizes // 2 if task.mirrored else train.sizes
    if images.min() < 2:
        client = train.client_ids[int(images.argmin())]
        raise ArgumentError(
            "num_clients",
            len(train.client_ids),
            f"fewer: client {client!r} has one example, and needs two, one to train on "
            "and one to test on",
        )
    rng = np.random.default_rng(seed)
    held_out, kept = np.zeros(len(train.labels), bool), np.ones(len(train.labels), bool)
    for start, size in zip(train.offsets[:-1], images, strict=True):
        count = max(1, round(TEST_SHARE * size))
        chosen = start + rng.permutation(size)[:count]
        held_out[chosen] = True
        kept[chosen] = False
        if task.mirrored:
            kept[chosen + size] = False
    owners = np.repeat(np.arange(len(train.client_ids)), train.sizes)
    parts = (
        _by_owner(
            *(train.client_ids, train.features, train.labels),
            np.where(chosen, owners, -1),
        )
        for chosen in (kept, held_out)
    )
    return tuple(parts)


def own_tests(task: Task) -> ClientData | None:
    """The test examples of those clients that have any, in the clients' order.

    None where the task's test examples are of no client.

    Args:
      task: Whose test set, and whose clients.
    """
    owners, ids = task.test_owners, task.train.client_ids
    if owners is None or not np.any(owners >= 0):
        return None
    who = np.unique(owners[owners >= 0])
    return _by_owner(
        *(tuple(ids[i] for i in who), task.test_features, task.test_labels),
        np.where(owners >= 0, np.searchsorted(who, owners), -1),
    )


def _by_owner(
    client_ids: tuple[str, ...],
    features: np.ndarray,
    labels: np.ndarray,
    owners: np.ndarray,
) -> ClientData:
    """Groups examples by client; those of no client (-1) are left out."""
    order = np.argsort(owners, kind="stable")
    order = order[owners[order] >= 0]
    sizes = np.bincount(owners[order], minlength=len(client_ids))
    return ClientData(
        client_ids=client_ids,
        features=large.taken(features, order),
        labels=labels[order],
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
