"""Secure aggregation: the sum of the updates and nothing else."""

from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg.client import Client, Phase
from tff_hdp.protocols.secagg.errors import BelowThresholdError, SecureAggregationError
from tff_hdp.protocols.secagg.fixed_point import FixedPoint
from tff_hdp.protocols.secagg.graphs import MaskingGraph, complete, sparse
from tff_hdp.protocols.secagg.messages import Round
from tff_hdp.protocols.secagg.real_sums import SecureSum, secure_sum
from tff_hdp.protocols.secagg.rounds import PROTOCOLS, masking_graph, run_round
from tff_hdp.protocols.secagg.server import Server

__all__ = [
    "PROTOCOLS",
    "BelowThresholdError",
    "Client",
    "FixedPoint",
    "MaskingGraph",
    "Meter",
    "Phase",
    "Round",
    "SecureAggregationError",
    "SecureSum",
    "Server",
    "complete",
    "masking_graph",
    "run_round",
    "secure_sum",
    "sparse",
]
