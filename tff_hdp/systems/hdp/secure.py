"""The fixed point of a run's secure sums."""

import numpy as np

from tasks.task import Task
from tff_hdp.privacy import NoisePlan
from tff_hdp.privacy.secure import DEFAULT_BITS, with_encoding
from tff_hdp.systems.hdp.config import HdpConfig


def encoded(plan: NoisePlan, config: HdpConfig) -> NoisePlan:
    """The plan with the fixed point of the run's secure sums, if there are any.

    Args:
      plan: With the fields of `config.secure_plan`, and the model's size.
      config: The run's settings.

    Raises:
      ArgumentError: If the sums do not fit secure_bits, or the plan is none for
        secure sums.
    """
    if config.secure_aggregation == "none":
        return plan
    return with_encoding(
        plan,
        size=plan.size,
        bits=config.secure_bits or DEFAULT_BITS,
        largest=config.secure_range,
    )


def model_size(task: Task) -> int:
    """How many numbers the task's model learns."""
    weights = task.build_model().trainable_weights
    return sum(int(np.prod(w.shape)) for w in weights)
