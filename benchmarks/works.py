"""The works that are measured: data, model, schedule, and what they cost at least.

NumPy alone, since every program under test imports this in an environment of its
own and must see the same clients and the same initial weights.
"""

import dataclasses
import functools
import math

import numpy as np
import populations


@dataclasses.dataclass(frozen=True)
class Work:
    """Federated averaging of one model over one cohort, clipped and noised.

    Every client runs plain SGD over its examples in their order, `epochs` times,
    in batches of `batch_size`; its update is clipped to `clip_norm`, updates are
    averaged, and Gaussian noise of standard deviation z * clip_norm / clients is on
    the average.

    Attributes:
      name: As in --work.
      input_shape: Of an example: (features,) or (height, width, channels).
      filters: Output channels of each 5x5 convolution with zero padding, ReLU and
        2x2 max pooling.
      units: Width of the hidden dense layer, with ReLU.
      clients: Cohort, all of which take part in every round.
      zones: Equal zones the cohort is split into, by the programs that have zones.
      examples: Of every client, where there is no `population`.
      epochs: Over a client's examples.
      batch_size: A divisor of `examples`.
      learning_rate: Of the clients' SGD; the server's is 1.
      clip_norm: Near the median norm of an update, so that some are clipped and
        some are not.
      rounding: Share of an update's norm by which its float32 roundings may differ
        between programs: where two inputs of a pooling window or a ReLU are nearly
        tied, the last bit decides which way a gradient goes.
      registered: How many clients there are, of whom every round draws `clients`;
        None if they are all.
      population: Folder of their examples, see `populations`; "" makes them up.
    """

    name: str
    input_shape: tuple[int, ...]
    filters: tuple[int, ...]
    units: int
    clients: int
    zones: int = 1
    examples: int = 100
    epochs: int = 5
    batch_size: int = 20
    learning_rate: float = 0.1
    clip_norm: float = 1.0
    rounding: float = 0.0
    registered: int | None = None
    population: str = ""

    classes = 10
    kernel = 5

    @property
    def steps(self) -> int:
        """SGD steps of one client in a round."""
        return self.epochs * self.examples // self.batch_size

    @property
    def weight_shapes(self) -> list[tuple[int, ...]]:
        """Kernels and biases in Keras' order and layout: HWIO, [in, out]."""
        shapes: list[tuple[int, ...]] = []
        channels, pixels = self.input_shape[-1], math.prod(self.input_shape[:-1])
        for filters in self.filters:
            shapes += [(self.kernel, self.kernel, channels, filters), (filters,)]
            channels, pixels = filters, pixels // 4
        inputs = pixels * channels
        for units in (self.units, self.classes):
            shapes += [(inputs, units), (units,)]
            inputs = units
        return shapes

    @property
    def num_parameters(self) -> int:
        """Of the model."""
        return sum(math.prod(shape) for shape in self.weight_shapes)

    @property
    def flops(self) -> float:
        """Multiplications and additions of a round's matrix products."""
        trained = self.clients * self.steps * self.batch_size
        return float(trained * self.example_flops)

    @property
    def example_flops(self) -> int:
        """Of the matrix products of one example, forward and backward.

        Direct float32 arithmetic: two operations per weight and output position
        forward, as many for the weights' gradient, and as many for the inputs',
        which the first layer does not need.
        """
        per_example = 0
        pixels = math.prod(self.input_shape[:-1])
        kernels = self.weight_shapes[::2]
        for i, shape in enumerate(kernels):
            positions = pixels // 4**i if len(shape) == 4 else 1
            passes = 2 if i == 0 else 3
            per_example += passes * 2 * positions * math.prod(shape)
        return per_example

    def noise_stddev(self, noise_multiplier: float) -> float:
        """Of one coordinate of the released average under server noise."""
        return noise_multiplier * self.clip_norm / self.clients


def _photographs(
    name: str, filters: tuple[int, ...], units: int, *, clip_norm: float
) -> Work:
    """A model of the project's CIFAR tasks; its gradients are steep at first."""
    return Work(
        name,
        (32, 32, 3),
        filters,
        units,
        clients=20,
        learning_rate=0.005,
        clip_norm=clip_norm,
        rounding=0.03,
    )


# Those whose shapes are measured on their own: cohorts of one size, in no zones.
COHORT_WORKS = ("A", "B", "cnn_small", "lenet")
# B's model is the largest of the CIFAR tasks, cnn_large.
WORKS = {
    "A": Work("A", (784,), (), 200, clients=100, clip_norm=1.6),
    "B": _photographs("B", (32, 64), 512, clip_norm=0.094),
    "cnn_small": _photographs("cnn_small", (16, 32), 40, clip_norm=0.066),
    "lenet": _photographs("lenet", (6, 16), 84, clip_norm=0.09),
    "C": Work("C", (784,), (), 200, clients=100, zones=10, clip_norm=1.6),
    "D": Work("D", (784,), (), 200, clients=1000, clip_norm=1.6),
}

# F by task, with the clients and the models that the tasks have by themselves.
LOOPS = {
    "digits": Work(
        "F",
        (64,),
        (),
        32,
        clients=25,
        registered=200,
        epochs=1,
        learning_rate=0.5,
        clip_norm=0.7,
    ),
    "mnist": Work("F", (784,), (), 200, clients=100, registered=500, clip_norm=1.0),
}


def client_examples(work: Work, client: int) -> tuple[np.ndarray, np.ndarray]:
    """One client's examples, the same in every process.

    Args:
      work: Whose.
      client: 0, 1, ...

    Returns:
      Features [examples, *input_shape] float32 in [0, 1] and labels [examples]
      int32. Where the work has no population, labels are the largest of ten fixed
      linear functions of the features, which a model can learn.
    """
    if work.population:
        return populations.read(work.population).examples(client)
    rng = np.random.default_rng([1, client])
    shape = (work.examples, *work.input_shape)
    features = rng.random(shape, dtype=np.float32)
    # In float64, or NumPy's next version may see another one as the largest.
    scores = (np.float64(features.reshape(work.examples, -1)) - 0.5) @ _teacher(work)
    return features, np.argmax(scores, axis=1).astype(np.int32)


def initial_weights(work: Work) -> list[np.ndarray]:
    """Glorot uniform kernels and zero biases, the same in every process."""
    rng = np.random.default_rng(2)
    weights = []
    for shape in work.weight_shapes:
        if len(shape) == 1:
            weights.append(np.zeros(shape, np.float32))
            continue
        window = math.prod(shape[:-2])
        limit = math.sqrt(6 / (window * (shape[-2] + shape[-1])))
        weights.append(rng.uniform(-limit, limit, shape).astype(np.float32))
    return weights


@functools.cache
def _teacher(work: Work) -> np.ndarray:
    rng = np.random.default_rng(3)
    inputs = math.prod(work.input_shape)
    return rng.normal(size=(inputs, work.classes)).astype(np.float32)
