"""Whole FL-TOP runs on bundled data: what they leave, and that they resume."""

import functools
import json
import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import large
from tasks.models import CNN_LARGE
from tests.thinning import thinned
from tff_hdp import systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation import classifier, experiment
from tff_hdp.simulation.evaluation import evaluate_run
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.fl_top import plan as fl_top_dp
from tff_hdp.systems.fl_top import results
from tff_hdp.systems.fl_top import setup as fl_top_setup
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.fl_top.public import subset_size, top_k
from tff_hdp.systems.fl_top.run import FlTop, build_fl_top_evaluation

WEIGHTS = 2410


def config(out, **changes):
    settings = {
        "task": "digits",
        "num_clients": 40,
        "clients_per_round": 8,
        "rounds": 3,
        "seed": 5,
        "out": str(out),
    }
    return FlTopConfig(**settings | changes)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A run of three rounds with noise."""
    out = tmp_path_factory.mktemp("private") / "run"
    return experiment.run(config(out, scheme="fl_top_dp", ratio=0.05))


def cost_kilobytes(*, size, rounds, clients_per_round, clients):
    """The paper's cost of a client: 4 K' Round C / 1000 kB."""
    return 4 * size * rounds * clients_per_round / clients / 1000


def resolved(path):
    return json.loads((path / "config.json").read_text())["resolved"]


@pytest.mark.parametrize(
    ("ratio", "rounds", "printed"), [(0.005, 200, 110.88), (1.0, 200, 22178.27)]
)
def test_the_papers_costs(ratio, rounds, printed):
    n = CNN_LARGE.num_parameters(input_shape=(28, 28, 1), num_classes=10)
    cost = cost_kilobytes(
        size=subset_size(ratio, n), rounds=rounds, clients_per_round=100, clients=6000
    )
    assert cost == pytest.approx(printed, abs=0.005)


@pytest.mark.parametrize(
    ("scheme", "ratio", "down", "up"),
    [
        pytest.param("fl_std", 1.0, WEIGHTS, WEIGHTS, marks=pytest.mark.slow),
        ("fl_top", 0.05, 120, 120),
        pytest.param("fl_basic", 0.05, WEIGHTS, 120, marks=pytest.mark.slow),
        ("fl_cs", 0.05, WEIGHTS, 120),
    ],
)
def test_a_row_counts_what_was_exchanged(
    tmp_path, traced_once, scheme, ratio, down, up
):
    traced_once(FlTop)
    result = experiment.run(config(tmp_path, scheme=scheme, ratio=ratio))
    (row,) = results.table([tmp_path]).to_dict("records")
    frame = pd.read_csv(tmp_path / "metrics.csv")
    assert row["accuracy"] == frame["accuracy"].max()
    assert frame["accuracy"][row["round"] - 1] == row["accuracy"]
    assert frame["accuracy"].iloc[-1] == row["last"]
    facts = resolved(tmp_path)
    # The 10 public examples are those of one of the 40 clients.
    assert facts["clients"] == 39
    shared = {
        "rounds": row["round"],
        "clients_per_round": 8,
        "clients": facts["clients"],
    }
    for column, size in (("downstream_kb", down), ("upstream_kb", up)):
        expected = cost_kilobytes(size=size, **shared)
        assert row[column] == pytest.approx(expected)
    assert np.isnan(row["epsilon_paper"]) and np.isnan(row["epsilon_released"])
    assert "N/A" in result.summary and not result.accounts


@pytest.mark.parametrize(("epochs", "sizes"), [(1, [36]), (5, [9] * 4)])
def test_little_work_is_one_chunk(tmp_path, monkeypatch, epochs, sizes):
    """What is more is shared out to the cores."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    settings = config(tmp_path, clients_per_round=36, local_epochs=epochs)
    with RunFolder(settings) as folder:
        folder.resolve(partition_seed=5)
        data = settings.build(folder).round_data(
            1, np.arange(36), np.random.default_rng
        )
    found = [len(chunk.get_single_element()["order"]) for chunk in data]
    assert found == sizes


@pytest.mark.slow
def test_the_largest_coefficients_are_drawn_once_and_kept(tmp_path):
    settings = {"scheme": "fl_cs", "ratio": 0.05, "coefficients": "largest"}
    experiment.run(config(tmp_path, rounds=1, **settings))
    with np.load(tmp_path / "setup.npz") as saved:
        kept = saved["coefficients"]
    assert len(set(kept)) == 120 and (np.diff(kept) > 0).all()
    result = experiment.run(config(tmp_path, rounds=2, **settings))
    assert result.metrics["round"] == 2


@pytest.mark.slow
def test_a_private_run_under_the_masking_protocol(tmp_path):
    """The same account but for what discrete noise may cost; resumed; bytes counted."""
    settings = {"scheme": "fl_top_dp", "ratio": 0.05, "rounds": 2}
    plain = experiment.run(config(tmp_path / "plain", **settings))
    settings |= {"secure_aggregation_protocol": "bonawitz"}
    out = tmp_path / "secure"
    experiment.run(config(out, **settings | {"rounds": 1}))
    secure = experiment.run(config(out, **settings))
    for one, other in zip(plain.accounts, secure.accounts, strict=True):
        assert one.observer == other.observer
        if other.observer == "fellow_client":
            # It exchanged keys with those who take part.
            assert "participation revealed" in other.sampling
            assert other.epsilon_pld > 1.4 * one.epsilon_pld
            continue
        assert other.epsilon_pld == pytest.approx(one.epsilon_pld, rel=1e-3)
        assert other.epsilon_paper == pytest.approx(one.epsilon_paper, rel=1e-6)
    frame = pd.read_csv(out / "metrics.csv")
    assert (frame["upstream_bytes"] == 8 * 4 * 121).all()
    # A vector in the ring, keys and shares of seven others.
    assert (frame["secagg_bytes_up"] > 8 * 4 * 121).all()
    assert (frame["saturated"] == 0).all() and (frame["left_out_zones"] == 0).all()
    notes = " ".join(json.loads((out / "privacy.json").read_text())["notes"])
    assert "the bonawitz protocol, run for every sum" in notes
    assert "is assumed here" not in notes
    assert "the server sees only the sum of a round's updates" in notes
    assert "super-node" not in notes.partition(". Assumed")[0]
    signed = tmp_path / "signed"
    experiment.run(config(signed, **settings, sign_messages=True))
    notes = " ".join(json.loads((signed / "privacy.json").read_text())["notes"])
    assert "every message is signed" in notes
    # Every client signs the five things it says.
    sent = pd.read_csv(signed / "metrics.csv")["secagg_bytes_up"]
    assert (sent >= frame["secagg_bytes_up"] + 5 * 64).all()


def test_a_private_run_says_what_its_epsilons_rest_on(private):
    facts = resolved(private.path)
    frame = pd.read_csv(private.path / "metrics.csv")
    assert frame["clip_norm"].to_numpy() == pytest.approx(facts["clip_norm"])
    (row,) = results.table([private.path]).to_dict("records")
    options = {"clients": 39, "per_round": 8, "sigma": 1.54}
    ledger = fl_top_dp.FlTopLedger()
    ledger.record(fl_top_dp.plan(**options), 3)  # all of them, whichever is best
    rows = {r.observer: r for r in ledger.account(1e-5, ("pld",))}
    assert row["epsilon_released"] == rows["released_model"].epsilon_pld
    assert row["epsilon_server"] == rows["aggregator"].epsilon_pld
    paper = fl_top_dp.FlTopLedger()
    paper.record(fl_top_dp.plan(**options), row["round"])
    stated = {r.epsilon_paper for r in paper.account(1e-5, ("paper",))}
    assert {row["epsilon_paper"]} == stated
    privacy = json.loads((private.path / "privacy.json").read_text())
    assert privacy["rounds"] == 3
    notes = " ".join(privacy["notes"])
    for words in ("public data", "operator", "Theorem 1", "test set", "assumed"):
        assert words in notes
    assert {r.observer for r in private.accounts} == set(rows)
    for words in ("replacing a client", "without replacement", "against the server"):
        assert words in private.summary


def test_the_other_weights_stay_at_the_start(private):
    initial, scores = fl_top_setup.read_setup(private.path)
    with np.load(private.path / results.WEIGHTS_FILE) as saved:
        final = saved["final"]
    chosen = top_k(scores, 120)
    others = np.setdiff1d(np.arange(WEIGHTS), chosen)
    np.testing.assert_array_equal(final[others], initial[others])
    # Noise lies on a grid, so that a weight may come back to where it began.
    assert np.mean(final[chosen] != initial[chosen]) > 0.9


@pytest.mark.parametrize("scheme", thinned(["fl_top", "fl_basic"], every=2))
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, traced_once, scheme):
    traced_once(FlTop)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    settings = {"scheme": scheme, "ratio": 0.05}
    once = experiment.run(config(whole, rounds=3, **settings))
    experiment.run(config(halves, rounds=1, **settings))
    twice = experiment.run(config(halves, rounds=3, **settings))
    frames = [pd.read_csv(r.path / "metrics.csv") for r in (once, twice)]
    for column in ("accuracy", "loss", "train_loss", "update_norm"):
        np.testing.assert_allclose(*(f[column] for f in frames), rtol=1e-4)


def test_another_set_up_than_the_runs_own_is_refused_in_one_line(tmp_path, traced_once):
    traced_once(FlTop)
    asked = functools.partial(config, tmp_path, scheme="fl_top", ratio=0.05)
    experiment.run(asked(rounds=1))
    file = tmp_path / fl_top_setup.SETUP_FILE
    whole = file.read_bytes()
    flipped = whole[:400] + bytes([whole[400] ^ 1]) + whole[401:]
    for content in (b"", whole[:-9], flipped, b"no archive"):
        file.write_bytes(content)
        with pytest.raises(FileError, match="is not the set-up") as error:
            experiment.run(asked(rounds=2))
        assert "\n" not in str(error.value)
    for content in (b"", whole[:-9], b"no archive"):
        file.write_bytes(content)
        with pytest.raises(FileError, match=r"is damaged, or no \.npz of initial"):
            fl_top_setup.read_setup(tmp_path)
    file.write_bytes(whole)
    assert experiment.run(asked(rounds=2)).ledger.rounds == 0


def test_held_out_clients_never_take_part(tmp_path):
    asked = config(tmp_path, public_examples=50)
    task, public = fl_top_setup.load_with_public(asked, partition_seed=5)
    whole = tasks.load("digits", num_clients=40, seed=5)
    assert len(task.train.client_ids) == 38
    assert public.features.shape == (50, 8, 8, 1)
    kept = set(map(bytes, task.train.features))
    # A few digits are alike to the pixel; these are not.
    assert sum(bytes(image) in kept for image in public.features) == 0
    for index, client in enumerate(task.train.client_ids):
        before = whole.train.examples(whole.train.client_ids.index(client))
        for mine, theirs in zip(task.train.examples(index), before, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_of_a_large_task_examples_stay_mapped_and_are_tested_some_at_a_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(large, "LIMIT", 10_000)
    asked = config(tmp_path, public_examples=50)
    task, _ = fl_top_setup.load_with_public(asked, partition_seed=5)
    assert isinstance(task.train.features, np.memmap)
    sizes = []

    def model(features, training):
        sizes.append(len(features))
        return tf.reduce_sum(tf.cast(features, tf.float32), [2, 3])

    found = classifier.logits_of(model, task.train.features)
    assert max(sizes) <= 512 < sum(sizes) == len(found) == len(task.train.labels)


def test_the_most_examples_that_may_be_held_out_are_named(tmp_path):
    """With one more nobody is left to train."""
    with pytest.raises(ArgumentError, match="public_examples is 1437; ") as refused:
        fl_top_setup.load_with_public(config(tmp_path, public_examples=1437), 5)
    most = int(re.search(r"at most (\d+)", str(refused.value))[1])
    task, public = fl_top_setup.load_with_public(
        config(tmp_path, public_examples=most), 5
    )
    assert len(task.train.client_ids) == 1 and len(public.labels) == most
    with pytest.raises(ArgumentError, match=f"at most {most}"):
        fl_top_setup.load_with_public(config(tmp_path, public_examples=most + 1), 5)


def test_no_more_images_are_public_than_mnist_has(data_dir):
    has = len(tasks.load("mnist", data_dir=str(data_dir)).train.labels)
    asked = FlTopConfig(
        task="fashion_mnist", data_dir=str(data_dir), public_examples=has + 1
    )
    with pytest.raises(ArgumentError, match=f"allowed: at most {has}"):
        fl_top_setup.load_with_public(asked, partition_seed=1)


def test_mnist_is_the_public_data_of_fashion_mnist(data_dir):
    asked = FlTopConfig(task="fashion_mnist", data_dir=str(data_dir))
    task, public = fl_top_setup.load_with_public(asked, partition_seed=1)
    assert len(task.train.client_ids) == 6000
    mnist = tasks.load("mnist", data_dir=str(data_dir)).train
    known = {bytes(x): y for x, y in zip(mnist.features, mnist.labels, strict=True)}
    assert [known[bytes(x)] for x in public.features] == public.labels.tolist()


def test_a_binary_task_reports_balanced_accuracy_and_auroc(tmp_path):
    asked = config(
        tmp_path, task="breast_cancer", num_clients=None, scheme="fl_std", rounds=2
    )
    result = experiment.run(asked)
    assert result.headline == "balanced_accuracy"
    (row,) = results.table([tmp_path]).to_dict("records")
    assert 0 <= row["balanced_accuracy"] <= 1 and 0 <= row["auroc"] <= 1
    assert "auroc" in result.summary
    found = evaluate_run(systems.config_of(tmp_path))
    recall = np.diag(found.confusion) / found.confusion.sum(1)
    assert recall.mean() == pytest.approx(row["balanced_accuracy"], abs=1e-3)


def test_the_binary_metrics_are_those_of_their_definitions():
    task = tasks.load("breast_cancer")
    evaluate = build_fl_top_evaluation(task)
    import tensorflow_federated as tff

    tf.keras.utils.set_random_seed(3)
    model = task.build_model()
    tf.random.set_seed(None)
    found = evaluate(tff.learning.models.ModelWeights.from_model(model))
    logits, labels = model(task.test_features).numpy(), task.test_labels
    right = logits.argmax(axis=1) == labels
    recalls = [right[labels == c].mean() for c in (0, 1)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    score = logits[:, 1] - logits[:, 0]
    pairs = np.sign(score[labels == 1][:, np.newaxis] - score[labels == 0])
    assert found["auroc"] == pytest.approx(np.mean((pairs + 1) / 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients_per_round": 40}, "clients_per_round is 40; .* at most 39"),
        ({"ratio": 1e-4}, "ratio is 0.0001"),
        ({"public_examples": 5000}, "public_examples is 5000; allowed: at most"),
        ({"client_learning_rate": 1e30}, r"client_learning_rate is 1e\+30"),
    ],
)
def test_what_only_the_task_can_tell(tmp_path, changes, message):
    with pytest.raises(ArgumentError, match=message):
        experiment.run(config(tmp_path, **changes))


@pytest.mark.filterwarnings("ignore:overflow|invalid:RuntimeWarning")
def test_a_model_that_overflows_has_no_auroc(tmp_path):
    asked = config(tmp_path, task="breast_cancer", num_clients=None)
    task, _ = fl_top_setup.load_with_public(asked, partition_seed=1)
    model = task.build_model()
    rng = np.random.default_rng(0)
    huge = [rng.normal(0, 1e20, w.shape).astype(np.float32) for w in model.weights]
    weights = tff.learning.models.ModelWeights(huge, [])
    found = build_fl_top_evaluation(task)(weights)
    assert np.isnan(found["auroc"]) and 0 <= found["balanced_accuracy"] <= 1


def test_clients_that_are_left_keep_their_own_tests(tmp_path):
    asked = config(tmp_path, task="pages", num_clients=None, public_examples=60)
    task, _ = fl_top_setup.load_with_public(asked, partition_seed=3)
    whole = tasks.load("pages", seed=3)
    left = task.train.client_ids
    assert len(left) < len(whole.train.client_ids)
    for row, owner in enumerate(whole.test_owners):
        name = whole.train.client_ids[owner]
        mine = task.test_owners[row]
        assert (left[mine] == name) if name in left else (mine == -1)
