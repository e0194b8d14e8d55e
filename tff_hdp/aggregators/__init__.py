"""Aggregation factories for zones."""

from tff_hdp.aggregators.hierarchical import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.aggregators.levels import LevelQueries, queries_from_plan

__all__ = [
    "WEIGHT_TYPE",
    "HierarchicalMeanFactory",
    "LevelQueries",
    "queries_from_plan",
]
