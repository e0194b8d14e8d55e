"""Hierarchical differential privacy in TensorFlow Federated."""

from tff_hdp.runtime import environment

environment.prepare()  # Before anything imports TensorFlow, which reads it only then.

__version__ = "0.1.0"
