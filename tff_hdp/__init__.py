"""Hierarchical differential privacy in TensorFlow Federated."""

__version__ = "0.1.0"
