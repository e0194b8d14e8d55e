"""Levels have the queries that their plan accounts, and no others."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.dp_query.nested_query import NestedSumQuery

from tff_hdp.aggregators import LevelQueries
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, FullParticipation, Level, NoisePlan


@pytest.mark.parametrize("level", ["client", "zones", "upper"])
def test_only_the_server_rescales(level):
    """A zone's sum a thousand times as large would drown the noise above it."""
    plain = tfp.GaussianSumQuery(1.0, 0.1)
    scaled = tfp.NormalizedQuery(plain, 1e-3)
    LevelQueries(server=scaled)
    for query in (scaled, NestedSumQuery([plain, scaled])):
        at = {"client": query, "zones": [plain, query], "upper": [[plain], [query]]}
        with pytest.raises(ArgumentError, match=f"queries.{level} is NormalizedQuery"):
            LevelQueries(**{level: at[level]}, server=plain)
    with pytest.raises(ArgumentError, match=r"queries\.zones is NoPrivacyAverageQuery"):
        LevelQueries(zones=[tfp.NoPrivacyAverageQuery()], server=plain)


def test_upper_noise_is_even():
    """Zones clip to one norm; a part with little noise would be bare."""
    uneven = NestedSumQuery(
        [tfp.GaussianSumQuery(1.0, 1.0), tfp.GaussianSumQuery(1e-3, 1e-3)]
    )
    clip = [tfp.GaussianSumQuery(1.0, 0.0)] * 2
    with pytest.raises(ArgumentError, match=r"noise of queries.upper is 0.001,1.0;"):
        LevelQueries(zones=clip, upper=[[uneven]])
    LevelQueries(zones=[uneven, uneven])
    with pytest.raises(ArgumentError, match=r"noise of queries.zones is 0.001,1.0;"):
        LevelQueries(zones=[uneven, clip[0]])


UPPER = NoisePlan(
    zone_sizes=(10, 10),
    sampling=FullParticipation(),
    upper_levels=(Level((0, 0), (1.0,)),),
)
ONE = tfp.GaussianSumQuery(1.0, 1.0)
BARE = tfp.GaussianSumQuery(1.0, 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zones": [BARE]}, r"queries\.zones is 1; allowed: 2, one for each node"),
        *(
            ({"zones": [BARE] * 2, "upper": upper}, r"queries\.upper is .*: \[1\], ")
            for upper in ([[ONE, ONE]], [[ONE], [ONE]], [[ONE], [ONE, ONE]])
        ),
        ({"upper": [[ONE]]}, "queries is none that clips; allowed: some that clip"),
        (
            {"zones": [tfp.NoPrivacySumQuery()] * 2, "upper": [[ONE]]},
            "queries is none that clips",
        ),
        (
            {
                "server": NestedSumQuery([BARE, tfp.NoPrivacySumQuery()]),
                "upper": [[ONE]],
            },
            "queries is none that clips",
        ),
        (
            {"zones": [BARE] * 2, "upper": [[tfp.GaussianSumQuery(1.0, 64.0)]]},
            r"noise of queries.upper is 64.0; allowed: 0..4, 4 times the plan's",
        ),
        (
            {"zones": [ONE] * 2, "upper": [[ONE]]},
            r"noise of queries.zones is 1.0; allowed: 0..0",
        ),
        (
            {"zones": [BARE] * 2, "upper": [[ONE]], "server": ONE},
            r"noise of queries.server is 1.0; allowed: 0..0",
        ),
        (
            {"client": ONE, "upper": [[ONE]]},
            r"noise of queries.client is 1.0; allowed: 0..0",
        ),
    ],
)
def test_queries_under_which_the_plan_is_not_accounted_are_refused(given, message):
    record = tf.TensorSpec([4])
    ZonedMean(UPPER, record, queries=LevelQueries(zones=[BARE] * 2, upper=[[ONE]]))
    with pytest.raises(ArgumentError, match=message):
        ZonedMean(UPPER, record, queries=LevelQueries(**given))


class Doubled(tfp.GaussianSumQuery):
    """Changes records before it clips them."""

    def preprocess_record(self, params, record):
        return super().preprocess_record(params, 2.0 * record)


def of_the_same_name():
    return type("GaussianSumQuery", (Doubled,), {})(1.0, 0.0)


@pytest.mark.parametrize(
    "other", [Doubled(1.0, 0.0), NestedSumQuery([BARE]), of_the_same_name()]
)
def test_zones_have_queries_of_one_class(other):
    """The first zone's makes of all zones' records what its own would be."""
    with pytest.raises(
        ArgumentError, match=r"queries\.zones is .*; allowed: all of one"
    ):
        LevelQueries(zones=[BARE, other])
    LevelQueries(zones=[other, other])


def test_only_the_server_has_a_query_of_ones_own_where_clipping_adapts():
    plan = NoisePlan(
        zone_sizes=(10, 10),
        sampling=FullParticipation(),
        server_noise_multiplier=1.0,
        clipping=Clipping(kind="adaptive"),
    )
    ZonedMean(plan, tf.TensorSpec([4]), queries=LevelQueries(server=ONE))
    for level in ({"client": BARE}, {"zones": [BARE] * 2}):
        own = LevelQueries(server=ONE, **level)
        with pytest.raises(ArgumentError, match="queries is of other levels"):
            ZonedMean(plan, tf.TensorSpec([4]), queries=own)


def test_clients_are_clipped_by_the_query_of_their_own_zone():
    plan, norms = NoisePlan(zone_sizes=(1, 1), sampling=FullParticipation()), (0.5, 2.0)
    queries = LevelQueries(zones=[tfp.GaussianSumQuery(norm, 0.0) for norm in norms])
    mean = ZonedMean(plan, tf.TensorSpec([2]), queries=queries)
    sent, update = mean.client_state(mean.initial_state()), tf.constant([30.0, 40.0])
    for zone, norm in enumerate(norms):
        record = mean.clipped(sent, update, tf.constant(zone))["record"]
        np.testing.assert_allclose(record, [0.6 * norm, 0.8 * norm], rtol=1e-6)


@pytest.mark.parametrize("own", [None, LevelQueries()])
def test_where_no_level_has_a_query_nobody_clips(own):
    plan = NoisePlan(zone_sizes=(1,), sampling=FullParticipation())
    mean = ZonedMean(plan, tf.TensorSpec([2]), queries=own)
    state, update = mean.initial_state(), tf.constant([30.0, 40.0])
    profile = {
        **{"weight": tf.constant(1.0), "zone": tf.constant(0)},
        **{"carries_noise": tf.constant(False)},
    }
    came = mean.contribution(mean.client_state(state), update, profile)
    total, _ = mean.sent_by_one(came, profile["zone"])
    released, _, measured = mean.release(state, total)
    np.testing.assert_allclose(released, update)
    assert measured["clip_norm"] == np.inf
