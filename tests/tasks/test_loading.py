import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import tasks
from tasks import loading
from tasks.dataset import Examples, canonical_order, pooled_split
from tests.tasks.examples import as_multiset
from tff_hdp.errors import ArgumentError, FileError


def test_importing_tasks_imports_no_tensorflow():
    code = (
        "import sys, tasks; "
        "sys.exit(any(m.partition('.')[0] in {'tensorflow', 'tensorflow_federated', "
        "'tensorflow_datasets', 'sklearn', 'PIL'} for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_registry():
    assert set(tasks.TASKS) >= {
        *("digits", "mnist", "emnist", "femnist", "cifar10", "cifar100"),
        *("fashion_mnist", "celeba", "breast_cancer", "pages", "shakespeare"),
        *("rare_digit", "coarse_mnist"),
    }
    for name, dataset in tasks.TASKS.items():
        assert dataset.name == name
        assert tasks.MODELS[name] == tuple(dataset.models)


def test_digits_are_scikit_learns_split_80_to_20():
    task = tasks.load("digits")
    bundled = load_digits()
    assert len(task.train.labels) == 1438
    assert len(task.test_labels) == 359
    assert task.train.features.shape[1:] == (8, 8, 1)
    assert as_multiset(
        np.concatenate([task.train.features, task.test_features]),
        np.concatenate([task.train.labels, task.test_labels]),
    ) == as_multiset(bundled.images.astype(np.uint8), bundled.target)
    assert len(task.train.client_ids) == 200
    assert set(task.train.sizes) == {7, 8}
    assert task.train.labels.dtype == task.test_labels.dtype == np.int32
    assert task.train.features.dtype == np.uint8


def test_the_seed_decides_the_partition_and_not_the_split():
    one, same, other = (tasks.load("digits", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.train.features, same.train.features)
    assert np.any(one.train.features != other.train.features)
    np.testing.assert_array_equal(one.test_features, other.test_features)
    assert as_multiset(one.train.features, one.train.labels) == as_multiset(
        other.train.features, other.train.labels
    )


@pytest.mark.parametrize("num_clients", [1, 37, 1438])
@pytest.mark.parametrize("alpha", [None, 0.1])
def test_every_training_example_goes_to_one_client(num_clients, alpha):
    task = tasks.load(
        "digits",
        num_clients=num_clients,
        partition="iid" if alpha is None else "dirichlet",
        dirichlet_alpha=alpha,
    )
    train = task.train
    assert len(set(train.client_ids)) == num_clients
    dealt = [train.examples(i) for i in range(num_clients)]
    assert sum(len(labels) for _, labels in dealt) == 1438
    whole = tasks.load("digits").train
    assert as_multiset(
        np.concatenate([x for x, _ in dealt]), np.concatenate([y for _, y in dealt])
    ) == as_multiset(whole.features, whole.labels)


def small_examples(seed, order_seed):
    """40 examples of 5 writers, many alike, in an order of its own."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 2, (40, 1, 2, 1)).astype(np.uint8)
    labels = rng.integers(0, 3, 40)
    writers = np.array(list("abcde"))[rng.integers(0, 5, 40)]
    order = np.random.default_rng(order_seed).permutation(40)
    return features[order], labels[order], writers[order]


@settings(deadline=None)
@given(
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(["iid", "dirichlet", "writer"]),
)
def test_the_order_of_a_copy_does_not_matter(seed, order_seed, partition):
    def load(order):
        features, labels, writers = small_examples(seed, order)

        def read(_):
            return Examples(features, labels, features, labels, "here", "none", writers)

        base = tasks.TASKS["digits"]
        return loading.load_task(
            dataclasses.replace(
                base,
                read=read,
                input_shape=(1, 2, 1),
                num_clients=4,
                partitions=(partition,),
            ),
            model=None,
            data_dir=None,
            num_clients=None,
            partition=None,
            dirichlet_alpha=1.0 if partition == "dirichlet" else None,
            seed=seed,
        ).train

    one, other = load(0), load(order_seed)
    assert one.client_ids == other.client_ids
    for field in ("features", "labels", "offsets"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


@given(st.integers(0, 999), st.integers(0, 999))
def test_the_pooled_split_depends_on_content_alone(seed, order_seed):
    splits = [
        pooled_split(*small_examples(seed, order)[:2], "here")
        for order in (0, order_seed)
    ]
    np.testing.assert_array_equal(splits[0].test_features, splits[1].test_features)
    np.testing.assert_array_equal(splits[0].test_labels, splits[1].test_labels)
    assert len(splits[0].test_labels) == 8


WHOLE = {
    "features": np.zeros([4, 3], np.float64),
    "labels": np.array([0, 1, 1, 0]),
    "test_features": np.ones([2, 3], np.float64),
    "test_labels": np.array([1, 0]),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"features": np.zeros([4, 2])}, r"x.features is float64 of shape \(4, 2\)"),
        ({"features": np.zeros([4, 3], "U2")}, "x.features is <U2 of shape"),
        ({"features": np.zeros([4, 3], np.longdouble)}, "x.features is float128 of"),
        ({"features": np.full([4, 3], np.nan)}, "x.features is nan, inf or beyond"),
        ({"features": np.full([4, 3], 1e39)}, "x.features is .* of float32"),
        (
            {"test_features": np.zeros([2, 3], int)},
            "x.test_features is int64; .*float64",
        ),
        ({"test_features": np.zeros([0, 3])}, "x.test_features is .*1 or more"),
        ({"labels": np.zeros(4)}, "x.labels is float64 of shape"),
        ({"labels": np.zeros(3, int)}, r"x.labels is int64 of shape \(3,\); .*\[4\]"),
        ({"labels": np.array([0, 1, 2, 0])}, "x.labels is 0..2; allowed: 0..1"),
        ({"test_labels": np.array([-1, 0])}, "x.test_labels is -1..0; allowed: 0..1"),
        ({"writers": list("1bc1"), "test_writers": [1, 2]}, None),
        ({"writers": np.array([b"a", b"b"] * 2)}, r"x.writers is \|S1 of shape \(4,\)"),
        ({"writers": [1.0, np.nan, 2.0, 1.0]}, "float64.*text or whole numbers of"),
        ({"writers": ["a", None, "b", "a"]}, "x.writers is object of shape"),
        ({"writers": list("abc")}, r"x.writers is <U1 of shape \(3,\); .* \[4\]"),
        ({"test_writers": [True, False]}, "x.test_writers is bool of shape"),
    ],
)
def test_malformed_examples_are_one_line(changes, message):
    examples = Examples(**WHOLE | changes, source="here", split="none")
    if message is None:
        examples.check("x", (3,), 2)
        return
    with pytest.raises(ArgumentError, match=message) as error:
        examples.check("x", (3,), 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["features", "test_labels", "writers"])
def test_rows_of_unlike_lengths_are_one_line(name):
    ragged = {name: [[1, 2], [3], [4], [5]]}
    with pytest.raises(ArgumentError, match=f"^{name} is a list of unlike") as error:
        Examples(**WHOLE | ragged, source="here", split="none")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["features", "test_labels", "writers"])
def test_arrays_of_which_something_is_masked_are_refused(name):
    """What is masked passed for finite, and was trained on."""
    masked = {name: np.ma.masked_array([1.0, np.nan], [False, True])}
    with pytest.raises(ArgumentError, match=f"^{name} is a masked array"):
        Examples(**WHOLE | masked, source="here", split="none")


@pytest.mark.parametrize("returned", [(WHOLE, "here"), None])
def test_what_reads_no_examples_is_one_line(returned):
    dataset = dataclasses.replace(tasks.TASKS["digits"], read=lambda _: returned)
    options = dict.fromkeys(("model", "data_dir", "num_clients", "partition"))
    kind = type(returned).__name__
    with pytest.raises(ArgumentError, match=f"^digits.read is .* returns {kind}; all"):
        loading.load_task(dataset, **options, dirichlet_alpha=None, seed=0)


def test_a_number_of_clients_of_any_type_that_is_whole_is_taken():
    dataset = dataclasses.replace(tasks.TASKS["digits"], num_clients=20.0)
    options = dict.fromkeys(("model", "data_dir", "num_clients", "partition"))
    task = loading.load_task(dataset, **options, dirichlet_alpha=None, seed=0)
    assert len(task.train.client_ids) == 20


def text(numbers):
    return numbers.astype(str)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (text, text),
        (lambda w: text(w).astype(object), lambda w: text(w).tolist()),
        (np.int64, np.uint8),
        (list, text),
        (lambda w: pd.Series(w, index=range(8)[::-1]), pd.Series),
    ],
)
def test_writers_own_their_examples_however_they_are_told(train, test):
    writers, tested = np.array([3, 10, 3, 2, 10, 2, 2, 3]), np.array([10, 4, 2, 3, 10])
    examples = Examples(
        features=np.arange(8, dtype=np.uint8).reshape(8, 1),
        labels=np.zeros(8, int),
        test_features=np.zeros([5, 1], np.uint8),
        test_labels=np.zeros(5, int),
        source="here",
        split="none",
        writers=train(writers),
        test_writers=test(tested),
    )
    dataset = dataclasses.replace(
        tasks.TASKS["digits"],
        input_shape=(1,),
        partitions=("writer",),
        read=lambda _: examples,
    )
    options = dict.fromkeys(("model", "data_dir", "num_clients", "partition"))
    task = loading.load_task(dataset, **options, dirichlet_alpha=None, seed=0)
    ids = task.train.client_ids
    held = {ids[i]: sorted(task.train.examples(i)[0].ravel()) for i in range(len(ids))}
    assert held == {"2": [3, 5, 6], "3": [0, 2, 7], "10": [1, 4]}
    owners = [None if owner < 0 else ids[owner] for owner in task.test_owners]
    assert owners == ["10", None, "2", "3", "10"]


@pytest.mark.parametrize("content", [b"", b"PK\3\4 cut short", b"none of NumPy's"])
def test_a_file_that_is_no_pack_is_one_line(tmp_path, content):
    (tmp_path / "fashion_mnist.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"fashion_mnist.npz: is no pack of") as error:
        tasks.load("fashion_mnist", data_dir=str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_of_tffs_is_one_line(tmp_path):
    (tmp_path / "shakespeare.sqlite").write_text("To be, or not to be" * 99)
    with pytest.raises(FileError, match=r"shakespeare.sqlite: is no file of TFF's"):
        tasks.load("shakespeare", data_dir=str(tmp_path))


def test_canonical_order_sorts_by_digest():
    features = np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1)
    order = canonical_order(features, np.zeros(50, int))
    digests = [hashlib.blake2b(bytes([i]), digest_size=8).digest() for i in order]
    assert digests == sorted(digests)


def test_description_states_what_the_task_is():
    text = tasks.load("digits", partition="dirichlet", dirichlet_alpha=0.3).description
    for part in (
        "load_digits",
        "80:20",
        "1,438 training and 359 test examples",
        "Dirichlet by label, alpha 0.3, seed 0",
        "200 clients of 7 to 8 examples",
        "Dense 32 (2,080), Dense 10 (330); 2,410 parameters",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "svhn"}, "task is svhn; allowed: digits, mnist"),
        ({"model": "cnn"}, "model is cnn; allowed: dnn, softmax for task digits"),
        ({"partition": "writer"}, "partition is writer; allowed: .* for task digits"),
        ({"partition": "dirichlet"}, "dirichlet_alpha is None"),
        (
            {"dirichlet_alpha": 1.0},
            "dirichlet_alpha is 1.0; .* partition=iid",
        ),
        ({"num_clients": 1439}, "num_clients is 1439; allowed: 1..1438 .the examples"),
        ({"num_clients": 0}, "num_clients is 0;"),
        ({"num_clients": "x"}, "num_clients is x; allowed: a whole number"),
        ({"seed": -3}, "seed is -3; allowed: a whole number >= 0"),
        ({"seed": 1.5}, "seed is 1.5;"),
        (
            {"partition": "dirichlet", "dirichlet_alpha": 1e-300},
            "dirichlet_alpha is 1e-300; allowed: a finite number >= 0.0001",
        ),
        ({"partition": "dirichlet", "dirichlet_alpha": "x"}, "dirichlet_alpha is x"),
        ({"model": np.zeros(2)}, "model is "),
        ({"partition": np.zeros(2)}, "partition is "),
        ({"name": "mnist", "data_dir": 3}, "data_dir is 3; allowed: a folder's path"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        tasks.load(**{"name": "digits", **arguments})


@pytest.mark.parametrize(
    "name", [n for n, dataset in tasks.TASKS.items() if dataset.files]
)
def test_without_a_folder_the_error_says_what_to_do(name, monkeypatch):
    monkeypatch.delenv(tasks.DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(tasks.DataNotFoundError) as caught:
        tasks.load(name)
    message = str(caught.value)
    for part in (name, "data_dir", "TFF_HDP_DATA", "task=digits"):
        assert part in message
    assert "\n" not in message


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(tasks.DATA_DIR_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(
        tasks.DataNotFoundError, match="nowhere', which is not a folder"
    ):
        tasks.load("cifar10")


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("mnist", "train-images-idx3-ubyte.gz is not there"),
        ("emnist", "emnist_all.sqlite is not there"),
        ("cifar10", "cifar10/3.0.2/ is not there"),
        ("cifar100", "cifar100/3.0.2/ is not there"),
        ("fashion_mnist", "fashion_mnist/3.0.1/ is not there"),
    ],
)
def test_an_empty_folder_without_network_fails_at_once(
    name, missing, tmp_path, no_network, caplog
):
    with pytest.raises(tasks.DataNotFoundError) as caught:
        tasks.load(name, data_dir=str(tmp_path))
    message = str(caught.value)
    for part in (missing, "no network", str(tmp_path), "task=digits"):
        assert part in message
    assert "\n" not in message
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    assert not caplog.messages  # of libraries, which know no better than the error


@pytest.mark.parametrize("name", tasks.TASKS)
def test_every_class_has_a_name_of_its_own_or_none_has(name):
    dataset = tasks.TASKS[name]
    named = len(set(dataset.class_names))
    assert named == len(dataset.class_names) and named in (0, dataset.num_classes)


def test_what_is_kept_is_read_once_and_bad_arguments_are_told_as_ever():
    with tasks.kept():
        first = tasks.load("digits", num_clients=3)
        assert tasks.load("digits", num_clients=3) is first
        assert tasks.load("digits", num_clients=4) is not first
        with pytest.raises(ArgumentError, match=r"num_clients is 3; .*whole number"):
            tasks.load("digits", num_clients=[3])
    assert tasks.load("digits", num_clients=3) is not first
