"""A round of federated averaging, for the programs on FedJAX.

FedJAX has no central differential privacy: clip and noise use its tree functions and
`jax.random`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import works

# As the others compute: newer GPUs shorten the factors of products unless told not to.
jax.config.update("jax_default_matmul_precision", "float32")

# From parameters, the clients' (id, batches, input of none) and a key to parameters.
Round = Callable[[Any, Iterable[tuple[Any, Any, Any]], jax.Array], Any]


def build_round(work: works.Work, noise_multiplier: float) -> Round:
    """Returns a round on the jit backend, as FedJAX's own algorithms are written.

    Args:
      work: Gives model, rates, clip and cohort.
      noise_multiplier: z.
    """
    for_each_client = fedjax.for_each_client(
        *_client_functions(work), with_step_result=False
    )
    stddev = work.noise_stddev(noise_multiplier)
    add = jax.jit(fedjax.tree_util.tree_add)

    @jax.jit
    def finish(params: Any, total: Any, rng: Any) -> Any:
        keys = jax.random.split(rng, len(params))
        return [
            p + t / work.clients + stddev * jax.random.normal(key, p.shape)
            for p, t, key in zip(params, total, keys, strict=True)
        ]

    def run(params: Any, clients: Iterable[tuple[Any, Any, Any]], rng: Any) -> Any:
        total = None
        for _, update in for_each_client(params, clients):
            total = update if total is None else add(total, update)
        return finish(params, total, rng)

    return run


def logits(params: Any, x: jax.Array) -> jax.Array:
    """[B, classes] of features [B, ...] by parameters in `Work.weight_shapes`."""
    kernels, biases = params[::2], params[1::2]
    for i, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        if kernel.ndim == 4:
            x = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + bias)
            x = jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            )
        else:
            x = x.reshape(x.shape[0], -1) @ kernel + bias
            x = x if i == len(kernels) - 1 else jax.nn.relu(x)
    return x


def _client_functions(work: works.Work) -> tuple[Any, Any, Any]:
    def loss(params: Any, batch: Any) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(logits(params, batch["x"]))
        own = jnp.take_along_axis(log_probabilities, batch["y"][:, None], 1)
        return -jnp.mean(own)

    def start(params: Any, _: Any) -> Any:
        return params

    def step(params: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(params, batch)
        return jax.tree_util.tree_map(
            lambda p, g: p - work.learning_rate * g, params, gradients
        )

    def finish(params: Any, trained: Any) -> Any:
        update = jax.tree_util.tree_map(jnp.subtract, trained, params)
        return fedjax.tree_util.tree_clip_by_global_norm(update, work.clip_norm)

    return start, step, finish
