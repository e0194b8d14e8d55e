import hashlib
import secrets as system

import pytest

from tff_hdp.protocols.elections import group, pvss, sodium
from tff_hdp.protocols.elections.group import ORDER


@pytest.fixture(autouse=True, params=["python", "libsodium"])
def backend(request, monkeypatch):
    """Every test here is run by both."""
    found = group.PythonGroup() if request.param == "python" else sodium.load()
    if found is None:
        pytest.skip("no libsodium is installed")
    monkeypatch.setattr(group, "backend", found)


def random_scalar():
    return system.randbelow(ORDER)


def sharing(holders=5, threshold=3, context=b"here"):
    secrets = [random_scalar() for _ in range(holders)]
    keys = [group.backend.multiply_generator(x) for x in secrets]
    return secrets, keys, pvss.deal(context, keys, threshold, random=random_scalar)


def test_any_t_holders_recover_the_sum_of_secrets():
    secrets, keys, first = sharing()
    # The secrets are the first scalar each dealer draws.
    drawn = []

    def recorded():
        drawn.append(random_scalar())
        return drawn[-1]

    second = pvss.deal(b"there", keys, 3, random=recorded)
    third = pvss.deal(b"third", keys, 3, random=recorded)
    expected = group.backend.multiply_generator(drawn[0] + drawn[6])
    encrypted = pvss.aggregate([second[0], third[0]])
    shares = {
        i: pvss.decrypt(b"", x, encrypted[i - 1], random=random_scalar)[0]
        for i, x in enumerate(secrets, start=1)
    }
    for chosen in ([1, 2, 3], [5, 1, 4], [2, 4, 5]):
        secret = pvss.recover({i: shares[i] for i in chosen})
        assert secret == expected
    # Two shares put through the same formula give something else.
    assert pvss.recover({i: shares[i] for i in (1, 2)}) != expected
    for context, dealt in ((b"here", first), (b"there", second), (b"third", third)):
        assert pvss.deal_holds(context, keys, 3, dealt)


def tampered(data):
    other = hashlib.sha512(data).digest()
    return group.backend.multiply_generator(int.from_bytes(other))


def spoilt(dealt):
    """The dealing with one thing about it changed, in every place."""
    shares, challenge, responses = dealt
    for i, share in enumerate(shares):
        for other in (tampered(share), bytes(32), share[:31], b"\xff" * 32):
            yield (*shares[:i], other, *shares[i + 1 :]), challenge, responses
    for other in (tampered(challenge)[:16], challenge[:15], challenge + b"\0", b""):
        yield shares, other, responses
    for i, response in enumerate(responses):
        one_more = (int.from_bytes(response, "little") + 1).to_bytes(32, "little")
        beyond = (int.from_bytes(response, "little") + ORDER).to_bytes(32, "little")
        for other in (one_more, beyond, response[:31], response + b"\0"):
            yield shares, challenge, (*responses[:i], other, *responses[i + 1 :])
    yield shares[:-1], challenge, responses
    yield shares, challenge, (*responses, bytes(32))


def test_a_tampered_dealing_fails():
    _, keys, dealt = sharing(holders=3, threshold=2)
    assert pvss.deal_holds(b"here", keys, 2, dealt)
    for parts in spoilt(dealt):
        assert not pvss.deal_holds(b"here", keys, 2, parts)


def test_a_dealing_is_bound_to_its_context_degree_and_keys():
    _, keys, dealt = sharing(holders=4)
    assert not pvss.deal_holds(b"elsewhere", keys, 3, dealt)
    assert not pvss.deal_holds(b"here", keys, 2, dealt)
    assert not pvss.deal_holds(b"here", keys[::-1], 3, dealt)
    # A sharing of too high degree cannot be passed off as one of degree t - 1.
    higher = pvss.deal(b"here", keys, 4, random=random_scalar)
    assert not pvss.deal_holds(b"here", keys, 3, (*higher[:2], higher[2][:3]))


def test_a_wrong_decryption_fails():
    secrets, keys, dealt = sharing(holders=2, threshold=2)
    encrypted = pvss.aggregate([dealt[0]])
    good = pvss.decrypt(b"x", secrets[0], encrypted[0], random=random_scalar)
    wrong_key = pvss.decrypt(b"x", secrets[1], encrypted[0], random=random_scalar)
    share, challenge, response = good
    beyond = (int.from_bytes(response, "little") + ORDER).to_bytes(32, "little")
    first = (keys[0], encrypted[0])
    assert pvss.share_holds(b"x", *first, good)
    for bad in [
        (b"y", *first, good),
        (b"x", *first, wrong_key),
        (b"x", keys[1], encrypted[1], good),
        (b"x", *first, (tampered(share), challenge, response)),
        (b"x", *first, (b"\xff" * 32, challenge, response)),
        (b"x", *first, (share, tampered(share)[:16], response)),
        (b"x", *first, (share, challenge, bytes(32))),
        (b"x", *first, (share, challenge, beyond)),
    ]:
        assert not pvss.share_holds(*bad)


def test_the_verifier_finds_what_the_prover_committed_to():
    """The challenge is the hash of commitments, which are z Y - c share."""
    _, keys, (shares, challenge, responses) = sharing(holders=3, threshold=2)
    c = int.from_bytes(challenge, "little")
    z = [int.from_bytes(data, "little") for data in responses]
    multiply, total = group.backend.multiply, group.backend.total
    commitments = [
        total([multiply(z[0] + z[1] * i, key), multiply(-c, share)])
        for i, (key, share) in enumerate(zip(keys, shares, strict=True), start=1)
    ]
    assert pvss._challenge(b"here", shares, commitments) == challenge
