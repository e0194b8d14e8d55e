"""TFF's own loop: unmodified federated averaging, evaluation and program state.

`tff.simulation.run_training_process` with `build_fed_eval` and
`FileProgramStateManager`, all as they come.
"""

import asyncio
import os
import pathlib
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from programs import tensorflow_model
from recording import Recorder
from serving import read_spec

import tasks

_TEST_BATCH = 512


class Saving(tff.program.FileProgramStateManager):
    """The manager, which tells of every state after a round that it saved.

    Args:
      folder: Where states go.
      process: Whose.
      recorder: Told.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        process: tff.learning.templates.LearningProcess,
        recorder: Recorder,
    ) -> None:
        super().__init__(folder)
        self._folder, self._process, self._recorder = folder, process, recorder
        self.accuracy = 0.0

    async def save(self, program_state: Any, version: int) -> None:
        """See base class."""
        await super().save(program_state, version)
        if not version:
            return
        path = self._folder / f"program_state_{version}"
        self._recorder.end(accuracy=self.accuracy, checkpoint=path)
        if self._recorder.reads:
            saved = await self.load(version, program_state)
            states = (program_state, saved)
            weights = map(self._process.get_model_weights, states)
            self._recorder.keep(*(both.trainable for both in weights))


def main() -> None:
    """Runs the spec's rounds."""
    spec = read_spec()
    work, recorder = spec["work"], Recorder(spec)
    tensorflow_model.install_runtime(spec)
    task = tasks.load(**spec["task"])

    def model_fn() -> tff.learning.models.VariableModel:
        return _model(task)

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        tff.learning.optimizers.build_sgdm(work.learning_rate),
        model_aggregator=tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            spec["noise_multiplier"], float(work.clients), work.clip_norm
        ),
    )
    clients = [
        tf.data.Dataset.from_tensor_slices(task.train.examples(client))
        .shuffle(int(task.train.sizes[client]))
        .batch(work.batch_size)
        .repeat(work.epochs)
        for client in range(work.registered)
    ]
    sample = tff.simulation.build_uniform_sampling_fn(range(work.registered))
    evaluation = tff.learning.algorithms.build_fed_eval(model_fn)
    untested = evaluation.initialize()
    test_shares = _test_shares(task)
    states = Saving(pathlib.Path(spec["out"]) / "states", process, recorder)

    def evaluate(state: Any, data: Any) -> dict[str, Any]:
        weights = process.get_model_weights(state)
        tested = evaluation.next(
            evaluation.set_model_weights(untested, weights), data
        ).metrics["client_work"]["eval"]["current_round_metrics"]
        states.accuracy = float(tested["accuracy"])
        return tested

    # What the loop goes on from, as from any state that it finds.
    first = process.set_model_weights(
        process.initialize(), tensorflow_model.initial_model_weights(work)
    )
    asyncio.get_event_loop().run_until_complete(states.save(first, 0))
    tff.simulation.run_training_process(
        process,
        lambda number: [clients[i] for i in sample(number, work.clients)],
        spec["rounds"],
        evaluation_fn=evaluate,
        evaluation_selection_fn=lambda _: test_shares,
        program_state_manager=states,
    )
    recorder.write()


def _model(task: tasks.Task) -> tff.learning.models.VariableModel:
    features = task.test_features
    return tff.learning.models.from_keras_model(
        task.build_model(),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, *features.shape[1:]], features.dtype),
            tf.TensorSpec([None], tf.int32),
        ),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


def _test_shares(task: tasks.Task) -> list[tf.data.Dataset]:
    """The test set, dealt to as many clients as there are cores."""
    count = len(os.sched_getaffinity(0))
    return [
        tf.data.Dataset.from_tensor_slices(
            (task.test_features[i::count], task.test_labels[i::count])
        ).batch(_TEST_BATCH)
        for i in range(count)
    ]


if __name__ == "__main__":
    main()
