import gzip
import http.client
import io
import lzma
import pathlib
import sqlite3
import struct
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks import emnist, originals
from tff_hdp.errors import FileError

CLIENTS = {"f0000_14": (5, 2), "f0001_41": (3, 1), "f0002_07": (4, 3)}


@pytest.fixture
def write_emnist(write_clients):
    """Writes a small file in the format of TFF's federated EMNIST.

    Returns, by split and writer, grey levels [n, 28, 28] (255 is paper) and labels.
    """

    def write(path, rng):
        examples, written = [], {}
        for writer, sizes in CLIENTS.items():
            for split, size in zip(("train", "test"), sizes, strict=True):
                grey = rng.integers(0, 256, (size, 28, 28))
                labels = rng.integers(0, 10, size)
                written[split, writer] = grey, labels
                for image, label in zip(grey, labels, strict=True):
                    arrays = {"pixels": image / 255, "label": label}
                    examples.append((f"digits_only_{split}", writer, arrays))
        write_clients(path, examples)
        return written

    return write


def multiset(images, labels):
    flat = images.reshape(len(labels), -1).astype(np.uint8)
    return sorted((x.tobytes(), int(y)) for x, y in zip(flat, labels, strict=True))


def test_emnist_file_is_read_writer_by_writer(write_emnist, tmp_path, no_network):
    written = write_emnist(tmp_path / "emnist_all.sqlite", np.random.default_rng(0))
    task = tasks.load("emnist", data_dir=str(tmp_path))
    assert task.train.client_ids == tuple(CLIENTS)
    assert task.train.sizes.tolist() == [5, 3, 4]
    for i, writer in enumerate(CLIENTS):
        grey, labels = written["train", writer]
        features, classes = task.train.examples(i)
        assert multiset(features, classes) == multiset(255 - grey, labels)
    tests = [written["test", writer] for writer in CLIENTS]
    grey, labels = map(np.concatenate, zip(*tests, strict=True))
    assert multiset(task.test_features, task.test_labels) == multiset(
        255 - grey, labels
    )
    iid = tasks.load("emnist", data_dir=str(tmp_path), partition="iid", num_clients=6)
    assert iid.train.sizes.tolist() == [2] * 6


def test_emnist_arrays_are_what_tff_reads(write_emnist, tmp_path, no_network):
    import tensorflow_federated as tff

    write_emnist(tmp_path / "emnist_all.sqlite", np.random.default_rng(2))
    arrays = emnist.DIGITS_FILE.read(tmp_path)
    clients = tff.simulation.datasets.emnist.load_data(cache_dir=str(tmp_path))
    for (pixels, labels, writers), data in zip(arrays.values(), clients, strict=True):
        for writer in CLIENTS:
            examples = list(
                data.create_tf_dataset_for_client(writer).as_numpy_iterator()
            )
            of_writer = writers == writer
            np.testing.assert_array_equal(
                pixels[of_writer],
                np.rint([255 * example["pixels"] for example in examples]),
            )
            np.testing.assert_array_equal(
                labels[of_writer], [example["label"] for example in examples]
            )


def test_an_emnist_file_that_lost_a_writer_is_refused(
    write_emnist, tmp_path, no_network
):
    path = tmp_path / "emnist_all.sqlite"
    write_emnist(path, np.random.default_rng(3))
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM examples WHERE client_id = 'f0001_41'")
    with pytest.raises(FileError, match="lists other clients"):
        tasks.load("emnist", data_dir=str(tmp_path))


@pytest.fixture
def emnist_server(write_emnist, tmp_path, monkeypatch):
    """Serves the compressed file in place of the network; counts the downloads."""
    source = tmp_path / "served.sqlite"
    write_emnist(source, np.random.default_rng(1))
    served = {"content": lzma.compress(source.read_bytes()), "downloads": 0}

    class Response(io.BytesIO):
        headers = {}  # noqa: RUF012

    def urlopen(request, timeout=None):
        if isinstance(request, urllib.request.Request):
            assert request.get_method() == "HEAD"
            return Response(b"")
        assert request == emnist.DIGITS_FILE.origin
        served["downloads"] += 1
        if served["content"] is None:
            raise urllib.error.URLError("cut off")
        return Response(served["content"])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return served


def test_emnist_is_downloaded_once(tmp_path, emnist_server):
    folder = tmp_path / "data"
    folder.mkdir()
    for _ in range(2):
        task = tasks.load("emnist", data_dir=str(folder))
        assert task.train.sizes.tolist() == [5, 3, 4]
    assert emnist_server["downloads"] == 1
    assert [path.name for path in folder.iterdir()] == ["emnist_all.sqlite"]


def test_an_interrupted_emnist_download_leaves_nothing(tmp_path, emnist_server):
    folder = tmp_path / "data"
    folder.mkdir()
    emnist_server["content"] = None
    with pytest.raises(tasks.DataNotFoundError, match="cut off"):
        tasks.load("emnist", data_dir=str(folder))
    assert list(folder.iterdir()) == []


def test_a_truncated_emnist_download_leaves_nothing(tmp_path, emnist_server):
    folder = tmp_path / "data"
    folder.mkdir()
    emnist_server["content"] = emnist_server["content"][:8000]
    with pytest.raises(tasks.DataNotFoundError, match=r"fetching emnist_all.sqlite"):
        tasks.load("emnist", data_dir=str(folder))
    assert list(folder.iterdir()) == []


def test_a_failing_tfds_download_is_reported(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO())

    def fail(self, **kwargs):
        raise tfds.download.DownloadError("HTTP code: 404")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(tasks.DataNotFoundError, match="cifar10 failed: HTTP code: 404"):
        tasks.load("cifar10", data_dir=str(tmp_path))


def write_tfds(name, folder):
    """Prepares a small data set as TensorFlow Datasets does; returns its arrays."""
    import tensorflow_datasets as tfds

    dataset = tasks.TASKS[name]
    builder = tfds.builder(name, data_dir=folder)
    rng = np.random.default_rng(0)
    written = {
        split: {
            key: rng.integers(
                0,
                256 if key == "image" else builder.info.features[key].num_classes,
                (count, *dataset.input_shape) if key == "image" else count,
            ).astype(np.uint8 if key == "image" else np.int64)
            for key in builder.info.features
            if key != "id"
        }
        for split, count in (("train", 24), ("test", 6))
    }
    for split in written.values():
        if "id" in builder.info.features:
            split["id"] = np.array([f"{i:05d}" for i in range(len(split["label"]))])
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=str(builder.version),
        features=builder.info.features,
        split_datasets={
            split: tf.data.Dataset.from_tensor_slices(arrays)
            for split, arrays in written.items()
        },
        data_dir=folder,
    )
    return written


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion_mnist"])
def test_prepared_tfds_folder_is_read(name, tmp_path, no_network):
    written = write_tfds(name, tmp_path)
    task = tasks.load(name, data_dir=str(tmp_path), num_clients=3)
    assert "TensorFlow Datasets" in task.description
    pairs = [(written[split]["image"], written[split]["label"]) for split in written]
    images, labels = map(np.concatenate, zip(*pairs, strict=True))
    assert multiset(
        np.concatenate([task.train.features, task.test_features]),
        np.concatenate([task.train.labels, task.test_labels]),
    ) == multiset(images, labels)
    if name == "fashion_mnist":
        assert multiset(task.test_features, task.test_labels) == multiset(*pairs[1])


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("fashion_mnist-train.tfrecord-*", cut),
        ("fashion_mnist-train.tfrecord-*", flip_a_bit),
        ("fashion_mnist-test.tfrecord-*", pathlib.Path.unlink),
        ("dataset_info.json", cut),
    ],
)
def test_a_damaged_tfds_folder_is_one_line(file, damage, tmp_path, no_network):
    write_tfds("fashion_mnist", tmp_path)
    (path,) = tmp_path.glob(f"fashion_mnist/*/{file}")
    damage(path)
    message = r"/fashion_mnist: is no folder of TensorFlow Datasets': \w+: "
    with pytest.raises(FileError, match=message) as error:
        tasks.load("fashion_mnist", data_dir=str(tmp_path), num_clients=3)
    assert "\n" not in str(error.value)


def write_idx(path, array):
    code = {"uint8": 0x08, "int32": 0x0C}[array.dtype.name]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + array.astype(array.dtype.newbyteorder(">")).tobytes())


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_idx_files_come_back(dtype, tmp_path):
    array = np.random.default_rng(0).integers(0, 200, (4, 3, 2)).astype(dtype)
    write_idx(tmp_path / "a.gz", array)
    np.testing.assert_array_equal(originals.read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "is not an IDX file"),
        (b"\0\0\x08\x01\0\0\0\x05abc", r"states shape \(5,\) and holds 3 bytes of 5"),
        (b"\0\0\x0c\x01\0\0\0\x02abcdefg", r"shape \(2,\) and holds 7 bytes of 8"),
        (b"\0\0\x08\x03\0\0\0\x05", "states 3 axes and ends before their sizes"),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(content)
    with pytest.raises(FileError, match=message):
        originals.read_idx(tmp_path / "a.gz")


@pytest.mark.parametrize("spoil", ["cut", "flip", "replace"])
def test_a_damaged_archive_is_one_line(spoil, tmp_path):
    path = tmp_path / "a.gz"
    write_idx(path, np.arange(4000, dtype=np.int32))
    content = bytearray(path.read_bytes())
    if spoil == "cut":
        del content[len(content) // 2 :]
    elif spoil == "replace":
        content = b"<html>"
    else:
        content[12:40] = bytes(28)
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"a\.gz: is damaged"):
        originals.read_idx(path)


def test_a_download_that_is_cut_short_is_none(monkeypatch, tmp_path):
    class Cut(io.BytesIO):
        def read(self, *_):
            raise http.client.IncompleteRead(b"half", 100)

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Cut())
    with pytest.raises(originals.UnavailableError, match="could not be fetched"):
        originals._fetch("https://example.org/a", tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def mnist_originals(tmp_path, need):
    """The pack's contents written as the original files would be."""
    with np.load(need("mnist_qmnist_writers.npz")) as pack:
        for split, (images, labels) in originals.MNIST_FILES.items():
            table = np.zeros((len(pack[f"y_{split}"]), 8), np.int32)
            table[:, 0] = pack[f"y_{split}"]
            table[:, 1] = pack[f"hsf_{split}"]
            table[:, 2] = pack[f"writer_{split}"]
            table[:, 3] = pack[f"digit_in_writer_{split}"]
            table[:, 4] = table[:, 0] + 30
            table[:, 5] = pack[f"nist_index_{split}"]
            if split == "test":  # QMNIST's test set goes on after MNIST's.
                table = np.concatenate([table, np.full_like(table[:50], 9)])
            write_idx(tmp_path / images, pack[f"x_{split}"])
            write_idx(tmp_path / labels, table)
    return tmp_path


def test_mnist_originals_make_the_same_federation_as_the_pack(
    mnist_originals, data_dir, no_network
):
    ours = tasks.load("mnist", data_dir=str(mnist_originals))
    packed = tasks.load("mnist", data_dir=str(data_dir))
    assert ours.train.client_ids == packed.train.client_ids
    np.testing.assert_array_equal(ours.train.features, packed.train.features)
    np.testing.assert_array_equal(ours.train.labels, packed.train.labels)
    np.testing.assert_array_equal(ours.train.offsets, packed.train.offsets)
    np.testing.assert_array_equal(ours.test_features, packed.test_features)


def test_altered_mnist_originals_are_refused(mnist_originals, no_network):
    file = mnist_originals / originals.MNIST_FILES["train"][1]
    table = originals.read_idx(file).astype(np.int32)
    table[[0, 1]] = table[[1, 0]]
    write_idx(file, table)
    with pytest.raises(FileError, match="does not hold MNIST's train labels"):
        tasks.load("mnist", data_dir=str(mnist_originals))


def test_labels_without_writers_are_not_qmnists(mnist_originals, no_network):
    file = mnist_originals / originals.MNIST_FILES["train"][1]
    write_idx(file, originals.read_idx(file)[:, 0].astype(np.int32))
    with pytest.raises(FileError, match=r"int\.gz: is without writers"):
        tasks.load("mnist", data_dir=str(mnist_originals))


def test_mnist_files_are_fetched_whole(tmp_path, monkeypatch):
    fetched = []

    def urlopen(url, timeout=None):
        fetched.append(url)
        if "t10k" in url:
            raise urllib.error.URLError("cut off")
        content = io.BytesIO()
        write_idx(content, np.zeros((2, 28, 28), np.uint8))
        return io.BytesIO(content.getvalue())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(FileError, match="does not hold MNIST's train images"):
        tasks.load("mnist", data_dir=str(tmp_path))
    assert [url.rpartition("/")[2] for url in fetched] == list(
        originals.MNIST_FILES["train"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        originals.MNIST_FILES["train"]
    )
