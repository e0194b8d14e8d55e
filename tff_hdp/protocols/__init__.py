"""Protocols between parties that need not trust each other. Imports no TensorFlow."""
