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
    assert pvss.deals_hold(
        keys, 3, [(b"here", *first), (b"there", *second), (b"third", *third)]
    )


def tampered(data):
    other = hashlib.sha512(data).digest()
    return group.backend.multiply_generator(int.from_bytes(other))


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("index", [0, 2])
def test_a_tampered_dealing_fails(part, index):
    _, keys, dealt = sharing()
    parts = [list(items) for items in dealt]
    parts[part][index] = tampered(parts[part][index])
    assert pvss.deals_hold(keys, 3, [(b"here", *dealt)])
    assert not pvss.deals_hold(keys, 3, [(b"here", *parts)])
    assert not pvss.deals_hold(keys, 3, [(b"here", *dealt), (b"here", *parts)])


def test_a_dealing_is_bound_to_its_context_degree_and_keys():
    _, keys, dealt = sharing()
    assert not pvss.deals_hold(keys, 3, [(b"elsewhere", *dealt)])
    assert not pvss.deals_hold(keys, 2, [(b"here", *dealt)])
    assert not pvss.deals_hold(keys[::-1], 3, [(b"here", *dealt)])
    # A sharing of too high degree cannot be passed off as one of degree t - 1.
    higher = pvss.deal(b"here", keys, 4, random=random_scalar)
    assert not pvss.deals_hold(keys, 3, [(b"here", *higher[:2], higher[2][:3])])


def test_a_wrong_decryption_fails():
    secrets, keys, dealt = sharing()
    encrypted = pvss.aggregate([dealt[0]])
    good = pvss.decrypt(b"x", secrets[0], encrypted[0], random=random_scalar)
    wrong_key = pvss.decrypt(b"x", secrets[1], encrypted[0], random=random_scalar)
    first = (keys[0], encrypted[0])
    assert pvss.shares_hold([(b"x", *first, *good)])
    for bad in [
        (b"y", *first, *good),
        (b"x", *first, *wrong_key),
        (b"x", keys[1], encrypted[1], *good),
        (b"x", *first, tampered(good[0]), *good[1:]),
        (b"x", *first, *good[:2], bytes(32)),
    ]:
        assert not pvss.shares_hold([bad])
        assert not pvss.shares_hold([(b"x", *first, *good), bad])
