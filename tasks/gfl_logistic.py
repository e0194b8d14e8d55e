"""Binary logistic regression on generated data, as in the GFL paper's experiment.

Client k of server p has examples (gamma, h): gamma is +1 or -1 with equal odds and
h in R^M is normal with mean gamma in every coordinate and the client's own
variance. The paper does not give the variances; here a client's standard deviation
is uniform in `STDDEV_RANGE`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, special

from tasks.task import ClientData, Task
from tff_hdp.errors import check_count

if TYPE_CHECKING:
    import tensorflow as tf

NAME = "gfl_logistic"
STDDEV_RANGE = (0.5, 1.5)
TEST_EXAMPLES = 2_000


def load(
    *,
    num_clients: int = 500,
    examples_per_client: int = 100,
    dimension: int = 2,
    seed: int = 0,
) -> Task:
    """Generates the data of all clients and a test set of the same mixture.

    Args:
      num_clients: P K, the clients of all servers.
      examples_per_client: N.
      dimension: M.
      seed: Decides the data.

    Returns:
      A task with float32 features [N, M] and labels 1 for gamma = +1, 0 for -1.
      Its model has M parameters and no bias.

    Raises:
      ArgumentError: If a count is no whole number >= 1.
    """
    num_clients = check_count("num_clients", num_clients, 1)
    dimension = check_count("dimension", dimension, 1)
    examples_per_client = check_count("examples_per_client", examples_per_client, 1)
    rng = np.random.default_rng(seed)
    stddev = rng.uniform(*STDDEV_RANGE, num_clients)
    features, labels = _draw(rng, np.repeat(stddev, examples_per_client), dimension)
    test = _draw(rng, rng.choice(stddev, TEST_EXAMPLES), dimension)
    digits = len(str(num_clients - 1))
    low, high = STDDEV_RANGE
    return Task(
        name=NAME,
        train=ClientData(
            client_ids=tuple(f"client_{i:0{digits}d}" for i in range(num_clients)),
            features=features,
            labels=labels,
            offsets=np.arange(num_clients + 1) * examples_per_client,
        ),
        test_features=test[0],
        test_labels=test[1],
        num_classes=2,
        build_model=lambda: build_model(dimension),
        model_name="logistic",
        description=(
            "Generated: gamma = +-1 with equal odds, h normal around gamma in each of "
            f"{dimension} coordinates, a client's standard deviation uniform in "
            f"[{low}, {high}]; {num_clients} clients of {examples_per_client} "
            f"examples, seed {seed}. Model: logistic regression without bias, "
            f"{dimension} parameters."
        ),
    )


def build_model(dimension: int) -> "tf.keras.Sequential":
    """A new Keras model, from w = 0, of the logits (0, w^T h) of the two classes."""
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input([dimension]),
            layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
            layers.Reshape([1, 1]),
            layers.ZeroPadding1D((1, 0)),
            layers.Flatten(),
        ]
    )


def optimum(
    train: ClientData, ridge: float, zone_of: Sequence[int] | None = None
) -> np.ndarray:
    """The exact minimiser w^o of the average empirical risk (GFL paper, eq. 1).

    Args:
      train: All clients' examples, labels 0 or 1.
      ridge: rho > 0, the weight of rho/2 ||w||^2.
      zone_of: Every client's server. All servers count the same, and all clients of
        a server; without, all clients do, which is the same where servers have
        equally many.

    Returns:
      [M] float64, by Newton's method to a gradient norm below 1e-12.

    Raises:
      ArithmeticError: If the solver does not get there.
    """
    features = train.features.astype(np.float64)
    signs = 2.0 * train.labels - 1.0
    server = np.zeros(len(train.sizes), int) if zone_of is None else zone_of
    _, place, clients = np.unique(server, return_inverse=True, return_counts=True)
    alike = len(clients) * clients[place] * train.sizes
    weights = np.repeat(1.0 / alike, train.sizes)

    def risk(w: np.ndarray) -> float:
        losses = np.logaddexp(0.0, -signs * (features @ w))
        return float(weights @ losses + 0.5 * ridge * w @ w)

    def gradient(w: np.ndarray) -> np.ndarray:
        pull = -weights * signs * special.expit(-signs * (features @ w))
        return features.T @ pull + ridge * w

    def hessian(w: np.ndarray) -> np.ndarray:
        margin = features @ w
        curvature = weights * special.expit(margin) * special.expit(-margin)
        return (features.T * curvature) @ features + ridge * np.eye(len(w))

    start = np.zeros(features.shape[1])
    found = optimize.minimize(
        risk, start, jac=gradient, hess=hessian, method="trust-exact", tol=1e-9
    ).x
    for _ in range(3):  # the last digits, which the trust region does not resolve
        found = found - np.linalg.solve(hessian(found), gradient(found))
    if not np.linalg.norm(gradient(found)) < 1e-12:
        raise ArithmeticError(
            f"the solver ends at a gradient of norm {np.linalg.norm(gradient(found)):g}"
        )
    return found


def _draw(
    rng: np.random.Generator, stddev: np.ndarray, dimension: int
) -> tuple[np.ndarray, np.ndarray]:
    """An example for each standard deviation: features and labels."""
    labels = rng.integers(0, 2, len(stddev)).astype(np.int32)
    noise = rng.standard_normal([len(stddev), dimension]) * stddev[:, np.newaxis]
    return (2.0 * labels[:, np.newaxis] - 1.0 + noise).astype(np.float32), labels
