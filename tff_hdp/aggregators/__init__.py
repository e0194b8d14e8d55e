"""Aggregation factories for zones."""

from tff_hdp.aggregators.factory import WEIGHT_TYPE, HierarchicalMeanFactory
from tff_hdp.aggregators.levels import LevelQueries, queries_from_plan
from tff_hdp.aggregators.secure_factory import SecureHierarchicalMeanFactory

__all__ = [
    "WEIGHT_TYPE",
    "HierarchicalMeanFactory",
    "LevelQueries",
    "SecureHierarchicalMeanFactory",
    "queries_from_plan",
]
