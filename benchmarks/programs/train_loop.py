"""This project's loop, as scripts/train.py runs it, with noise at the server alone."""

import pathlib
from collections.abc import Mapping
from typing import Any

import profile_loop
import tensorflow as tf
import tensorflow_federated as tff
import works
from recording import Recorder
from serving import read_spec

from tff_hdp.simulation import experiment
from tff_hdp.simulation.checkpoints import read_checkpoint
from tff_hdp.simulation.progress import Progress
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.run import Hdp


def main() -> None:
    """Runs the spec's rounds."""
    spec = read_spec()
    work, out = spec["work"], pathlib.Path(spec["out"]) / "run"
    recorder = Recorder(spec)
    weights = works.initial_weights(work)
    Hdp.initial_weights = lambda _: tff.learning.models.ModelWeights(weights, [])
    spent = profile_loop.watch()
    _tell(recorder, out / "checkpoints")
    config = HdpConfig(
        task=spec["task"]["name"],
        num_clients=work.registered,
        privacy="cdp",
        zones=1,
        sampling="fixed",
        clients_per_round=work.clients,
        rounds=spec["rounds"],
        local_epochs=work.epochs,
        batch_size=work.batch_size,
        client_learning_rate=work.learning_rate,
        clip_norm=work.clip_norm,
        noise_multiplier=spec["noise_multiplier"],
        runtime=spec["runtime"],
        out=str(out),
    )
    experiment.run(config, partition_seed=spec["task"]["seed"])
    recorder.write(round=spent["round"], evaluation=spent["evaluation"])


def _tell(recorder: Recorder, checkpoints: pathlib.Path) -> None:
    """Has the loop tell of every round's end, which is when its progress is shown."""
    tested: dict[str, Any] = {}
    evaluate, show = Hdp.evaluate, Progress.show

    def noting_evaluate(system: Hdp, state: Any) -> dict[str, float]:
        tested.update(system=system, state=state)
        return evaluate(system, state)

    def noting_show(self: Any, number: int, metrics: Mapping[str, float]) -> None:
        show(self, number, metrics)
        path = checkpoints / f"round_{number:06d}"
        recorder.end(accuracy=metrics["accuracy"], checkpoint=path)
        if recorder.reads:
            system, state = tested["system"], tested["state"]
            saved = tf.nest.pack_sequence_as(state, read_checkpoint(path)[1])
            recorder.keep(system.weights_of(state), system.weights_of(saved))

    Hdp.evaluate, Progress.show = noting_evaluate, noting_show


if __name__ == "__main__":
    main()
