"""Pairwise masks cancel exactly and hide what they are added to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks

CLIENTS = [f"client_{i}" for i in range(6)]
MASKS = PairwiseMasks(CLIENTS)


@given(
    cohort=st.lists(st.sampled_from(CLIENTS), min_size=1, unique=True),
    number=st.integers(0, 2**31),
    size=st.integers(1, 70_000),
)
@settings(max_examples=25, deadline=None)
def test_masks_of_any_cohort_cancel(cohort, number, size):
    masks = MASKS.draw(cohort, number, size)
    assert masks.shape == (len(cohort), size)
    assert masks.dtype == np.uint32
    assert not masks.sum(0, dtype=np.uint32).any()


def test_no_true_subset_of_a_cohort_cancels():
    masks = MASKS.draw(CLIENTS[:4], 1, 1000)
    for kept in range(1, 2**4 - 1):
        chosen = [i for i in range(4) if kept >> i & 1]
        total = masks[chosen].sum(0, dtype=np.uint32)
        assert np.mean(total == 0) < 0.01


def test_each_mask_and_each_partial_sum_look_uniform():
    masks = MASKS.draw(CLIENTS, 3, 200_000)
    seen = [*masks, masks[:2].sum(0, dtype=np.uint32), masks[0] - masks[1]]
    for values in seen:
        for shift in (0, 24):
            counts = np.bincount((values >> np.uint32(shift)) & 255, minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6


def test_a_masked_vector_says_nothing_of_what_it_hides():
    """The same mask-and-send with two updates has one distribution."""
    rng = np.random.default_rng(0)
    updates = (np.zeros(50_000, np.uint32), rng.integers(0, 99, 50_000, np.uint32))
    sent = [
        MASKS.draw(CLIENTS[:3], 10 + i, 50_000)[0] + update
        for i, update in enumerate(updates)
    ]
    assert stats.ks_2samp(*sent).pvalue > 1e-4
    assert abs(np.corrcoef(sent[1], updates[1])[0, 1]) < 0.02


def test_masks_change_with_round_cohort_and_keys():
    first = MASKS.draw(CLIENTS[:3], 1, 64)
    others = (
        MASKS.draw(CLIENTS[:3], 2, 64),
        MASKS.draw(CLIENTS[1:4], 1, 64),
        PairwiseMasks(CLIENTS).draw(CLIENTS[:3], 1, 64),
    )
    for other in others:
        assert not (first == other).any(1).all()
        assert np.mean(first == other) < 0.05


def test_both_ends_of_a_pair_derive_the_same_mask():
    """Whoever is named first; the two masks of a pair are each other's negative."""
    forward = MASKS.draw(["client_0", "client_5"], 7, 32)
    backward = MASKS.draw(["client_5", "client_0"], 7, 32)
    negative = np.zeros(32, np.uint32) - forward[0]
    np.testing.assert_array_equal(forward[1], negative)
    assert {forward[0].tobytes(), forward[1].tobytes()} == {
        backward[0].tobytes(),
        backward[1].tobytes(),
    }


def test_a_lone_client_has_no_mask():
    assert not MASKS.draw(CLIENTS[:1], 1, 8).any()


def test_strangers_have_no_keys():
    with pytest.raises(KeyError, match="stranger"):
        MASKS.draw(["client_0", "stranger"], 1, 8)
