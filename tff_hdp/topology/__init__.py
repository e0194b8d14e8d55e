"""Zones: who talks to whom."""

from tff_hdp.topology.zoning import Zoning, equal_zones

__all__ = ["Zoning", "equal_zones"]
