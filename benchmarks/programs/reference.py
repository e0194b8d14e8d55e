"""The answer: every client trained alone by Keras, clipped and averaged in NumPy.

Shares no code with what is measured but the model and the data.
"""

import numpy as np
import tensorflow as tf
import works
from programs import tensorflow_model
from serving import read_spec, serve


class Reference:
    """One round of the work, without noise.

    Args:
      work: What to run.
    """

    def __init__(self, work: works.Work) -> None:
        self._work = work
        self._weights = works.initial_weights(work)
        self._model = tensorflow_model.build_model(work)
        self._model.compile(
            tf.keras.optimizers.SGD(work.learning_rate),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    def round(self) -> None:
        """Trains, clips and averages."""
        total = [np.zeros(w.shape, np.float64) for w in self._weights]
        for client in range(self._work.clients):
            update = self._update(client)
            norm = np.sqrt(sum(np.sum(np.square(u)) for u in update))
            scale = min(1.0, self._work.clip_norm / norm)
            total = [t + scale * u for t, u in zip(total, update, strict=True)]
        self._weights = [
            w + t / self._work.clients
            for w, t in zip(self._weights, total, strict=True)
        ]

    def weights(self) -> list[np.ndarray]:
        """The weights after the rounds so far."""
        return self._weights

    def _update(self, client: int) -> list[np.ndarray]:
        self._model.set_weights(self._weights)
        features, labels = works.client_examples(self._work, client)
        dataset = tf.data.Dataset.from_tensor_slices((features, labels))
        self._model.fit(
            dataset.batch(self._work.batch_size), epochs=self._work.epochs, verbose=0
        )
        trained = self._model.get_weights()
        return [
            np.asarray(t, np.float64) - w
            for t, w in zip(trained, self._weights, strict=True)
        ]


def main() -> None:
    """Serves the reference; `build` takes what the programs take."""
    spec = read_spec()
    serve(lambda **_: Reference(spec["work"]), spec["replies"])


if __name__ == "__main__":
    main()
