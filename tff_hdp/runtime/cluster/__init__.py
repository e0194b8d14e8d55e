"""Runs any TFF computation with the clients' work on TFF workers of many machines."""

from tff_hdp.runtime.cluster.context import ClusterContext, ClusterError

__all__ = ["ClusterContext", "ClusterError"]
