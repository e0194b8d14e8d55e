"""What each system must be asked for, so that all have one epsilon."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from scipy import optimize

import tasks
from scripts.papers.comparison.config import MatchedConfig
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import AccountRow, calibrate, worst
from tff_hdp.simulation.config import RunConfig
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl import plan as gfl
from tff_hdp.systems.gfl.account import account as gfl_account
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp import noise as formulas
from tff_hdp.systems.hfl_dp.account import account as hfl_dp_account
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.plan import rounds_of
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

Builder = Callable[[MatchedConfig, dict[str, Any]], RunConfig]


def build_config(config: MatchedConfig, name: str) -> RunConfig:
    """The settings of one system, noised for the target.

    Args:
      config: The comparison's.
      name: One of `SYSTEMS`.
    """
    # Models are each system's own.
    names = {field.name for field in dataclasses.fields(RunConfig)} - {"model"}
    shared = {field: getattr(config, field) for field in names}
    shared["out"] = str(pathlib.Path(config.out) / name)
    return _BUILDERS[name](config, shared)


def without_noise(built: RunConfig) -> RunConfig:
    """The settings of a system without noise, nor a clip but GFL's of gradients."""
    changes, unused = _WITHOUT_NOISE[built.system]
    defaults = {f.name: f.default for f in dataclasses.fields(built)}
    return dataclasses.replace(
        built, **changes, **{name: defaults[name] for name in unused}
    )


def released(rows: Sequence[AccountRow]) -> AccountRow:
    """The row of who is worst off by RDP against whoever gets what is released."""
    return worst(rows, "released_model", method="rdp")


def _hdp(config: MatchedConfig, shared: dict[str, Any]) -> RunConfig:
    return HdpConfig(
        **shared,
        model=config.model,
        privacy="hdp",
        zones=config.groups,
        clients_per_round=config.clients_per_round,
        local_epochs=config.local_epochs,
        batch_size=config.batch_size,
        client_learning_rate=config.client_learning_rate,
        clip_norm=config.clip_norm,
        target_epsilon=config.target_epsilon,
    )


def _udp_hypernet(config: MatchedConfig, shared: dict[str, Any]) -> RunConfig:
    width = 16
    return UdpHypernetConfig(
        **shared,
        model=config.personal_model,
        sampling_rate=config.clients_per_round / config.num_clients,
        clip_norm=config.clip_norm,
        target_epsilon=config.target_epsilon,
        local_steps=10,
        batch_size=config.batch_size,
        client_learning_rate=config.client_learning_rate,
        hidden_width=width,
        # A step of size lambda moves theta_u by about lambda (width + 1) times it.
        server_learning_rate=1.0 / (width + 1),
        descriptor_learning_rate=0.5,
        tests_per_user=10,
    )


def _fl_top(config: MatchedConfig, shared: dict[str, Any]) -> RunConfig:
    asked = FlTopConfig(
        **shared,
        model=config.model,
        scheme="fl_top_dp",
        clients_per_round=config.clients_per_round,
        local_epochs=config.local_epochs,
        batch_size=config.batch_size,
        client_learning_rate=config.client_learning_rate,
        clip_norm=config.clip_norm,
        noise_multiplier=1.0,
    )
    from tff_hdp.systems.fl_top.setup import load_with_public

    # Whose examples are public takes no part.
    task, _ = load_with_public(asked, config.seed or 0)
    clients = len(task.train.client_ids)
    sigma = calibrate(
        lambda z: fl_top_dp.plan(
            clients=clients, per_round=config.clients_per_round, sigma=z
        ),
        target_epsilon=config.target_epsilon,
        observer="released_model",
        rounds=config.rounds,
        delta=config.delta,
        threat=fl_top_dp.THREAT,
    )
    return dataclasses.replace(asked, noise_multiplier=sigma)


def _hfl_dp(config: MatchedConfig, shared: dict[str, Any]) -> RunConfig:
    """Eps1 = eps2 are turned until all rounds together meet the target."""
    asked = HflDpConfig(
        **shared,
        model=config.model,
        noise="exact",
        edges=config.groups,
        batch_size=config.batch_size,
        learning_rate=config.client_learning_rate,
        clip_norm=config.model_norm,
    )
    n, N, C = config.num_clients // config.groups, config.groups, asked.clip_norm

    def epsilon(per_quantity: float) -> float:
        noise = formulas.exact_noise(
            formulas.Setting(
                n=n,
                N=N,
                C=C,
                eps1=per_quantity,
                eps2=per_quantity,
                delta=config.delta,
                t=formulas.exposures(config.rounds, asked.k2),
            )
        )
        kinds = zip(rounds_of(noise, n=n, N=N, C=C), asked.rounds_by_kind, strict=True)
        history = [(kind, count) for kind, count in kinds if count]
        return _epsilon(hfl_dp_account(history, config.delta, ("rdp",)))

    found = 1.0 / _least(lambda x: epsilon(1.0 / x), config.target_epsilon)
    return dataclasses.replace(asked, eps1=found, eps2=found)


def _gfl(config: MatchedConfig, shared: dict[str, Any]) -> RunConfig:
    """Independent noise: graph-homomorphic noise cancels in what is released."""
    if config.clients_per_round % config.groups:
        raise ArgumentError(
            "clients_per_round",
            config.clients_per_round,
            f"a multiple of groups={config.groups}, whose servers draw equally many",
        )
    asked = GflConfig(
        **shared,
        model="softmax",
        scheme="iid",
        servers=config.groups,
        per_round=config.clients_per_round // config.groups,
        mu=config.client_learning_rate,
        gradient_bound=config.gradient_bound,
        batch_size=config.batch_size,
    )
    shape = tasks.TASKS[config.task].model_shape
    inputs = math.prod(shape["input_shape"])

    def epsilon(sigma_g: float) -> float:
        plan = gfl.GflPlan(
            scheme=asked.scheme,
            mu=asked.mu,
            B=asked.gradient_bound,
            sigma_g=sigma_g,
            dimension=(inputs + 1) * shape["num_classes"],
            clients=config.num_clients // config.groups,
            per_round=asked.per_round,
        )
        return _epsilon(gfl_account([(plan, config.rounds)], config.delta, ("rdp",)))

    sigma_g = _least(epsilon, config.target_epsilon)
    return dataclasses.replace(asked, sigma_g=sigma_g)


_BUILDERS: dict[str, Builder] = {
    "hdp": _hdp,
    "fl_top": _fl_top,
    "hfl_dp": _hfl_dp,
    "gfl": _gfl,
    "udp_hypernet": _udp_hypernet,
}

# What takes a system's noise away, and what is then of no use.
_WITHOUT_NOISE: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "hdp": ({"privacy": "none"}, ("target_epsilon", "clip_norm")),
    "fl_top": ({"scheme": "fl_top"}, ("noise_multiplier", "clip_norm")),
    "hfl_dp": ({"noise": "none"}, ("eps1", "eps2", "clip_norm")),
    "gfl": ({"scheme": "none"}, ("sigma_g",)),
    "udp_hypernet": ({"privacy": "none"}, ("target_epsilon", "clip_norm")),
}


def _epsilon(rows: Sequence[AccountRow]) -> float:
    found = released(rows).epsilon_rdp
    return math.inf if found is None else found


def _least(epsilon: Callable[[float], float], target: float) -> float:
    """The least x > 0 with epsilon(x) <= target, for a falling `epsilon`."""
    high = 1.0
    while epsilon(high) > target:
        high *= 2.0
    low = high / 2.0
    while epsilon(low) <= target:
        low /= 2.0
    root = optimize.brentq(lambda x: epsilon(x) - target, low, high, rtol=1e-6)
    while epsilon(root) > target:
        root *= 1.0 + 1e-6
    return float(root)
