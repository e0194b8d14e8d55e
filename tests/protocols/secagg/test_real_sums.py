import numpy as np
import pytest
import scipy.stats

from tff_hdp.errors import ArgumentError
from tff_hdp.protocols.secagg import graphs
from tff_hdp.protocols.secagg.errors import (
    BadInputError,
    BelowThresholdError,
    UnknownClientError,
)
from tff_hdp.protocols.secagg.fixed_point import FixedPoint
from tff_hdp.protocols.secagg.masks import SecureRandom
from tff_hdp.protocols.secagg.noise import discrete_gaussian
from tff_hdp.protocols.secagg.real_sums import secure_sum, share_std
from tff_hdp.protocols.secagg.rounds import masking_graph


def real_updates(k, size, norm=1.0, seed=0):
    values = np.random.default_rng(seed).normal(size=(k, size))
    values *= norm / np.linalg.norm(values, axis=1, keepdims=True)
    return {f"c{i}": v for i, v in enumerate(values)}


@pytest.mark.parametrize("protocol", ["bonawitz", "graph"])
def test_real_sums_are_within_the_encoding_error(protocol):
    updates = real_updates(20, 300)
    encoding = FixedPoint.for_sum(clip=1.0, bits=20, max_clients=20)
    result = secure_sum(
        updates,
        encoding=encoding,
        graph=masking_graph(protocol, 20),
        drops={"c3": "mask", "c4": "share", "c5": "unmask"},
    )
    assert set(result.survivors) == updates.keys() - {"c3", "c4"}
    expected = sum(updates[c] for c in result.survivors)
    error = np.abs(result.total - expected).max()
    assert 0 < error <= encoding.max_error(18) * (1 + 1e-9)


@pytest.mark.parametrize(("gone", "variance"), [(0, 10 / 8), (2, 1.0)])
def test_noise_under_the_mask_is_never_less_than_asked_for(gone, variance):
    # Ten clients, shares sized for eight survivors: with eight the variance is
    # as asked for, with all ten a quarter more.
    size = 4000
    updates = real_updates(10, size)
    encoding = FixedPoint.for_sum(
        clip=1.0, bits=24, max_clients=10, stddev=0.8, size=size
    )
    result = secure_sum(
        updates,
        encoding=encoding,
        graph=masking_graph("bonawitz", 10),
        drops={f"c{i}": "mask" for i in range(gone)},
        min_survivors=8,
        stddev=0.5,
    )
    noise = result.total - sum(updates[c] for c in result.survivors)
    std = 0.5 * np.sqrt(variance)
    assert scipy.stats.kstest(noise / std, "norm").pvalue > 1e-5
    assert noise.std() == pytest.approx(std, rel=5 / np.sqrt(2 * size))


def test_too_few_survivors_for_the_noise_are_refused_before_unmasking():
    with pytest.raises(BelowThresholdError, match="7 clients sent updates; the fewest"):
        secure_sum(
            real_updates(10, 5),
            encoding=FixedPoint.for_sum(clip=1.0, bits=24, max_clients=10, stddev=0.2),
            graph=masking_graph("bonawitz", 10),
            drops={f"c{i}": "mask" for i in range(3)},
            min_survivors=8,
            stddev=0.1,
        )


def test_an_encoding_without_room_for_all_the_noise_there_may_be_is_refused():
    """Shares are sized for the fewest; a hundred of them are three times the noise."""
    updates = real_updates(100, 5)
    graph = masking_graph("graph", 100)
    options = {"graph": graph, "stddev": 1000.0}
    room = {"clip": 1.0, "bits": 24, "max_clients": 100, "size": 5}
    with pytest.raises(ArgumentError, match="encoding is of sums that wrap around"):
        secure_sum(
            updates, encoding=FixedPoint.for_sum(**room, stddev=1000.0), **options
        )
    # Nor is there any where the clients alone may fill the ring.
    with pytest.raises(ArgumentError, match="encoding is of sums that wrap around"):
        secure_sum(
            updates, encoding=FixedPoint.for_sum(**room), graph=graph, stddev=0.1
        )
    most = 1000.0 * np.sqrt(100 / graph.threshold)
    enough = FixedPoint.for_sum(**room, stddev=most)
    found = secure_sum(updates, encoding=enough, **options).total
    assert np.abs(found).max() < 8 * most
    # The same noise, if all must survive.
    sized = FixedPoint.for_sum(**room, stddev=1000.0)
    secure_sum(updates, encoding=sized, min_survivors=100, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"updates": {}}, ArgumentError, r"updates is of 0 clients; allowed: 1\.\.5"),
        (
            {"updates": real_updates(6, 5)},
            ArgumentError,
            r"updates is of 6 clients; allowed: 1\.\.5",
        ),
        ({"drops": {"x": "mask"}}, UnknownClientError, "drops name 'x'"),
        ({"drops": {"c0": "sleep"}}, ArgumentError, "drops is sleep; allowed: adver"),
        ({"stddev": -1.0}, ArgumentError, "stddev is -1.0"),
        ({"stddev": 1e-9}, ArgumentError, "stddev is 1e-09; allowed: 0, or at least"),
        ({"session": 3}, ArgumentError, "session is 3; allowed: a name"),
        ({"signed": "no"}, ArgumentError, "signed is 'no'"),
        ({"min_survivors": 0}, ArgumentError, "min_survivors is 0"),
        ({"min_survivors": 2.5}, ArgumentError, "min_survivors is 2.5"),
        (
            {"updates": {"c0": np.zeros(5), "c1": np.zeros(5)}},
            ArgumentError,
            "graph is for 5 clients; allowed: one for 2",
        ),
        (
            {"updates": real_updates(4, 5) | {"c4": np.zeros(6)}},
            BadInputError,
            r"update is uint32\[6\]; allowed is uint32\[5\]",
        ),
        (
            {"updates": real_updates(4, 5) | {"c4": np.full(5, np.nan)}},
            BadInputError,
            r"values\[0\] is nan",
        ),
    ],
)
def test_bad_rounds_are_refused(options, error, message):
    arguments = {
        "updates": real_updates(5, 5),
        "encoding": FixedPoint.for_sum(clip=1.0, bits=32, max_clients=5),
        "graph": graphs.complete(5),
    } | options
    with pytest.raises(error, match=message):
        secure_sum(arguments.pop("updates"), **arguments)


def test_shares_add_up_when_the_fewest_are_left():
    share = share_std(3.0, 9)
    assert share == pytest.approx(1.0)
    samples = sum(
        discrete_gaussian(10 * share, 30_000, random=SecureRandom(bytes([i]) * 32))
        for i in range(9)
    )
    assert samples.std() == pytest.approx(30.0, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1.0, 0), "min_clients is 0"), ((float("inf"), 1), "stddev is inf")],
)
def test_bad_shares_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        share_std(*arguments)
