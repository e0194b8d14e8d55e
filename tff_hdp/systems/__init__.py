"""A folder for each system, and beside them what several share.

A folder's `config.py` is TensorFlow-free and its fields are the binary's flags; the
`build(config, folder)` of its `run.py` returns the `System` that the training loop
runs.
"""
