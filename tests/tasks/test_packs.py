import hashlib
import io

import numpy as np
import pytest
from PIL import Image

import tasks
from tasks import mnist, packs
from tasks.dataset import pooled_split
from tff_hdp.errors import ArgumentError, FileError

# SHA-256 of the decoded pixels, in the packs' order.
PIXELS = {
    ("cifar10", "train"): (
        "7491c4fb710eb4bbf7ef06d7ce7dae8c871014527b70ee28bd15a572c77967b9"
    ),
    ("cifar10", "test"): (
        "3a0afb81e20da8bc09b56ea56a45229bbdd869706d11e8484b60772ea8f1fdce"
    ),
    ("cifar100", "train"): (
        "01eb72f9522f71aad3b21f22e246beb00e4e866baa0c20769ef9d141a0d22f87"
    ),
    ("cifar100", "test"): (
        "f05403006e0d9c52e5e3173c812d626f17b0f7c45c5294b394b608a7a81b69ff"
    ),
}


def strip_arrays(split, images, labels, strip=4):
    """Encodes images as lossless WebP strips."""
    encoded = []
    for begin in range(0, len(images), strip):
        buffer = io.BytesIO()
        column = images[begin : begin + strip].reshape(-1, 32, 3)
        Image.fromarray(column).save(buffer, "WEBP", lossless=True, exact=True)
        encoded.append(np.frombuffer(buffer.getvalue(), np.uint8))
    return {
        f"webp_{split}": np.concatenate(encoded),
        f"off_{split}": np.cumsum([0, *map(len, encoded)]),
        f"y_{split}": labels.astype(np.uint8),
    }


def write_cifar100(folder, num_train, num_test):
    rng = np.random.default_rng(0)
    arrays, whole = {}, {}
    for split, count in (("train", num_train), ("test", num_test)):
        images = rng.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
        labels = rng.integers(0, 100, count)
        arrays |= strip_arrays(split, images, labels)
        whole[split] = images, labels
    np.savez(folder / "cifar100_lossless.npz", **arrays)
    return whole


def test_strips_come_back_pixel_by_pixel(tmp_path):
    whole = write_cifar100(tmp_path, 10, 3)
    for split, (images, labels) in whole.items():
        decoded, classes = packs.read_strips(tmp_path / "cifar100_lossless.npz", split)
        np.testing.assert_array_equal(decoded, images)
        np.testing.assert_array_equal(classes, labels)


def test_cifar_pools_both_parts_and_splits_80_to_20(tmp_path):
    whole = write_cifar100(tmp_path, 40, 10)
    task = tasks.load("cifar100", data_dir=str(tmp_path), num_clients=8)
    assert len(task.train.labels) == 40
    assert len(task.test_labels) == 10
    assert task.num_classes == 100

    def multiset(images, labels):
        return sorted(
            (x.tobytes(), int(y)) for x, y in zip(images, labels, strict=True)
        )

    assert multiset(
        np.concatenate([task.train.features, task.test_features]),
        np.concatenate([task.train.labels, task.test_labels]),
    ) == multiset(*map(np.concatenate, zip(*whole.values(), strict=True)))


@pytest.mark.parametrize("shape", [(5, 1), (4,), ()])
def test_a_pooled_split_takes_one_label_an_example(shape):
    message = r"^labels is int64 of shape .*; allowed: whole numbers of shape \[5\]"
    with pytest.raises(ArgumentError, match=message):
        pooled_split(np.zeros([5, 2]), np.zeros(shape, int), "here")


def test_a_mirrored_task_has_its_clients_images_twice(tmp_path):
    write_cifar100(tmp_path, 40, 10)
    settings = {"data_dir": str(tmp_path), "num_clients": 7, "seed": 3}
    plain = tasks.load("cifar100", **settings)
    both = tasks.load("cifar100_mirrored", **settings)
    np.testing.assert_array_equal(both.train.sizes, 2 * plain.train.sizes)
    for client, size in enumerate(plain.train.sizes):
        (images, labels), (twice, classes) = (
            plain.train.examples(client),
            both.train.examples(client),
        )
        np.testing.assert_array_equal(twice[:size], images)
        for image, seen in zip(images, twice[size:], strict=True):
            np.testing.assert_array_equal(seen, np.fliplr(image))
        np.testing.assert_array_equal(classes, np.tile(labels, 2))
    np.testing.assert_array_equal(both.test_features, plain.test_features)
    assert "iid, seed 3, images mirrored; 7 clients" in both.description
    assert both.mirrored and not plain.mirrored


@pytest.mark.parametrize(
    "spoiled",
    [{"webp_train": np.zeros(400, np.uint8)}, {"off_train": np.array([0])}],
    ids=lambda arrays: next(iter(arrays)),
)
def test_strips_that_are_no_pictures_are_refused(tmp_path, spoiled):
    arrays = strip_arrays("train", np.zeros((5, 32, 32, 3), np.uint8), np.zeros(5))
    np.savez(tmp_path / "pack.npz", **arrays | spoiled)
    with pytest.raises(FileError, match=r"pack\.npz: train holds other things than"):
        packs.read_strips(tmp_path / "pack.npz", "train")


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("y_train", np.zeros([5, 1], int), r"int64 of shape \(5, 1\)"),
        ("y_train", np.uint8(1), r"uint8 of shape \(\)"),
        ("y_train", np.zeros(5), r"float64 of shape \(5,\)"),
        ("webp_train", np.uint8(3), r"uint8 of shape \(\)"),
        ("off_train", np.int64(3), r"int64 of shape \(\)"),
        ("off_train", np.array([0.0, 9.5]), r"float64 of shape \(2,\)"),
    ],
)
def test_arrays_that_are_no_rows_of_whole_numbers_are_refused(
    tmp_path, name, value, found
):
    arrays = strip_arrays("train", np.zeros((5, 32, 32, 3), np.uint8), np.zeros(5))
    np.savez(tmp_path / "pack.npz", **arrays | {name: value})
    message = rf"pack\.npz: {name} is {found}, not whole numbers in a row$"
    with pytest.raises(FileError, match=message):
        packs.read_strips(tmp_path / "pack.npz", "train")


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int16])
def test_pixels_that_are_not_bytes_are_refused(tmp_path, dtype):
    """Pixels of 0..1 were taken, and divided by 255 once more."""
    arrays = {"x_train": np.ones([3, 28, 28], dtype), "y_train": np.arange(3)}
    arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"]}
    np.savez(tmp_path / "fashion_mnist.npz", **arrays)
    message = rf"fashion_mnist\.npz: x_train is {np.dtype(dtype)}, not uint8$"
    with pytest.raises(FileError, match=message):
        tasks.load("fashion_mnist", data_dir=str(tmp_path), num_clients=3)


@pytest.mark.parametrize(
    "writers", [[1000, 10000, 10001], [1.0, np.nan, 3.5], 7, [[1], [2], [3]]]
)
def test_every_writer_of_mnist_is_a_client_of_its_own(tmp_path, writers):
    """Ids were cut to four characters, and NaN was one."""
    arrays = {"x_train": np.zeros([3, 28, 28], np.uint8), "y_train": np.arange(3)}
    arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"]}
    np.savez(tmp_path / mnist.PACK, **arrays, writer_train=np.array(writers))
    if writers == [1000, 10000, 10001]:
        task = tasks.load("mnist", data_dir=str(tmp_path))
        expected = ("writer_1000", "writer_10000", "writer_10001")
        assert task.train.client_ids == expected
    else:
        message = r"writer_train is \w+64 of shape .*; allowed: whole numbers in a row"
        with pytest.raises(ArgumentError, match=message):
            tasks.load("mnist", data_dir=str(tmp_path))


def test_a_pack_with_missing_labels_is_refused(tmp_path):
    images = np.zeros((5, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "pack.npz", **strip_arrays("train", images, np.zeros(4)))
    with pytest.raises(FileError, match="5 images and 4 labels"):
        packs.read_strips(tmp_path / "pack.npz", "train")


@pytest.mark.parametrize(("name", "split"), PIXELS)
def test_cifar_pack_decodes_to_the_known_pixels(name, split, need):
    images, labels = packs.read_strips(need(f"{name}_lossless.npz"), split)
    assert hashlib.sha256(images.tobytes()).hexdigest() == PIXELS[name, split]
    num_classes = tasks.TASKS[name].num_classes
    # Both sets have equally many images of each class.
    counts = np.bincount(labels, minlength=num_classes)
    assert set(counts) == {len(labels) // num_classes}


def test_cifar10_task(need):
    task = tasks.load("cifar10", data_dir=str(need("cifar10_lossless.npz").parent))
    assert len(task.train.client_ids) == 500
    assert set(task.train.sizes) == {96}
    assert task.test_features.shape == (12_000, 32, 32, 3)


def test_mnist_task_has_one_client_per_writer(need):
    path = need("mnist_qmnist_writers.npz")
    task = tasks.load("mnist", data_dir=str(path.parent))
    sizes = task.train.sizes
    assert len(task.train.client_ids) == 539
    assert (sizes.min(), np.median(sizes), sizes.max()) == (19, 116, 131)
    assert len(task.train.labels) == 60_000
    assert len(task.test_labels) == 10_000
    with np.load(path) as pack:
        writers, x_train, y_train = (
            pack[name] for name in ("writer_train", "x_train", "y_train")
        )
        assert not set(writers) & set(pack["writer_test"])
    for i in (0, 250, 538):
        features, labels = task.train.examples(i)
        of_writer = writers == int(task.train.client_ids[i].removeprefix("writer_"))
        assert sorted(map(bytes, features)) == sorted(map(bytes, x_train[of_writer]))
        assert sorted(labels) == sorted(y_train[of_writer])


def test_fashion_mnist_task_follows_fl_top(need):
    folder = need("fashion_mnist.npz").parent
    task = tasks.load("fashion_mnist", data_dir=str(folder))
    assert len(task.train.client_ids) == 6_000
    assert set(task.train.sizes) == {10}
    assert task.model_name == "cnn_large"
    fewer = tasks.load("fashion_mnist", data_dir=str(folder), num_clients=100)
    assert set(fewer.train.sizes) == {600}
