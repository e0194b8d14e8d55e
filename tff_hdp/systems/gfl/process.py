"""GFL: servers in a graph, each with clients of its own (GFL paper, eqs. 6-8, 24)."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.aggregators.clipping import clip, screen
from tff_hdp.aggregators.vectors import decode, encode, join, split
from tff_hdp.clients.sgd import full_gradients
from tff_hdp.clients.stacked_model import StackedModel
from tff_hdp.errors import ArgumentError, check_nonnegative, require
from tff_hdp.noise import add_laplace
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.zone_models import build_zoned_process
from tff_hdp.topology.mixing import check_mixing


def cohort_type(
    feature_shape: tuple[int, ...], dtype: Any, *, plan: GflPlan, servers: int = 1
) -> tff.SequenceType:
    """The type of a TFF client's data: C sampled clients of each of Z servers.

    Args:
      feature_shape: Of one example.
      dtype: Of the features as stored.
      plan: Whether they bring masks: int64 in 0..2^32 - 1.
      servers: Z.

    Returns:
      Sequence of one structure of features [Z, C, B, ...], labels [Z, C, B], zone
      [Z], and masks [Z, C, d] whose sum over a server's clients is 0.
    """
    fields = collections.OrderedDict(
        features=tff.TensorType(dtype, [None, None, None, *feature_shape]),
        labels=tff.TensorType(np.int32, [None, None, None]),
        zone=tff.TensorType(np.int32, [servers]),
    )
    if plan.masked:
        fields["masks"] = tff.TensorType(np.int64, [None, None, plan.dimension])
    return tff.SequenceType(fields)


def build_gfl(
    *,
    build_model: Callable[[], tf.keras.Sequential],
    data_type: tff.SequenceType,
    plan: GflPlan,
    mixing: np.ndarray,
    ridge: float = 0.0,
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process; a round is one iteration.

    Every sampled client takes one SGD step from its server's model on one batch
    (eq. 6). Its stochastic gradient is clipped to the norm B, which the paper
    assumes of it; one whose norm is not finite counts as 0, masked and noised as
    any. Servers average (eq. 7) and combine (eq. 8): w_p = sum_m a_mp (psi_m + g_mp).

    What hides what is the plan's scheme. `hybrid`: clients send their updates in
    fixed point under masks that cancel in the server's sum (eq. 23), and servers
    add graph-homomorphic Laplace noise (eq. 24), which cancels in the average of
    all servers (eq. 25). `iid`: Laplace noise on every client's update, and a
    fresh one on every message between two servers. `none`: neither.

    Args:
      build_model: Returns a new Keras classifier that `StackedModel` takes.
      data_type: `cohort_type` of the data.
      plan: Step size, gradient bound and noise.
      mixing: A, [P, P], symmetric and doubly stochastic.
      ridge: rho, the weight of rho/2 ||w||^2 in every client's loss.

    Raises:
      ArgumentError: If the model has not `plan.dimension` parameters, `mixing` is not
        symmetric and doubly stochastic, or an argument is something else.
    """
    require(isinstance(plan, GflPlan), "plan", plan, "a GflPlan")
    ridge = check_nonnegative("ridge", ridge)
    mixing = check_mixing(mixing, doubly_stochastic=True, name="mixing")
    model = StackedModel.built_by(build_model)
    if model.size != plan.dimension:
        raise ArgumentError(
            "plan.dimension", plan.dimension, f"{model.size}, the model's parameters"
        )

    def client(models: tf.Tensor, cohort: Any, number: tf.Tensor) -> Any:
        """Equation 6."""
        del number
        servers, clients = tf.unstack(tf.shape(cohort["labels"])[:2])
        # All clients of the Z servers side by side, [Z C, ...].
        features, labels = (
            tf.reshape(t, tf.concat([[servers * clients], tf.shape(t)[2:]], 0))
            for t in (cohort["features"], cohort["labels"])
        )
        starts = tf.repeat(models, clients, axis=0)
        gradients, measured = full_gradients(
            model, split(starts, model.shapes), features, labels
        )
        gradients = join(gradients, leading=1) + ridge * starts
        gradients, rejected = screen(gradients, stacked=True)
        gradients, norms = clip(gradients, plan.B, stacked=True)
        updates = tf.reshape(-plan.mu * gradients, [servers, clients, model.size])
        measured = {
            **measured,
            "clipped": tf.math.count_nonzero(norms > plan.B, dtype=tf.float32),
            "rejected": tf.math.count_nonzero(rejected, dtype=tf.float32),
        }
        return hide(plan, updates, cohort), measured

    def server(
        models: tf.Tensor, sums: tf.Tensor, clients: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Equation 7."""
        del number
        return models + tf.math.divide_no_nan(unhide(plan, sums), clients)

    def exchange(psi: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Equation 8."""
        del number
        return mix(plan, psi, mixing)

    return build_zoned_process(
        build_model=build_model,
        num_zones=len(mixing),
        data_type=data_type,
        client=client,
        edge=server,
        down=exchange,
    )


def hide(plan: GflPlan, updates: tf.Tensor, cohort: Any) -> tf.Tensor:
    """What clients send, [Z, C, d], of their updates [Z, C, d] (equation 23)."""
    if plan.scheme == "iid":
        updates = add_laplace(updates, plan.sigma_g)
    if not plan.masked:
        return updates
    masked = encode(updates, plan.encoding) + cohort["masks"]
    return tf.math.floormod(masked, 2**plan.encoding.bits)


def unhide(plan: GflPlan, sums: tf.Tensor) -> tf.Tensor:
    """The sums of the updates, [P, d] float32, of the sums of what was sent."""
    if not plan.masked:
        return sums
    return tf.cast(decode(sums, plan.encoding), tf.float32)


def noised(psi: tf.Tensor, sigma_g: float) -> tuple[tf.Tensor, tf.Tensor]:
    """What every server sends to all others, psi_m + g_m, and g_m (equation 24).

    The sum is rounded to the noise's grid as it is formed, and g_m is what that added:
    noise of a grid, added to psi, would leave psi's place between its steps bare.
    """
    sent = add_laplace(psi, sigma_g)
    return sent, sent - psi


def mix(plan: GflPlan, psi: tf.Tensor, mixing: np.ndarray) -> tf.Tensor:
    """Servers exchange and combine their models (eq. 8).

    Args:
      plan: Who adds which noise.
      psi: [P, d] float32.
      mixing: A, [P, P], symmetric.

    Returns:
      [P, d], w_p = sum_m a_mp (psi_m + g_mp).
    """
    weights = tf.constant(mixing, psi.dtype)
    if plan.scheme == "hybrid":
        # The own copy holds psi_p - (1 - a_pp)/a_pp g_p.
        sent, noise = noised(psi, plan.sigma_g)
        return tf.matmul(weights, sent) - noise
    if plan.scheme == "iid":
        size = len(mixing)
        # Of every server to every other, [P, P, d].
        sent = add_laplace(tf.tile(psi[tf.newaxis], [size, 1, 1]), plan.sigma_g)
        own = tf.linalg.diag_part(weights)[:, tf.newaxis] * psi
        between = weights * (1.0 - tf.eye(size))
        return own + tf.einsum("pm,pmd->pd", between, sent)
    return tf.matmul(weights, psi)
