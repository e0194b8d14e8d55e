"""Texts as windows, by page and by part, against plain slicing."""

import dataclasses
import json
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks import pages, personal, shakespeare
from tasks.dataset import Examples
from tasks.loading import load_task
from tasks.text import ALPHABET, NUM_CLASSES, STEP, WINDOW, encode, windows
from tff_hdp.errors import ArgumentError


def plain(character):
    """The id of a character by the words of tasks/text.py."""
    character = character.lower() if character.isascii() else "~"
    character = "0" if character in "0123456789" else character
    return ALPHABET.index(character) if character in ALPHABET else NUM_CLASSES - 1


@given(st.text(max_size=60), st.integers(0, 70), st.integers(0, 70))
def test_windows_are_slices(text, begin, size):
    ids = [plain(c) for c in text]
    assert encode(text).tolist() == ids
    features, labels = windows(text, begin, begin + size)
    told = range(begin, min(begin + size, len(ids)), STEP)
    assert labels.tolist() == [ids[i] for i in told]
    padded = [ALPHABET.index("\n")] * WINDOW + ids
    assert features.tolist() == [padded[i : i + WINDOW] for i in told]
    assert features.dtype == np.uint8


@given(st.text(max_size=60))
def test_whoever_has_the_model_can_encode_text_by_its_card(text):
    """By the words of the card's rule, without this library."""
    dataset = tasks.TASKS["pages"]
    card = json.loads(json.dumps(dataset.encoding))
    assert (card["window"],) == dataset.input_shape
    small = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
    taken = text.translate(small | str.maketrans("123456789", "0" * 9))
    other = len(card["alphabet"])
    ids = [card["alphabet"].find(c) % (other + 1) for c in taken]
    assert ids == encode(text).tolist()
    assert [dataset.class_names[i] for i in ids if i < other] == [
        card["alphabet"][i] for i in ids if i < other
    ]


def test_a_page_is_a_client_that_is_tested_on_its_own_end():
    task = tasks.load("pages")
    texts = pages.pages()
    assert list(task.train.client_ids) == sorted(texts)
    assert task.encoding == tasks.TASKS["pages"].encoding
    assert len(task.class_names) == task.num_classes
    train, test = personal.split(task, seed=0)
    client = train.client_ids.index("pg19")
    text = texts["pg19"]
    cut = round(0.8 * len(text))
    assert text.startswith("This dataset contains the PG-19 language modeling")
    for data, (begin, end) in ((train, (0, cut)), (test, (cut, len(text)))):
        told = [plain(c) for c in text[begin:end:STEP]]
        assert sorted(data.examples(client)[1].tolist()) == sorted(told)


SNIPPETS = {
    ("train", "KING_LEAR"): [b"Blow, winds!", b"Howl. 1606"],
    ("train", "FOOL"): [b"Prithee, nuncle"],
    ("test", "KING_LEAR"): [b"Never, never"],
    ("test", "FOOL"): [b"\xe2\x80\x94Nothing"],
}


def test_shakespeare_is_read_part_by_part(write_clients, tmp_path, no_network):
    examples = [
        (split, role, {"snippets": snippet})
        for (split, role), snippets in SNIPPETS.items()
        for snippet in snippets
    ]
    write_clients(tmp_path / shakespeare.FILE.name, examples)
    task = tasks.load("shakespeare", data_dir=str(tmp_path))
    parts = dict(zip(("train", "test"), personal.split(task, seed=0), strict=True))
    for (split, role), snippets in SNIPPETS.items():
        data = parts[split]
        found = data.examples(data.client_ids.index(role))[1]
        told = [plain(c) for s in snippets for c in s.decode()[::STEP]]
        assert sorted(found.tolist()) == sorted(told)


@pytest.mark.parametrize("wrong", [-1, NUM_CLASSES])
@pytest.mark.parametrize("model", ["dnn", "gru"])
def test_an_id_that_is_none_is_refused_where_it_is_tested_on(model, wrong):
    """It ended the first round; one in training rejects its client's update."""
    rows = np.arange(2 * WINDOW).reshape(2, WINDOW)
    spoilt = np.where(rows == 20, wrong, rows)
    options = {"model": model, "num_clients": 1, "partition": "iid", "seed": 0}
    options |= dict.fromkeys(("data_dir", "dirichlet_alpha"))

    def load(train, test):
        parts = Examples(train, np.zeros(2, int), test, np.zeros(2, int), "here", "")
        dataset = dataclasses.replace(tasks.TASKS["pages"], read=lambda _: parts)
        return load_task(dataset, **options)

    assert wrong in load(spoilt, rows).train.features
    message = r"pages.test_features is (-1..31|0..41); allowed: ids in 0..40"
    with pytest.raises(ArgumentError, match=message):
        load(rows, spoilt)


@pytest.mark.parametrize("model", ["dnn", "gru"])
def test_a_models_answer_depends_on_what_it_has_read(model):
    dataset = tasks.TASKS["pages"]
    network = dataset.models[model].build(**dataset.model_shape)
    first, _ = windows("the quick brown fox jumps over")
    logits = network(first).numpy()
    assert logits.shape == (len(first), NUM_CLASSES)
    assert len(np.unique(logits.round(6), axis=0)) == len(first)


def test_ids_are_whole():
    """Keras reads 1.9 as 1."""
    ids, labels = np.full([2, 3], 1.9), np.zeros(2, int)
    given = {"features": ids, "labels": labels, "test_features": ids}
    examples = Examples(**given, test_labels=labels, source="here", split="none")
    with pytest.raises(ArgumentError, match=r"^x\.features is float64; allowed: whole"):
        examples.check("x", (3,), 2, are_ids=True)
