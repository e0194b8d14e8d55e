"""A folder for each system, and beside them what several share.

A folder's `config.py` is TensorFlow-free; its fields are the binary's flags, and its
`build(folder)` returns the `System` of the folder's `run.py` that the training loop
runs.
"""
