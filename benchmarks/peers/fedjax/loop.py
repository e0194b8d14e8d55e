"""FedJAX's loop: `run_federated_experiment`, with checkpoint and test each round."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import populations
import works
from peers.fedjax import averaging
from recording import Recorder
from serving import read_spec

_TEST_BATCH = 512


@fedjax.dataclass
class ServerState:
    """What is passed between rounds.

    Attributes:
      params: The model's, in the order of `Work.weight_shapes`.
      rng: Key that the next round's noise comes from.
    """

    params: Any
    rng: jax.Array


class Testing(fedjax.training.ModelFullEvaluationFn):
    """FedJAX's test on a whole set, which ends a round and tells so.

    Args:
      spec: The program's.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        population = populations.read(spec["work"].population)
        test = {"x": population.test_features, "y": population.test_labels}
        batches = fedjax.PaddedBatchHParams(batch_size=_TEST_BATCH)
        super().__init__(
            fedjax.InMemoryFederatedData({"test": test}), _model(), batches
        )
        self._folder = pathlib.Path(spec["out"])
        self.recorder = Recorder(spec)

    def __call__(self, state: ServerState, round_num: int) -> Mapping[str, Any]:
        """Tests, after the round's checkpoint is written."""
        metrics = super().__call__(state, round_num)
        accuracy = float(metrics["accuracy"])
        path = self._folder / f"checkpoint_{round_num:08d}"
        self.recorder.end(accuracy=accuracy, checkpoint=path)
        if self.recorder.reads:
            saved, _ = fedjax.training.load_latest_checkpoint(str(self._folder))
            self.recorder.keep(state.params, saved.params)
        return metrics


def _model() -> fedjax.Model:
    def apply(params: Any, batch: Any) -> jax.Array:
        return averaging.logits(params, batch["x"])

    return fedjax.Model(
        init=None,
        apply_for_train=None,
        apply_for_eval=apply,
        train_loss=None,
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
    )


def _algorithm(work: works.Work, noise_multiplier: float) -> fedjax.FederatedAlgorithm:
    run = averaging.build_round(work, noise_multiplier)

    def init(params: Any) -> ServerState:
        seed = int.from_bytes(np.random.bytes(4), "big")
        return ServerState(params, jax.random.PRNGKey(seed))

    def apply(
        state: ServerState, clients: Sequence[tuple[Any, fedjax.ClientDataset, Any]]
    ) -> tuple[ServerState, dict[Any, Any]]:
        rng, own = jax.random.split(state.rng)
        batches = ((key, _batches(work, examples), ()) for key, examples, _ in clients)
        return ServerState(run(state.params, batches, own), rng), {}

    return fedjax.FederatedAlgorithm(init, apply)


def _batches(work: works.Work, examples: fedjax.ClientDataset) -> Iterator[Any]:
    """Epoch by epoch, the last batch as small as it is.

    `shuffle_repeat_batch` fills it up from the next epoch, which is other work.
    """
    for _ in range(work.epochs):
        yield from examples.batch(batch_size=work.batch_size)


def main() -> None:
    """Runs the spec's rounds."""
    spec = read_spec()
    work, testing = spec["work"], Testing(spec)
    clients = {}
    for client in range(work.registered):
        features, labels = works.client_examples(work, client)
        clients[client] = {"x": features, "y": labels}
    algorithm = _algorithm(work, spec["noise_multiplier"])
    fedjax.training.run_federated_experiment(
        algorithm,
        algorithm.init([jnp.asarray(w) for w in works.initial_weights(work)]),
        fedjax.client_samplers.UniformGetClientSampler(
            fedjax.InMemoryFederatedData(clients), work.clients, seed=0
        ),
        fedjax.training.FederatedExperimentConfig(
            root_dir=spec["out"],
            num_rounds=spec["rounds"],
            checkpoint_frequency=1,
            eval_frequency=1,
        ),
        periodic_eval_fn_map={"test": testing},
    )
    testing.recorder.write()


if __name__ == "__main__":
    main()
