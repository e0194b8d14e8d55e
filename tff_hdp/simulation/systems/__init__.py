"""One pair of files per system: `<name>_config.py` and `<name>.py`.

The config is TensorFlow-free and its fields are the binary's flags; the other
file's `build(config, folder)` returns the `System` that the training loop runs.
"""
