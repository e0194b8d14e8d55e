"""FEMNIST and CelebA from small files in TFF's format."""

import sqlite3

import numpy as np
import pytest

import tasks
from tasks import celeba, emnist, personal
from tff_hdp.errors import FileError

CLIENTS = {"a": (3, 1), "b": (2, 2), "c": (4, 1)}


def femnist_example(rng):
    label = int(rng.integers(62))
    pixels = rng.integers(0, 256, (28, 28))
    arrays = {"pixels": pixels / 255, "label": label}
    return (255 - pixels)[..., np.newaxis], label, arrays


def celeba_example(rng):
    image = rng.integers(0, 256, (84, 84, 3))
    attributes = {name: int(rng.integers(2)) for name in ("male", "smiling", "young")}
    return image, attributes["smiling"], attributes | {"image": image}


CASES = {
    "femnist": (emnist.ALL_FILE, femnist_example),
    "celeba": (celeba.FILE, celeba_example),
}


@pytest.fixture
def write(write_clients):
    """Writes the file; returns features and labels by split and client."""

    def write_file(path, file, make):
        rng = np.random.default_rng(0)
        examples, written = [], {}
        for client, sizes in CLIENTS.items():
            for split, size in zip(file.splits, sizes, strict=True):
                for _ in range(size):
                    features, label, arrays = make(rng)
                    examples.append((split, client, arrays))
                    written.setdefault((split, client), []).append((features, label))
        write_clients(path, examples)
        return written

    return write_file


def multiset(pairs):
    return sorted((np.uint8(x).tobytes(), int(y)) for x, y in pairs)


@pytest.mark.parametrize("name", CASES)
def test_the_file_is_read_client_by_client(write, name, tmp_path, no_network):
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
def test_fewer_writers_keep_their_own_tests(write, name, tmp_path, no_network):
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


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("femnist", "pixels", (2.0, -0.5, np.nan, 255.0)),
        ("celeba", "image", (300, -1)),
    ],
)
def test_pixels_that_would_wrap_are_refused(
    write, name, column, values, tmp_path, no_network
):
    file, make = CASES[name]
    for number, value in enumerate(values):

        def spoilt(rng, value=value):
            features, label, arrays = make(rng)
            arrays[column] = arrays[column].copy()
            arrays[column].flat[5] = value
            return features, label, arrays

        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / file.name, file, spoilt)
        with pytest.raises(FileError, match=r"is no file of TFF's: .*pixels beyond 0"):
            tasks.load(name, data_dir=str(folder))


def empty(path):
    path.write_bytes(b"")


def without_a_table(path):
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE examples")


def without_tests(path):
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM examples WHERE split_name LIKE '%test'")
        database.execute("DELETE FROM client_metadata WHERE split_name LIKE '%test'")


def without_a_name(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE examples SET client_id = NULL WHERE client_id = 'a'")


@pytest.mark.parametrize(
    "damage", [empty, without_a_table, without_tests, without_a_name]
)
def test_a_damaged_file_is_one_line(write, damage, tmp_path, no_network):
    file, make = CASES["femnist"]
    write(tmp_path / file.name, file, make)
    damage(tmp_path / file.name)
    with pytest.raises(FileError, match=rf"{file.name}: is no file of TFF's") as caught:
        tasks.load("femnist", data_dir=str(tmp_path))
    assert "\n" not in str(caught.value)
