"""What the tests of tasks share: packs, files in TFF's format, and no network."""

import collections
import sqlite3
import urllib.error
import urllib.request

import numpy as np
import pytest


@pytest.fixture
def no_network(monkeypatch):
    """Every request fails at once, as on a machine without a network."""

    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.fixture
def write_clients():
    """Writes a file as TFF keeps the clients of a data set: an example a row.

    Examples are triples of split, client and, by name, arrays of floats or integers,
    or bytes.
    """
    import tensorflow as tf

    def proto(arrays):
        features = {}
        for name, values in arrays.items():
            if isinstance(values, bytes):
                text = tf.train.BytesList(value=[values])
                features[name] = tf.train.Feature(bytes_list=text)
                continue
            values = np.ravel(values)
            if values.dtype.kind == "f":
                floats = tf.train.FloatList(value=values)
                features[name] = tf.train.Feature(float_list=floats)
            else:
                integers = tf.train.Int64List(value=values)
                features[name] = tf.train.Feature(int64_list=integers)
        example = tf.train.Example(features=tf.train.Features(feature=features))
        return example.SerializeToString()

    def write(path, examples):
        sizes = collections.Counter()
        with sqlite3.connect(path) as database:
            database.execute(
                "CREATE TABLE examples "
                "(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
            )
            database.execute(
                "CREATE TABLE client_metadata "
                "(client_id TEXT, split_name TEXT, num_examples INTEGER)"
            )
            for split, client, arrays in examples:
                database.execute(
                    "INSERT INTO examples VALUES (?, ?, ?)",
                    (split, client, proto(arrays)),
                )
                sizes[client, split] += 1
            database.executemany(
                "INSERT INTO client_metadata VALUES (?, ?, ?)",
                [(*key, size) for key, size in sizes.items()],
            )
        database.close()

    return write
