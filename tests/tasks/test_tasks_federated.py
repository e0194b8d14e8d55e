"""FEMNIST and CelebA from small files in TFF's format."""

import sqlite3

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks import celeba, emnist, personal

CLIENTS = {"a": (3, 1), "b": (2, 2), "c": (4, 1)}


def int_feature(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def float_feature(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def femnist_example(rng):
    label = int(rng.integers(62))
    pixels = rng.integers(0, 256, (28, 28))
    proto = {
        "pixels": float_feature((pixels / 255).ravel()),
        "label": int_feature([label]),
    }
    return (255 - pixels)[..., np.newaxis], label, proto


def celeba_example(rng):
    image = rng.integers(0, 256, (84, 84, 3))
    attributes = {name: int(rng.integers(2)) for name in ("male", "smiling", "young")}
    proto = {name: int_feature([value]) for name, value in attributes.items()}
    return (
        image,
        attributes["smiling"],
        proto | {"image": int_feature(image.ravel())},
    )


CASES = {
    "femnist": (emnist.ALL_FILE, femnist_example),
    "celeba": (celeba.FILE, celeba_example),
}


def write(path, file, make):
    """Writes the file; returns features and labels by split and client."""
    rng = np.random.default_rng(0)
    written = {}
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE examples "
            "(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        database.execute(
            "CREATE TABLE client_metadata "
            "(client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        for client, sizes in CLIENTS.items():
            for split, size in zip(file.splits, sizes, strict=True):
                database.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)",
                    (client, split, size),
                )
                for _ in range(size):
                    features, label, proto = make(rng)
                    example = tf.train.Example(
                        features=tf.train.Features(feature=proto)
                    )
                    database.execute(
                        "INSERT INTO examples VALUES (?, ?, ?)",
                        (split, client, example.SerializeToString()),
                    )
                    written.setdefault((split, client), []).append((features, label))
    return written


def multiset(pairs):
    return sorted((np.uint8(x).tobytes(), int(y)) for x, y in pairs)


@pytest.mark.parametrize("name", CASES)
def test_the_file_is_read_client_by_client(name, tmp_path, no_network):
    file, make = CASES[name]
    written = write(tmp_path / file.name, file, make)
    task = tasks.load(name, data_dir=str(tmp_path))
    train, test = personal.split(task, seed=0)
    assert train.client_ids == tuple(CLIENTS)
    for data, split in zip((train, test), file.splits, strict=True):
        for i, client in enumerate(CLIENTS):
            found = zip(*data.examples(i), strict=True)
            assert multiset(found) == multiset(written[split, client])


@pytest.mark.parametrize("name", CASES)
def test_fewer_writers_keep_their_own_tests(name, tmp_path, no_network):
    file, make = CASES[name]
    written = write(tmp_path / file.name, file, make)
    task = tasks.load(name, data_dir=str(tmp_path), num_clients=2, seed=5)
    _, test = personal.split(task, seed=0)
    assert len(test.client_ids) == 2
    for i, client in enumerate(test.client_ids):
        found = zip(*test.examples(i), strict=True)
        assert multiset(found) == multiset(written[file.splits[1], client])


@pytest.mark.parametrize("name", CASES)
def test_a_missing_file_is_named(name, tmp_path, no_network):
    file, _ = CASES[name]
    with pytest.raises(tasks.DataNotFoundError, match=file.name):
        tasks.load(name, data_dir=str(tmp_path))
