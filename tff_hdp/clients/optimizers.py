"""TFF optimizers by name."""

import tensorflow_federated as tff

# The optimizers that are SGD, with their momentum.
SGD_MOMENTUM = {"sgd": 0.0, "sgdm": 0.9}


def build_optimizer(
    name: str, learning_rate: float
) -> tff.learning.optimizers.Optimizer:
    """The TFF optimizer called `name` in `OPTIMIZERS`.

    Args:
      name: One of `OPTIMIZERS` of the HDP config.
      learning_rate: Its rate.

    Raises:
      ValueError: If there is no such optimizer.
    """
    optimizers = tff.learning.optimizers
    builders = {
        "sgd": optimizers.build_sgdm,
        "sgdm": lambda rate: optimizers.build_sgdm(rate, SGD_MOMENTUM["sgdm"]),
        "adam": optimizers.build_adam,
        "yogi": optimizers.build_yogi,
        "adagrad": optimizers.build_adagrad,
    }
    if name not in builders:
        raise ValueError(f"optimizer is {name!r}; allowed are {', '.join(builders)}")
    return builders[name](learning_rate)
