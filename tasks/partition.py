"""Ways to split examples over clients.

Each returns, per client, the rows that are its own. No row belongs to two
clients, and no client is without rows.
"""

import numpy as np

from tff_hdp.errors import ArgumentError, as_float, require

KINDS = ("iid", "dirichlet", "classes", "writer")
CLASSES_PER_CLIENT = 2
# Nearer to 0 draws take NumPy ever longer, and every client has one class anyway.
LEAST_ALPHA = 1e-4


def iid(
    num_examples: int, num_clients: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Splits rows uniformly at random into parts of (almost) one size.

    Args:
      num_examples: How many rows there are.
      num_clients: How many parts; their sizes differ by at most one.
      rng: Source of randomness.

    Returns:
      For each client, the int64 indices of its rows.

    Raises:
      ArgumentError: If a client would be empty.
    """
    _check_num_clients(num_clients, num_examples, "examples")
    return np.array_split(rng.permutation(num_examples), num_clients)


def dirichlet(
    labels: np.ndarray, num_clients: int, alpha: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Splits rows so that each client has its own mixture of classes.

    Client sizes are (almost) equal. Each client draws class proportions from
    Dirichlet(alpha * p), p the class frequencies of the whole set, and its rows
    from what is left of the classes in those proportions (Hsu et al. 2019,
    "Measuring the effects of non-identical data distribution for federated
    visual classification"). Classes run out, so the clients served last are
    nearer to p; the order in which clients are served is random.

    Args:
      labels: [N] integers, the class of each row.
      num_clients: How many parts; their sizes differ by at most one.
      alpha: Concentration >= 1e-4: small gives each client few classes, large
        approaches iid.
      rng: Source of randomness.

    Returns:
      For each client, the int64 indices of its rows.

    Raises:
      ArgumentError: If a client would be empty or alpha is out of range.
    """
    _check_num_clients(num_clients, len(labels), "examples")
    check_alpha(alpha)
    _, classes = np.unique(labels, return_inverse=True)
    left = np.bincount(classes)
    prior = left / left.sum()
    shuffled = rng.permutation(len(labels))
    stacks = [shuffled[classes[shuffled] == c] for c in range(len(left))]
    small, extra = divmod(len(labels), num_clients)
    parts: list[np.ndarray] = [np.empty(0, np.int64)] * num_clients
    for client in rng.permutation(num_clients):
        mixture = rng.dirichlet(alpha * prior)
        taken = _draw(mixture, left, small + (client < extra), rng)
        left = left - taken
        parts[client] = np.concatenate(
            [
                stack[remaining : remaining + count]
                for stack, remaining, count in zip(stacks, left, taken, strict=True)
            ]
        )
    return parts


def check_alpha(alpha: float) -> None:
    """Raises ArgumentError unless a `dirichlet` partition takes it."""
    allowed = f"a finite number >= {LEAST_ALPHA:g}"
    number = as_float("dirichlet_alpha", alpha, allowed)
    require(LEAST_ALPHA <= number < np.inf, "dirichlet_alpha", alpha, allowed)


def _draw(
    mixture: np.ndarray, left: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    """How many of `size` draws fall on each class, never more than are left."""
    taken = np.zeros_like(left)
    while (missing := size - taken.sum()) > 0:
        weights = mixture * (left > taken)
        if weights.sum() <= 0:
            weights = (left - taken).astype(float)
        # NumPy warns of sums near 1e-313; the shares are right.
        with np.errstate(over="ignore"):
            shares = weights / weights.sum()
        drawn = rng.multinomial(missing, shares)
        taken = np.minimum(taken + drawn, left)
    return taken


def by_classes(
    labels: np.ndarray, num_clients: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Gives each client some of the rows of two classes.

    Classes are dealt to clients in equal numbers, and the clients of a class
    share its rows in proportion to draws from U(0.4, 0.6): clients differ in their
    classes, in their proportions and in how much they have (Shamsian et al. 2021,
    "Personalized federated learning using hypernetworks", section 5).

    Args:
      labels: [N] integers, the class of each row.
      num_clients: How many parts.
      rng: Source of randomness.

    Returns:
      For each client, the int64 indices of its rows.

    Raises:
      ArgumentError: If there are fewer clients than classes, fewer classes than two,
        or a client would be empty.
    """
    classes = rng.permutation(np.unique(labels))
    if len(classes) < CLASSES_PER_CLIENT:
        raise ArgumentError(
            "labels", f"of {len(classes)} class", f"{CLASSES_PER_CLIENT} or more"
        )
    _check_num_clients(num_clients, len(labels), "examples")
    if num_clients < len(classes):
        raise ArgumentError(
            "num_clients",
            num_clients,
            f"{len(classes)} or more, so that every class is some client's first",
        )
    clients = np.arange(num_clients)
    turn, first = np.divmod(clients, len(classes))
    # Every turn shifts the second class by another step, never by a whole circle.
    second = (first + 1 + turn % (len(classes) - 1)) % len(classes)
    owners = np.tile(rng.permutation(num_clients), CLASSES_PER_CLIENT)
    dealt = classes[np.concatenate([first, second])]
    parts: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for label in classes:
        mine = owners[dealt == label]
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.uniform(0.4, 0.6, len(mine))
        cuts = np.floor(np.cumsum(shares)[:-1] / shares.sum() * len(rows))
        pieces = np.split(rows, cuts.astype(int))
        for client, piece in zip(mine, pieces, strict=True):
            parts[client].append(piece)
    joined = [np.concatenate(pieces) for pieces in parts]
    if min(map(len, joined)) == 0:
        raise ArgumentError(
            "num_clients",
            num_clients,
            f"fewer for {len(labels)} examples: a client would be empty",
        )
    return joined


def by_writer(
    writers: np.ndarray, num_clients: int | None, rng: np.random.Generator
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Makes each writer a client.

    Args:
      writers: [N] str or whole numbers, the writer of each row.
      num_clients: How many writers to draw at random; all of them if None. The
        rows of writers not drawn belong to nobody.
      rng: Source of randomness.

    Returns:
      The chosen writers in sorted order, as text, and for each the int64 indices of
      its rows.

    Raises:
      ArgumentError: If there are fewer writers than clients.
    """
    names, owners = np.unique(writers, return_inverse=True)
    by_owner = np.argsort(owners, kind="stable")
    parts = np.split(by_owner, np.cumsum(np.bincount(owners))[:-1])
    chosen = np.arange(len(names))
    if num_clients is not None:
        _check_num_clients(num_clients, len(names), "writers")
        chosen = np.sort(rng.choice(len(names), num_clients, replace=False))
    return tuple(str(names[i]) for i in chosen), [parts[i] for i in chosen]


def _check_num_clients(num_clients: int, most: int, unit: str) -> None:
    allowed = f"1..{most} (the {unit})"
    number = as_float("num_clients", num_clients, allowed)
    ok = number.is_integer() and 1 <= number <= most
    require(ok, "num_clients", num_clients, allowed)
