"""UDP-Alg's round against a plain re-implementation, its clip and its noise."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.thinning import thinned
from tff_hdp.clients.batches import make_chunk
from tff_hdp.privacy import PoissonSampling, configurations
from tff_hdp.runtime.in_process import create_in_process_context
from tff_hdp.systems.udp_hypernet import plan as udp_alg
from tff_hdp.systems.udp_hypernet import process as udp_hypernet
from tff_hdp.systems.udp_hypernet.evaluation import (
    PersonalTests,
    build_personal_evaluation,
)
from tff_hdp.systems.udp_hypernet.hypernetwork import Hypernetwork

USERS, CLASSES, INPUTS = 5, 3, 4
ETA, LAMBDA, ZETA = 0.2, 0.3, 0.7
# A plan that clips, with next to no noise.
Q, S, W, SIGMA = 0.5, 0.05, 4.0, 1e-6
CLIPPING = udp_alg.plan(users=USERS, q=Q, sigma=SIGMA, S=S, W=W)


def build_model():
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([INPUTS]),
            tf.keras.layers.Dense(6, activation="tanh"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


@pytest.fixture(scope="module")
def network():
    shapes = tuple(tuple(w.shape) for w in build_model().trainable_weights)
    return Hypernetwork(descriptor_dim=3, width=7, targets=shapes)


@pytest.fixture(scope="module")
def in_process_context():
    """One for all tests here: what a process was compiled to is found again."""
    return create_in_process_context()


@pytest.fixture(params=["in_process", "native"])
def runtime(request, in_process_context):
    """Makes either runtime the default context."""
    context = in_process_context
    if request.param == "native":
        _, context = request.getfixturevalue("native_worker")
    tff.framework.set_default_context(context)


@pytest.fixture
def in_process(in_process_context):
    tff.framework.set_default_context(in_process_context)


@functools.cache
def build(network, plan, users_at_once=1, **changes):
    given = {
        "data_type": udp_hypernet.user_type((INPUTS,), np.float32),
        "client_learning_rate": ETA,
        "server_learning_rate": LAMBDA,
        "descriptor_learning_rate": ZETA,
    }
    return udp_hypernet.build_udp_hypernet(
        build_model=build_model,
        hypernetwork=network,
        plan=plan,
        users_at_once=users_at_once,
        **given | changes,
    )


def noiseless(q=0.5):
    return configurations.none(zone_sizes=(USERS,), sampling=PoissonSampling((q,)))


@functools.cache  # A new seed has TensorFlow prepare every graph anew.
def initial(network):
    tf.keras.utils.set_random_seed(11)
    weights = udp_hypernet.initial_weights(build_model, network, USERS)
    tf.random.set_seed(None)
    return tf.nest.map_structure(lambda t: t.numpy(), weights)


def start(process, network):
    weights = initial(network)
    return process.set_model_weights(process.initialize(), weights), weights


def examples(user):
    rng = np.random.default_rng(user)
    size = 5 + user
    features = rng.normal(size=[size, INPUTS]).astype(np.float32)
    return features, rng.integers(0, CLASSES, size).astype(np.int32)


def order(user):
    """Three batches of four rows, the last one short."""
    rows = np.random.default_rng(100 + user).integers(0, 5 + user, (3, 4))
    rows[-1, 2:] = -1
    return rows.astype(np.int32)


def data(users, weights=None):
    weights = weights or {}
    return [chunk(user, examples(user), weights.get(user, 1.0)) for user in users]


def chunk(user, own, weight=1.0):
    fields = make_chunk(
        [own], [order(user)], weights=[weight], carries_noise=[False], zone=0
    )
    fields["user"] = np.array([user], np.int32)
    return tf.data.Dataset.from_tensors(fields)


def together(users, weights=None):
    """The data of several users as one."""
    weights = weights or {}
    fields = make_chunk(
        [examples(user) for user in users],
        [order(user) for user in users],
        weights=[weights.get(user, 1.0) for user in users],
        carries_noise=[False] * len(users),
        zone=0,
    )
    fields["user"] = np.array(users, np.int32)
    return tf.data.Dataset.from_tensors(fields)


def plain_update(network, weights, user):
    """Lines 8 to 12 and 16 for one user, with Keras and one tape; and its loss."""
    phi = [tf.Variable(p) for p in weights["phi"]]
    descriptor = tf.Variable(weights["descriptors"][user])
    keras = build_model()
    with tf.GradientTape() as tape:
        theta = network(phi, descriptor)
        for variable, value in zip(keras.trainable_weights, theta, strict=True):
            variable.assign(value)
        loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = tf.keras.optimizers.SGD(ETA)
        features, labels = examples(user)
        summed, seen = 0.0, 0
        for rows in order(user):
            rows = rows[rows >= 0]
            with tf.GradientTape() as inner:
                loss = loss_fn(labels[rows], keras(features[rows]))
            summed, seen = summed + len(rows) * float(loss), seen + len(rows)
            gradients = inner.gradient(loss, keras.trainable_weights)
            optimizer.apply_gradients(
                zip(gradients, keras.trainable_weights, strict=True)
            )
        delta = [
            t.numpy() - w.numpy()
            for t, w in zip(theta, keras.trainable_weights, strict=True)
        ]
        # The gradient of <theta, delta> with delta held fixed is the pull-back.
        inner_product = tf.add_n(
            [tf.reduce_sum(t * d) for t, d in zip(theta, delta, strict=True)]
        )
    pulled, of_v = tape.gradient(inner_product, (phi, descriptor))
    return [p.numpy() for p in pulled], of_v.numpy(), summed / seen


def norm(tensors):
    return np.sqrt(sum(float(np.sum(np.square(t))) for t in tensors))


def clip(tensors, bound):
    return [t * min(1.0, bound / norm(tensors)) for t in tensors]


@pytest.mark.parametrize("users_at_once", thinned([3, 1], every=2))
def test_a_noiseless_round_is_the_plain_one(network, runtime, users_at_once):
    process = build(network, noiseless(), users_at_once)
    state, weights = start(process, network)
    users, w = [0, 3, 4], {0: 1.0, 3: 0.5, 4: 0.25}
    # Of the users that a TFF client may stand for not all are there.
    given = data(users, w) if users_at_once == 1 else [*data([0]), together([3, 4], w)]
    output = process.next(state, given)
    updates = {u: plain_update(network, weights, u) for u in users}
    loss = np.mean([loss for *_, loss in updates.values()])
    assert output.metrics["train_loss"] == pytest.approx(loss, rel=1e-4)
    for i, found in enumerate(output.state["phi"]):
        mean = sum(w[u] * updates[u][0][i] for u in users) / sum(w.values())
        expected = weights["phi"][i] - LAMBDA * mean
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for user in range(USERS):
        expected = weights["descriptors"][user]
        if user in users:
            expected = expected - ZETA * updates[user][1]
        np.testing.assert_allclose(
            output.state["descriptors"][user], expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.slow
def test_training_lowers_every_users_loss(network, in_process):
    process = build(network, noiseless())
    state, _ = start(process, network)
    rows = [examples(user) for user in range(USERS)]
    sizes = np.array([len(labels) for _, labels in rows])
    tests = PersonalTests(
        features=np.concatenate([x for x, _ in rows]),
        labels=np.concatenate([y for _, y in rows]),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
    )
    evaluate = build_personal_evaluation(
        build_model=build_model, hypernetwork=network, tests=tests
    )
    _, before = evaluate(state["phi"], state["descriptors"])
    for _ in range(15):
        state = process.next(state, data(range(USERS))).state
    _, after = evaluate(state["phi"], state["descriptors"])
    assert (after < before).all()
    assert after.sum() < 0.7 * before.sum()


def test_descriptors_stay_as_drawn_at_rate_0(network, in_process):
    process = build(network, noiseless(), descriptor_learning_rate=0.0)
    state, weights = start(process, network)
    state = process.next(state, data((0, 2))).state
    np.testing.assert_array_equal(state["descriptors"], weights["descriptors"])
    assert any(map(np.any, map(np.subtract, state["phi"], weights["phi"])))


def test_evaluation_is_each_users_own_keras_model(network, in_process):
    weights = initial(network)
    features, labels = examples(4)
    tests = PersonalTests(
        features=features,
        labels=labels,
        starts=np.array([0, 2, 4, 0, 1]),
        sizes=np.array([3, 1, 5, 9, 2]),
    )
    evaluate = build_personal_evaluation(
        build_model=build_model, hypernetwork=network, tests=tests
    )
    right, loss = evaluate(weights["phi"], weights["descriptors"])
    for user in range(USERS):
        keras = build_model()
        keras.set_weights(network(weights["phi"], weights["descriptors"][user]))
        rows = slice(tests.starts[user], tests.starts[user] + tests.sizes[user])
        logits = keras(features[rows]).numpy()
        assert right[user] == np.sum(logits.argmax(-1) == labels[rows])
        shifted = logits - logits.max(-1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        expected = -log_p[np.arange(len(logits)), labels[rows]].sum()
        assert loss[user] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("users_at_once", thinned([4, 1], every=2))
def test_the_step_is_clipped_weighted_and_over_q_w(network, in_process, users_at_once):
    """With sigma far below S the noisy round is the noiseless one to its noise."""
    process = build(network, CLIPPING, users_at_once)
    state, weights = start(process, network)
    users, w = [1, 2, 4], {1: 1.0, 2: 0.5, 4: 0.5}
    given = data(users, w) if users_at_once == 1 else [together(users, w)]
    output = process.next(state, given)
    updates = {u: plain_update(network, weights, u)[0] for u in users}
    assert all(norm(update) > 2 * S for update in updates.values())
    clipped = {u: clip(updates[u], S) for u in users}
    for i, found in enumerate(output.state["phi"]):
        mean = sum(w[u] * clipped[u][i] for u in users) / (Q * W)
        expected = weights["phi"][i] - LAMBDA * mean
        np.testing.assert_allclose(found, expected, atol=6 * LAMBDA * SIGMA + 1e-6)


def test_one_user_moves_phi_by_at_most_the_sensitivity(network, in_process):
    """Lemma 3.1: max(w) S / (q W), whoever joins."""
    process = build(network, CLIPPING, 4)
    state, _ = start(process, network)
    without = process.next(state, data([0, 1])).state["phi"]
    for newcomer in (2, 3, 4):
        joined = process.next(state, data([0, 1, newcomer])).state["phi"]
        moved = norm([a - b for a, b in zip(joined, without, strict=True)])
        assert moved <= LAMBDA * S / (Q * W) * 1.001
        assert moved > 0.9 * LAMBDA * S / (Q * W)


@pytest.mark.parametrize("users", [[], [0, 2]])
def test_the_noise_is_sigma_with_or_without_users(network, in_process, users):
    sigma, S = 0.3, 1e-6
    plan = udp_alg.plan(users=USERS, q=0.4, sigma=sigma, S=S)
    process = build(network, plan)
    state, weights = start(process, network)
    drawn = []
    for _ in range(10):
        phi = process.next(state, data(users)).state["phi"]
        drawn += [
            ((a - b) / LAMBDA).ravel() for a, b in zip(phi, weights["phi"], strict=True)
        ]
    drawn = np.concatenate(drawn)
    # 4 standard errors of a sample standard deviation.
    assert np.std(drawn) == pytest.approx(sigma, rel=4 / np.sqrt(2 * drawn.size))
    assert abs(drawn.mean()) < 4 * sigma / np.sqrt(drawn.size)


@pytest.mark.parametrize("users_at_once", thinned([4, 1], every=2))
def test_a_user_that_diverges_is_left_out(network, in_process, users_at_once):
    process = build(network, CLIPPING, users_at_once)
    state, weights = start(process, network)
    features, labels = examples(1)
    bad = chunk(1, (np.full_like(features, np.nan), labels))
    given = [bad, *data([2])]
    if users_at_once > 1:
        fields = together([1, 2]).get_single_element()
        spoilt = fields["features"].numpy()
        spoilt[0] = np.nan
        fields = collections.OrderedDict(fields, features=spoilt)
        given = [tf.data.Dataset.from_tensors(fields)]
    output = process.next(state, given)
    assert output.metrics["aggregator"]["rejected"] == 1
    assert all(np.isfinite(p).all() for p in output.state["phi"])
    found = output.state["descriptors"]
    np.testing.assert_array_equal(found[1], weights["descriptors"][1])
    assert np.any(found[2] != weights["descriptors"][2])


def test_a_user_that_is_none_is_rejected_alone(network, in_process):
    process = build(network, noiseless(), 3)
    state, weights = start(process, network)
    fields = collections.OrderedDict(together([1, 2, 3]).get_single_element())
    fields["user"] = np.array([1, USERS, -1], np.int32)
    output = process.next(state, [tf.data.Dataset.from_tensors(fields)])
    assert output.metrics["aggregator"]["rejected"] == 2
    update, own, _ = plain_update(network, weights, 1)
    for i, found in enumerate(output.state["phi"]):
        expected = weights["phi"][i] - LAMBDA * update[i]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    moved = weights["descriptors"] - output.state["descriptors"]
    np.testing.assert_allclose(moved[1], ZETA * own, rtol=1e-4, atol=1e-5)
    assert not np.delete(moved, 1, 0).any()


@pytest.mark.slow
def test_one_by_one_comes_to_the_same(network, in_process, monkeypatch):
    """What a plan whose clip no norm decides takes: every update is formed."""
    states = []
    for by_norms in (True, False):
        monkeypatch.setattr(udp_hypernet, "norms_decide", lambda *_, is_=by_norms: is_)
        # As it is patched, not one that was built before.
        process = build.__wrapped__(network, CLIPPING, 3)
        state, _ = start(process, network)
        states.append(process.next(state, [together([1, 2, 4])]).state)
    for one, other in zip(states[0]["phi"], states[1]["phi"], strict=True):
        np.testing.assert_allclose(one, other, atol=12 * LAMBDA * SIGMA + 1e-6)


def test_more_users_at_once_than_were_built_for_end_the_round(network, in_process):
    process = build(network, noiseless(), 3)
    state, _ = start(process, network)
    with pytest.raises(Exception, match="more users than users_at_once"):
        process.next(state, [together([0, 1, 2, 3])])


def test_nobody_gets_a_row_that_is_not_of_its_own_users():
    for users in ([3], [4, 2], [2, 1, 4]):
        keys = udp_hypernet.row_keys(tf.constant(users), 3).numpy().tolist()
        assert keys[: len(users)] == users and {*keys} == {*users}


def test_types_say_what_goes_where(network):
    process = build(network, noiseless(), 3)
    state_type = process.initialize.type_signature.result.member
    assert state_type.descriptors.shape == (USERS, 3)
    assert [t.shape for t in state_type.phi] == network.shapes
    data_type = process.next.type_signature.parameter[1].member
    assert data_type.element.features.shape == (None, None, INPUTS)
    assert data_type.element.user.shape == (None,)


def test_what_does_not_fit_is_refused(network):
    two_zones = configurations.none(
        zone_sizes=(2, 3), sampling=PoissonSampling((0.5, 0.5))
    )
    with pytest.raises(ValueError, match="one zone"):
        build(network, two_zones)
    other = Hypernetwork(descriptor_dim=3, width=7, targets=((2, 2),))
    with pytest.raises(ValueError, match="users_at_once is 0"):
        build(network, noiseless(), 0)
    with pytest.raises(ValueError, match=r"targets is \(\(2, 2\),\); allowed"):
        build(other, noiseless())
    with pytest.raises(ValueError, match="plan is None; allowed: a NoisePlan"):
        build(network, None)
    with pytest.raises(ValueError, match="hypernetwork is None; allowed: "):
        build(None, noiseless())
    with pytest.raises(ValueError, match="data_type is None; allowed: "):
        build(network, noiseless(), data_type=None)
