"""Hierarchical differential privacy in TensorFlow Federated.

*Who adds noise to what, in which zone, and who sees the result*: that is one value, a
`NoisePlan`. The aggregator is built from it and epsilon is computed from it.

Say who noises, and what it is worth (no TensorFlow):
  configurations     plans by name: none, cdp, hdp, ldp, and C1..C7 of Table I
  NoisePlan          any other plan
  PoissonSampling    how a round's cohort is drawn (others in tff_hdp.privacy)
  Clipping           how an update is bounded
  ThreatModel        what is assumed of the parties
  account            epsilon for every observer and kind of client
  calibrate          the noise for one target epsilon
  plan               the least noise that keeps several promises
  Ledger             the rounds that were really run, and their account

Say who takes part:
  Zoning             which client is in which zone
  load_task          a data set split over clients, with a model
  client, zoned_model
                     a client's own data set with its zone, and the model that
                     carries it through TFF's own federated averaging

Train:
  HierarchicalMeanFactory, UnweightedHierarchicalMeanFactory, round_events
                     the mean over zones as `tff.aggregators` factories, and what
                     its noise emitted, for the ledger
  single_clients, stacked_clients
                     how the clients of `build_hdp` train
  build_hdp, build_hfl_dp, build_gfl, build_fl_top, build_udp_hypernet
                     a learning process of each of the five systems
  set_context        where TFF computations run
  run                a whole training run, from its settings to its folder

`ArgumentError` is what an argument that is out of range raises in any of these. Names
are imported when they are first used: importing this package imports no TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks import load as load_task
    from tff_hdp.aggregators import (
        HierarchicalMeanFactory,
        UnweightedHierarchicalMeanFactory,
        client,
        round_events,
        zoned_model,
    )
    from tff_hdp.errors import ArgumentError
    from tff_hdp.privacy import (
        Clipping,
        Ledger,
        NoisePlan,
        PoissonSampling,
        ThreatModel,
        account,
        calibrate,
        configurations,
    )
    from tff_hdp.privacy.planner import plan
    from tff_hdp.runtime import set_context
    from tff_hdp.simulation.experiment import run
    from tff_hdp.systems.fl_top.process import build_fl_top
    from tff_hdp.systems.gfl.process import build_gfl
    from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
    from tff_hdp.systems.hdp.process import build_hdp
    from tff_hdp.systems.hfl_dp.process import build_hfl_dp
    from tff_hdp.systems.udp_hypernet.process import build_udp_hypernet
    from tff_hdp.topology import Zoning

from tff_hdp.runtime import environment

environment.prepare()  # Before anything imports TensorFlow, which reads it only then.

__version__ = "0.2.0"

__all__ = [
    "ArgumentError",
    "Clipping",
    "HierarchicalMeanFactory",
    "Ledger",
    "NoisePlan",
    "PoissonSampling",
    "ThreatModel",
    "UnweightedHierarchicalMeanFactory",
    "Zoning",
    "__version__",
    "account",
    "build_fl_top",
    "build_gfl",
    "build_hdp",
    "build_hfl_dp",
    "build_udp_hypernet",
    "calibrate",
    "client",
    "configurations",
    "load_task",
    "plan",
    "round_events",
    "run",
    "set_context",
    "single_clients",
    "stacked_clients",
    "zoned_model",
]

# Module, and the name there if it is another; tff_hdp.privacy has the rest.
_HOMES = {
    "ArgumentError": "tff_hdp.errors",
    "HierarchicalMeanFactory": "tff_hdp.aggregators",
    "UnweightedHierarchicalMeanFactory": "tff_hdp.aggregators",
    "Zoning": "tff_hdp.topology",
    "build_fl_top": "tff_hdp.systems.fl_top.process",
    "build_gfl": "tff_hdp.systems.gfl.process",
    "build_hdp": "tff_hdp.systems.hdp.process",
    "build_hfl_dp": "tff_hdp.systems.hfl_dp.process",
    "build_udp_hypernet": "tff_hdp.systems.udp_hypernet.process",
    "client": "tff_hdp.aggregators",
    "configurations": "tff_hdp.privacy.configurations",
    "load_task": "tasks:load",
    "plan": "tff_hdp.privacy.planner",
    "round_events": "tff_hdp.aggregators",
    "run": "tff_hdp.simulation.experiment",
    "set_context": "tff_hdp.runtime",
    "single_clients": "tff_hdp.systems.hdp.clients",
    "stacked_clients": "tff_hdp.systems.hdp.clients",
    "zoned_model": "tff_hdp.aggregators",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    path, _, alias = _HOMES.get(name, "tff_hdp.privacy").partition(":")
    module = importlib.import_module(path)
    is_module = path.endswith(f".{name}")
    globals()[name] = module if is_module else getattr(module, alias or name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
