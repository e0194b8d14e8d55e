"""GFL under attack: by the client's own server, all others, and who gets all."""

import collections
import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from tff_hdp.attacks.setting import (
    NONE,
    Example,
    Round,
    Setting,
    SystemUnderAttack,
    first_round,
)
from tff_hdp.clients.batches import dataset_of_one
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.parts import check_norm
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.systems.gfl import account as gfl_account
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.process import build_gfl, cohort_type, noised


def under_attack(setting: Setting, examples: Sequence[Example]) -> SystemUnderAttack:
    """GFL, hybrid, which clips to mu B; noise is `noise_multiplier` times 2 mu B.

    Args:
      setting: Without a clip norm it is the target's median.
      examples: Not looked at.

    Raises:
      ArgumentError: If GFL does not take the setting.
    """
    del examples
    each, steps = setting.per_zone, setting.target.local_steps
    require(steps == 1, "local_steps", steps, "1 with GFL")
    clip_norm = _clip_norm(setting)
    masks = _masks(each, setting.target.model.size)
    sigma_g = setting.config.noise_multiplier * 2 * clip_norm
    plan = _plan(setting, clip_norm, sigma_g)
    return SystemUnderAttack(
        round=_round(setting, plan, masks),
        quiet=_round(setting, _plan(setting, clip_norm, NONE), masks),
        account=functools.partial(gfl_account.account, [(plan, 1)]),
        clip_norm=clip_norm,
        laplace=frozenset({"other_servers"}),
    )


def _clip_norm(setting: Setting) -> float:
    """Of updates, mu B; an error names the learning rate if GFL takes no such B."""
    mu = setting.target.learning_rate
    clip_norm = setting.config.given_clip_norm or setting.target.median_norm()
    try:
        check_norm("B", clip_norm / mu)
    except ArgumentError as error:
        allowed = f"one that makes clip_norm / learning_rate {error.allowed}"
        raise ArgumentError("learning_rate", mu, allowed) from error
    return clip_norm


def _plan(setting: Setting, clip_norm: float, sigma_g: float) -> GflPlan:
    mu, each = setting.target.learning_rate, setting.per_zone
    return GflPlan(
        scheme="hybrid",
        mu=mu,
        B=clip_norm / mu,
        sigma_g=sigma_g,
        dimension=setting.target.model.size,
        clients=each,
        per_round=each,
    )


def _masks(clients: int, size: int) -> Iterator[np.ndarray]:
    """Of a server's clients, int64 [C, d], never the same twice."""
    names = [str(i) for i in range(clients)]
    masks = PairwiseMasks(names)
    for number in itertools.count():
        yield masks.draw(names, number, size).astype(np.int64)


def _round(setting: Setting, plan: GflPlan, masks: Iterator[np.ndarray]) -> Round:
    """From clients to the first server's model, what it sends, and all models' mean."""
    target, servers = setting.target, setting.config.zones
    shape, dtype = target.features.shape[1:], target.features.dtype
    build = functools.partial(
        build_gfl,
        build_model=setting.build_model,
        data_type=cohort_type(shape, dtype, plan=plan),
        plan=plan,
    )
    mixed = first_round(build(mixing=np.full([servers] * 2, 1 / servers)), target)
    # With nobody to mix with, a server's model is what it has by itself.
    alone = first_round(build(mixing=np.eye(servers)), target)

    def held(clients: Sequence[Example]) -> dict[str, np.ndarray]:
        after = mixed(_cohort(setting, clients, masks))
        psi = alone(_cohort(setting, clients, masks))
        sent, _ = noised(tf.constant(psi), plan.sigma_g)
        return {
            "super_node": np.asarray(psi[0]),
            "other_servers": sent[0].numpy(),
            "released_model": np.mean(after, 0),
        }

    return held


def _cohort(
    setting: Setting, clients: Sequence[Example], masks: Iterator[np.ndarray]
) -> list[tf.data.Dataset]:
    """A data set of `cohort_type` for each server."""
    data = []
    for server, own in enumerate(setting.by_zone(clients)):
        fields = collections.OrderedDict(
            features=np.stack([x for x, _ in own])[np.newaxis, :, np.newaxis],
            labels=np.array([y for _, y in own], np.int32)[np.newaxis, :, np.newaxis],
            zone=np.array([server], np.int32),
            masks=next(masks)[np.newaxis],
        )
        data.append(dataset_of_one(fields))
    return data
