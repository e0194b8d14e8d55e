"""Runs any TFF computation with the clients' work on TFF workers of many machines."""

from tff_hdp.runtime.cluster.context import (
    ClusterContext,
    ClusterError,
    RemoteWorker,
    check_addresses,
)

__all__ = ["ClusterContext", "ClusterError", "RemoteWorker", "check_addresses"]
