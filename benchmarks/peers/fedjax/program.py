"""FedJAX: `for_each_client` on its jit backend, clip at the client, noise after."""

from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import works
from serving import read_spec, serve


class FedJaxFederation:
    """Rounds of federated averaging as FedJAX's own algorithms are written.

    FedJAX has no central differential privacy: clip and noise use its tree
    functions and `jax.random`.

    Args:
      work: What to run.
      noise_multiplier: z.
    """

    def __init__(self, work: works.Work, noise_multiplier: float) -> None:
        self._params = [jnp.asarray(w) for w in works.initial_weights(work)]
        self._clients = []
        for client in range(work.clients):
            features, labels = works.client_examples(work, client)
            dataset = fedjax.ClientDataset({"x": features, "y": labels})
            self._clients.append((client, dataset))
        self._work = work
        self._rng = jax.random.PRNGKey(int.from_bytes(np.random.bytes(4), "big"))
        self._for_each_client = fedjax.for_each_client(
            *_client_functions(work), with_step_result=False
        )
        stddev = work.noise_stddev(noise_multiplier)

        @jax.jit
        def finish(params: Any, total: Any, rng: Any) -> Any:
            keys = jax.random.split(rng, len(params))
            return [
                p + t / work.clients + stddev * jax.random.normal(key, p.shape)
                for p, t, key in zip(params, total, keys, strict=True)
            ]

        self._finish = finish
        self._add = jax.jit(fedjax.tree_util.tree_add)

    def round(self) -> None:
        """Runs one round."""
        batches = (
            (
                client,
                dataset.shuffle_repeat_batch(
                    batch_size=self._work.batch_size,
                    num_epochs=self._work.epochs,
                    skip_shuffle=True,
                ),
                (),
            )
            for client, dataset in self._clients
        )
        total = None
        for _, update in self._for_each_client(self._params, batches):
            total = update if total is None else self._add(total, update)
        self._rng, rng = jax.random.split(self._rng)
        self._params = self._finish(self._params, total, rng)
        jax.block_until_ready(self._params)

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        return [np.asarray(p) for p in self._params]


def _client_functions(work: works.Work) -> tuple[Any, Any, Any]:
    def loss(params: Any, batch: Any) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(_logits(params, batch["x"]))
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


def _logits(params: Any, x: jax.Array) -> jax.Array:
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


def main() -> None:
    """Serves rounds of the spec's work."""
    spec = read_spec()

    def build(*, noise_multiplier: float) -> FedJaxFederation:
        return FedJaxFederation(spec["work"], noise_multiplier)

    serve(build, spec["replies"])


if __name__ == "__main__":
    main()
