"""Cohorts, the training loop, the run folder and its reports."""
