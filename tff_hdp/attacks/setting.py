"""What a neighbour system is attacked with, and what of it an attacker can run."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.attacks.config import AttackConfig
from tff_hdp.attacks.victims import Target
from tff_hdp.clients.batches import make_chunk
from tff_hdp.errors import require
from tff_hdp.privacy.accountant import AccountRow

Example = tuple[np.ndarray, int]
# From the clients' examples, the victim's first, to what each observer holds, [d].
Round = Callable[[Sequence[Example]], dict[str, np.ndarray]]

# Noise that is none: what an attacker computes for itself, with every clip in it.
NONE = 1e-9
# A clip that cuts nothing and noise beside which updates of norm .01 are exact.
FREE = 1e4, 1e-13


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the four are run with.

    Attributes:
      config: Clients, one example each; zones, which are GFL's servers and HFL-DP's
        edges; noise over sensitivity, wherever the system adds its own; FL-TOP's ratio.
      target: The model, its weights, and the clients' SGD.
    """

    config: AttackConfig
    target: Target

    @property
    def per_zone(self) -> int:
        """Clients of a zone.

        Raises:
          ArgumentError: If zones would differ, or be of one client.
        """
        clients, zones = self.config.clients, self.config.zones
        each, rest = divmod(clients, zones)
        allowed = f"a multiple of {zones} zones, twice as many or more"
        require(each > 1 and not rest, "clients", clients, allowed)
        return each

    def by_zone(self, clients: Sequence[Example]) -> list[Sequence[Example]]:
        """Clients zone by zone, `per_zone` in each but perhaps the last."""
        each = self.per_zone
        return [clients[i : i + each] for i in range(0, len(clients), each)]

    def build_model(self) -> tf.keras.Sequential:
        """A new model like the target's."""
        return tf.keras.models.clone_model(self.target.keras_model)

    def chunk(self, examples: Sequence[Example], zone: int = 0) -> dict[str, Any]:
        """A `make_chunk` of clients, whose batches are their one example each time."""
        order = np.zeros([self.target.local_steps, 1], np.int32)
        return make_chunk(
            [(x[np.newaxis], np.array([y], np.int32)) for x, y in examples],
            [order] * len(examples),
            weights=[1.0] * len(examples),
            carries_noise=[True] * len(examples),
            zone=zone,
        )


@dataclasses.dataclass(frozen=True)
class SystemUnderAttack:
    """A system ready to be looked at.

    Attributes:
      round: A round with the system's noise.
      quiet: The same without, as an attacker computes it for an example it supposes.
      account: The system's own rows at a delta, for that one round.
      clip_norm: S as it was run.
      laplace: Observers whose noise is Laplace; that of others is Gaussian.
    """

    round: Round
    quiet: Round
    account: Callable[[float], list[AccountRow]]
    clip_norm: float
    laplace: frozenset[str] = frozenset()


def started(process: Any, target: Target) -> Any:
    """The state before round 1, with the target's weights."""
    weights = tff.learning.models.ModelWeights(list(target.weights), [])
    return process.set_model_weights(process.initialize(), weights)


def first_round(
    process: Any, target: Target
) -> Callable[[Sequence[tf.data.Dataset]], Any]:
    """From a cohort to the weights after round 1, which starts from the target's."""
    start = started(process, target)
    return lambda cohort: process.next(start, cohort).state.global_model_weights


def median_norm(quiet: Round, examples: Sequence[Example]) -> float:
    """Of single clients' records, with a clip that clips nothing."""
    norms = [np.linalg.norm(quiet([one])["released_model"]) for one in examples]
    return float(np.median(norms))
