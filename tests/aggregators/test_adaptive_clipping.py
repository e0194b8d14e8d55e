"""What adaptive clipping's query shows of a client, against what is accounted."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy as tfp
from scipy import optimize
from scipy.stats import norm
from tensorflow_privacy.privacy.dp_query.nested_query import NestedSumQuery

from tff_hdp.aggregators.level_queries import LevelQueries
from tff_hdp.aggregators.levels import queries_from_plan
from tff_hdp.aggregators.zoned_mean import ZonedMean
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import (
    Clipping,
    FullParticipation,
    Ledger,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
)
from tff_hdp.privacy.accountant import worst

ADAPTIVE = Clipping(kind="adaptive")


def query_distance(plan, given, instead):
    """How far two updates put what the server's query shows, in its noise's units.

    What each adds to the sum and to the clipped count is measured on the query; the
    noise is that of its events.
    """
    query = queries_from_plan(plan, tf.zeros([1])).server
    state = query.initial_global_state()
    params = query.derive_sample_params(state)

    def added(update):
        if update is None:
            return 0.0, 0.0
        record = query.preprocess_record(params, tf.constant([update]))
        total, count = (float(tf.reshape(t, [])) for t in tf.nest.flatten(record))
        return total, count

    sample = query.initial_sample_state(tf.zeros([1]))
    event = query.get_noised_result(sample, state)[2]
    z_sum, z_count = (e.noise_multiplier for e in event.events)
    (sum_0, count_0), (sum_1, count_1) = added(given), added(instead)
    return math.hypot((sum_0 - sum_1) / z_sum, (count_0 - count_1) / (0.5 * z_count))


def released(plan, **threat):
    rows = account(plan, 1, 1e-5, ("pld",), threat=ThreatModel(**threat))
    return worst(rows, "released_model", method="pld")


@pytest.mark.parametrize("z", [0.5, 1.9, 3.5])
@pytest.mark.parametrize(
    ("neighbours", "instead"),
    [("add_or_remove", None), ("zero_out", 0.0), ("replace_one", -2.0)],
)
def test_no_less_is_accounted_than_the_query_shows(z, neighbours, instead):
    """An update of zeros is not clipped: zeroing one moves the count by 1, not 1/2."""
    plan = NoisePlan(
        zone_sizes=(40,),
        sampling=FullParticipation(),
        server_noise_multiplier=z,
        clipping=ADAPTIVE,
    )
    row = released(plan, neighbours=neighbours)
    distance = query_distance(plan, 5.0, instead)

    def over(epsilon):
        """delta of a Gaussian above 1e-5 (Balle and Wang 2018, Theorem 8)."""
        near, far = distance / 2, epsilon / distance
        delta = norm.cdf(near - far) - np.exp(epsilon) * norm.cdf(-near - far)
        return delta - 1e-5

    least = optimize.brentq(over, 0.0, 200.0)
    assert row.noise_multiplier <= (1 + 1e-6) / distance
    assert row.epsilon_pld >= least * (1 - 1e-6)
    # Of two clients that differ in sign both count as clipped; another may not.
    if neighbours != "replace_one":
        assert row.noise_multiplier == pytest.approx(1 / distance, rel=1e-6)
        assert row.epsilon_pld == pytest.approx(least, rel=0.01)


def test_the_count_is_no_smaller_where_clients_move_the_sum_by_less():
    """Mixed equally, a client of the larger zone moves the sum by a quarter."""
    plan = NoisePlan(
        zone_sizes=(10, 40),
        sampling=FullParticipation(),
        server_noise_multiplier=2.0,
        clipping=ADAPTIVE,
        mixing="equal",
    )
    threat = ThreatModel(neighbours="add_or_remove")
    rows = account(plan, 1, 1e-5, ("rdp",), threat=threat)
    found = {r.zone: r.noise_multiplier for r in rows if r.observer == "released_model"}
    # 50 clients are expected, so the count's noise is 2.5 and its multiplier 5.
    of_sum = 2.0**-2 - 5.0**-2
    assert found[0] == pytest.approx(2.0)
    assert found[1] == pytest.approx((of_sum / 16 + 5.0**-2) ** -0.5)


def test_a_zeroed_client_that_comes_is_told_by_the_count():
    """So sampling hides nobody from that relation, and it is not add-or-remove's."""
    plan = NoisePlan(
        zone_sizes=(100,),
        sampling=PoissonSampling((0.4,)),
        server_noise_multiplier=1.0,
        clipping=ADAPTIVE,
    )
    hidden, zeroed = (
        released(plan, neighbours=n) for n in ("add_or_remove", "zero_out")
    )
    assert "hidden" in hidden.sampling and "revealed" in zeroed.sampling
    assert zeroed.epsilon_pld > hidden.epsilon_pld
    ledger = Ledger()
    ledger.record(plan, threat=ThreatModel(neighbours="add_or_remove"))
    ledger.record(plan, threat=ThreatModel(neighbours="zero_out"))
    row = worst(ledger.account(1e-5, methods=("rdp",)), "released_model")
    assert row.epsilon_rdp is None and "do not compose" in row.assumptions


def test_a_zone_that_is_mixed_in_by_nothing_would_still_be_counted():
    with pytest.raises(
        ArgumentError, match=r"mixing\[1\] is 0.0; allowed: above 0 with"
    ):
        NoisePlan(
            zone_sizes=(5, 5),
            sampling=FullParticipation(),
            server_noise_multiplier=0.1,
            clipping=ADAPTIVE,
            mixing=(1.0, 0.0),
        )


def counting(count_stddev, z_sum=1.0):
    return tfp.QuantileAdaptiveClipSumQuery(
        1.0, z_sum, 0.5, 0.2, count_stddev, expected_num_records=20.0
    )


def test_a_count_of_clipped_updates_has_the_plans_noise():
    """An event has z of sum and count together, of which zeroing moves one twice."""
    plan = NoisePlan(
        zone_sizes=(20,),
        sampling=FullParticipation(),
        server_noise_multiplier=0.5,
        clipping=ADAPTIVE,
    )
    two = NestedSumQuery([counting(2.0, 0.6), counting(2.0, 0.6)])
    own, record = LevelQueries(server=two), [tf.TensorSpec([2])] * 2
    ZonedMean(plan, record, queries=own)
    for query in (
        counting(0.9),
        counting(0.0),
        NestedSumQuery([counting(1.0), counting(1.0)]),
    ):
        message = r"noise of the count of queries\.server is .*: at least 1"
        with pytest.raises(ArgumentError, match=message):
            ZonedMean(plan, record, queries=LevelQueries(server=query))


@pytest.mark.parametrize("kind", ["flat", "per_layer"])
def test_nobody_counts_clipped_updates_unless_clipping_adapts(kind):
    plan = NoisePlan(
        zone_sizes=(20,),
        sampling=FullParticipation(),
        server_noise_multiplier=0.5,
        clipping=Clipping(kind=kind),
    )
    own = LevelQueries(server=counting(1.0))
    message = f"queries.server is Quantile.*counts no clipped updates with .*{kind}"
    with pytest.raises(ArgumentError, match=message):
        ZonedMean(plan, tf.TensorSpec([4]), queries=own)
