"""Zones: who talks to whom."""

from tff_hdp.topology.builders import (
    dominant_labels,
    equal_zones,
    with_levels,
    zones_by_capability,
    zones_by_key,
    zones_by_overlay,
    zones_of_sizes,
)
from tff_hdp.topology.files import load_zones
from tff_hdp.topology.zoning import Zoning, one_zone

__all__ = [
    "Zoning",
    "dominant_labels",
    "equal_zones",
    "load_zones",
    "one_zone",
    "with_levels",
    "zones_by_capability",
    "zones_by_key",
    "zones_by_overlay",
    "zones_of_sizes",
]
