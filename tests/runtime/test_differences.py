"""Where our two contexts take what TFF's refuses or changes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff


@tff.tensorflow.computation(np.str_)
def same_text(text):
    return text


@tff.federated_computation(tff.FederatedType(np.str_, tff.CLIENTS))
def same_texts(texts):
    return texts


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)


@tff.tensorflow.computation(tff.TensorType(np.int32, None))
def count(values):
    return tf.size(values)


CASES = {
    "zero at the end": (same_text, "b\0", b"b\0"),
    "not ASCII": (same_texts, ["é"], ["é".encode()]),
    "a tuple": (total, (1, 2), 3),
    "a number of unknown rank": (count, 7, 1),
}


@pytest.fixture
def ours(in_process_context, cluster_context):
    return in_process_context, cluster_context


@pytest.mark.parametrize("name", CASES)
def test_ours_take_it_as_it_is(name, ours, run_on):
    computation, argument, expected = CASES[name]
    for context in ours:
        assert run_on(context, computation, argument) == expected


@pytest.mark.parametrize("name", CASES)
def test_tffs_does_not(name, native_plain_context, run_on):
    computation, argument, expected = CASES[name]
    try:
        found = run_on(native_plain_context, computation, argument)
    except (TypeError, ValueError):
        return
    assert found != expected
