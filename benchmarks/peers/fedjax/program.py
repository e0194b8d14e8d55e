"""FedJAX: `for_each_client` on its jit backend, clip at the client, noise after."""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import works
from peers.fedjax.averaging import build_round
from serving import read_spec, serve


class FedJaxFederation:
    """Rounds over the work's clients.

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
        self._round = build_round(work, noise_multiplier)

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
        self._rng, rng = jax.random.split(self._rng)
        self._params = self._round(self._params, batches, rng)
        jax.block_until_ready(self._params)

    def weights(self) -> list[np.ndarray]:
        """The current weights."""
        return [np.asarray(p) for p in self._params]


def main() -> None:
    """Serves rounds of the spec's work."""
    spec = read_spec()

    def build(*, noise_multiplier: float) -> FedJaxFederation:
        return FedJaxFederation(spec["work"], noise_multiplier)

    serve(build, spec["replies"])


if __name__ == "__main__":
    main()
