"""Aggregation factories for zones."""

from tff_hdp.aggregators.factory import (
    HierarchicalMeanFactory,
    UnweightedHierarchicalMeanFactory,
)
from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.levels import queries_from_plan
from tff_hdp.aggregators.measured import round_events
from tff_hdp.aggregators.zoned_model import WEIGHT_TYPE, client, zoned_model

__all__ = [
    "WEIGHT_TYPE",
    "HierarchicalMeanFactory",
    "LevelQueries",
    "UnweightedHierarchicalMeanFactory",
    "client",
    "queries_from_plan",
    "round_events",
    "zoned_model",
]
