"""Secure aggregation: the sum of the updates and nothing else."""
