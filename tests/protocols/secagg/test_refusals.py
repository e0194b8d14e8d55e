"""Bad input is refused by name, and the round goes on as if it never came."""

import dataclasses

import numpy as np
import pytest

from tests.protocols.secagg.parties import NAMES, TERMS, Running
from tff_hdp.errors import LONGEST_LINE, ArgumentError
from tff_hdp.protocols.secagg import errors, rounds, shamir
from tff_hdp.protocols.secagg.client import PHASES, Client
from tff_hdp.protocols.secagg.messages import Round, Survivors
from tff_hdp.protocols.secagg.server import Server

replace = dataclasses.replace


def check(total, names=NAMES):
    expected = sum(NAMES.index(name) for name in names)
    np.testing.assert_array_equal(total, np.full(3, expected, np.uint32))


def test_bad_keys():
    run = Running()
    good = run.keys
    run.server.receive(good["a"])
    for bad, error, message in [
        (replace(good["b"], round_number=4), errors.WrongRoundError, "of round 4; th"),
        (good["a"], errors.ReplayError, "'a' has sent its Keys already"),
        (replace(good["b"], client="x"), errors.UnknownClientError, "Keys of 'x'"),
        (
            replace(good["b"], mask_key=good["a"].mask_key),
            errors.BadKeyError,
            "'b' uses a key of 'a'",
        ),
        (replace(good["b"], cipher_key=b"k"), errors.BadKeyError, "has 1 bytes"),
        (
            replace(good["b"], cipher_key=good["b"].mask_key),
            errors.BadKeyError,
            "'b' uses a key of 'b'",
        ),
        (
            replace(good["b"], mask_key=bytes(32)),
            errors.BadKeyError,
            "key of 'b' is unusable",
        ),
    ]:
        with pytest.raises(error, match=message):
            run.server.receive(bad)
    with pytest.raises(errors.BelowThresholdError, match="1 clients advertised"):
        run.server.end_advertise()
    run.advertise(NAMES[1:]).share().deliver().mask().collect().unmask()
    check(run.finish())


def test_refusals_are_short_whatever_was_sent():
    long = "x" * 300_000
    run = Running()
    strangers = [replace(run.keys["a"], client=long)]
    run.advertise().share()
    shares, peers = run.shares["a"], run.peer_keys["a"]
    strangers.append(replace(shares, ciphertexts={**shares.ciphertexts, long: b""}))
    for stranger in strangers:
        with pytest.raises(errors.SecureAggregationError) as refused:
            run.server.receive(stranger)
        assert len(str(refused.value)) <= LONGEST_LINE
    late = Client("a", TERMS)
    late.advertise()
    with pytest.raises(errors.SecureAggregationError) as refused:
        late.share(replace(peers, peers={**peers.peers, long: run.keys["b"]}))
    assert len(str(refused.value)) <= LONGEST_LINE
    check(run.deliver().mask().collect().unmask().finish())


def test_bad_peer_keys():
    run = Running().advertise()
    message, client = run.peer_keys["a"], run.clients["a"]

    def with_peer(name, **changes):
        return replace(
            message, peers=message.peers | {name: replace(run.keys[name], **changes)}
        )

    few = replace(message, peers={"b": run.keys["b"]})
    low_order = bytes(32)
    for bad, error, text in [
        (replace(message, round_number=9), errors.WrongRoundError, "is of round 9"),
        (run.peer_keys["b"], errors.UnknownClientError, "is for 'b', not 'a'"),
        (with_peer("c", client="d"), errors.UnknownClientError, "keys of 'd' stand"),
        (
            with_peer("c", cipher_key=run.keys["b"].mask_key),
            errors.BadKeyError,
            "'c' uses a key of 'b'",
        ),
        (
            with_peer("c", mask_key=run.keys["a"].mask_key),
            errors.BadKeyError,
            "'c' uses a key of 'a'",
        ),
        (with_peer("d", cipher_key=low_order), errors.BadKeyError, "key of 'd' is un"),
        (few, errors.BelowThresholdError, "2 clients are left to share keys"),
    ]:
        with pytest.raises(error, match=text):
            client.share(bad)
    run.share().deliver().mask().collect().unmask()
    check(run.finish())


def test_bad_shares():
    run = Running().advertise().share()
    good = run.shares["a"]
    fewer = {n: c for n, c in good.ciphertexts.items() if n != "b"}
    for bad, error, message in [
        (run.keys["a"], errors.WrongPhaseError, "Keys of 'a' came at 'share'"),
        (replace(good, round_number=4), errors.WrongRoundError, "Shares of 'a' is of"),
        (replace(good, ciphertexts=fewer), errors.BadShareError, "'a' shared with"),
        (replace(good, share_digests={}), errors.BadShareError, "'a' lacks digests"),
    ]:
        with pytest.raises(error, match=message):
            run.server.receive(bad)
    run.server.receive(good)
    with pytest.raises(errors.ReplayError, match="'a' has sent its Shares already"):
        run.server.receive(good)
    with pytest.raises(errors.WrongPhaseError, match="'a' is at 'mask'"):
        run.clients["a"].share(run.peer_keys["a"])
    run.deliver().mask().collect().unmask()
    check(run.finish())


def test_shares_that_cannot_be_opened():
    run = Running().advertise().share().deliver()
    message, client = run.delivered["a"], run.clients["a"]
    sealed = message.ciphertexts
    changed = bytes([sealed["b"][0] ^ 1]) + sealed["b"][1:]
    update = run.inputs["a"]
    for ciphertexts, error, text in [
        (sealed | {"b": changed}, errors.BadShareError, "shares of 'b' for 'a' cannot"),
        (sealed | {"b": sealed["c"]}, errors.BadShareError, "shares of 'b' for 'a'"),
        (sealed | {"x": b""}, errors.UnknownClientError, "shares of 'x'"),
        ({"b": sealed["b"]}, errors.BelowThresholdError, "2 clients are left to mask"),
    ]:
        with pytest.raises(error, match=text):
            client.mask(replace(message, ciphertexts=ciphertexts), update)
    # A round's ciphertext replayed in the next does not open there.
    other = Running(replace(TERMS, number=6)).advertise().share().deliver()
    stale = replace(other.delivered["a"], ciphertexts=sealed)
    with pytest.raises(errors.BadShareError, match="cannot be opened: wrong key, ro"):
        other.clients["a"].mask(stale, update)
    run.mask().collect().unmask()
    check(run.finish())


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (np.zeros(4, np.uint32), r"update is uint32\[4\]; allowed is uint32\[3\]"),
        (np.zeros(3, np.float32), r"update is float32\[3\]"),
        (np.zeros(3, np.int64), r"update is int64\[3\]"),
    ],
)
def test_bad_updates(update, message):
    run = Running().advertise().share().deliver()
    with pytest.raises(errors.BadInputError, match=message):
        run.clients["a"].mask(run.delivered["a"], update)
    run.mask().collect().unmask()
    check(run.finish())


def test_updates_beyond_the_ring():
    run = Running(replace(TERMS, bits=20)).advertise().share().deliver()
    with pytest.raises(errors.BadInputError, match=r"holds 1048576; .* modulo 2\^20"):
        run.clients["a"].mask(run.delivered["a"], np.full(3, 2**20, np.uint32))


def test_bad_masked_updates():
    run = Running().advertise().share(NAMES[:3]).deliver(NAMES[:3]).mask(NAMES[:3])
    good = run.masked["a"]
    run.server.receive(good)
    before = run.server._total.copy()
    second = run.masked["b"]
    for bad, error, message in [
        (good, errors.ReplayError, "'a' has sent its MaskedUpdate already"),
        (replace(second, client="d"), errors.UnknownClientError, "'d', who takes no"),
        (replace(second, round_number=4), errors.WrongRoundError, "this is round 5"),
        (
            replace(second, values=np.zeros(4, np.uint32)),
            errors.BadInputError,
            r"update of 'b' is uint32\[4\]; allowed is uint32\[3\]",
        ),
        (replace(second, values=np.zeros(6, "<u2")), errors.BadInputError, "uint16"),
    ]:
        with pytest.raises(error, match=message):
            run.server.receive(bad)
    np.testing.assert_array_equal(run.server._total, before)
    with pytest.raises(errors.BelowThresholdError, match="1 clients sent updates"):
        run.server.end_mask()
    run.collect(NAMES[:3]).unmask(NAMES[:3])
    check(run.finish(NAMES[:3]), NAMES[:3])


def test_a_client_reveals_its_shares_once_and_never_both_of_one():
    run = Running().advertise().share().deliver().mask().collect(NAMES[:3])
    client, message = run.clients["a"], run.survivors["a"]
    assert message == Survivors(5, "a", ("a", "b", "c"), ("d",))
    for bad, error, text in [
        (
            replace(message, dropped=("d", "c")),
            errors.SecureAggregationError,
            "'c' is named twice",
        ),
        (
            replace(message, survivors=("a", "b"), dropped=("c", "d")),
            errors.BelowThresholdError,
            "2 clients are left to unmask",
        ),
        (
            replace(message, survivors=("b", "c", "d"), dropped=("a",)),
            errors.SecureAggregationError,
            "'a' has not dropped out",
        ),
        (
            replace(message, dropped=()),
            errors.SecureAggregationError,
            "'d' is neither survivor nor dropped",
        ),
        (
            replace(message, dropped=("d", "x")),
            errors.UnknownClientError,
            "'a' holds no share of 'x'",
        ),
        (replace(message, round_number=4), errors.WrongRoundError, "is of round 4"),
    ]:
        with pytest.raises(error, match=text):
            client.unmask(bad)
    run.unmask(NAMES[:3])
    with pytest.raises(errors.WrongPhaseError, match="'a' is at 'done'"):
        client.unmask(message)
    check(run.finish(NAMES[:3]), NAMES[:3])


def test_bad_unmaskings():
    run = Running().advertise().share().deliver().mask().collect(NAMES[:3])
    run.unmask(NAMES[:3])
    good = run.answers["a"]
    wrong = good.seed_shares | {"b": good.seed_shares["c"]}
    swapped = {"d": good.seed_shares["a"]}
    for bad, error, message in [
        (
            replace(good, seed_shares=wrong),
            errors.BadShareError,
            "seed_shares of 'a' are not all what 'b' says it dealt",
        ),
        (
            replace(good, key_shares=swapped),
            errors.BadShareError,
            "key_shares of 'a' are not all what 'd' says it dealt",
        ),
        (replace(good, key_shares={}), errors.BadShareError, "key_shares of 'a' are"),
        (replace(good, client="d"), errors.UnknownClientError, "Unmasking of 'd'"),
        (run.masked["d"], errors.WrongPhaseError, "MaskedUpdate of 'd' came at"),
    ]:
        with pytest.raises(error, match=message):
            run.server.receive(bad)
    run.server.receive(good)
    run.server.receive(run.answers["b"])
    with pytest.raises(errors.BelowThresholdError, match="2 clients gave shares"):
        run.server.end_unmask()
    with pytest.raises(errors.WrongPhaseError, match="at 'unmask', not 'share'"):
        run.server.end_share()
    check(run.finish(NAMES[:3]), NAMES[:3])
    with pytest.raises(errors.WrongPhaseError, match="came at 'done'"):
        run.server.receive(good)


def test_a_dealer_that_shares_another_secret_is_named():
    run = Running().advertise().share()
    # d's shares are in order, but of other secrets than it masks with.
    dealt = run.shares["d"]
    run.shares["d"] = replace(dealt, seed_digest=bytes(32))
    run.deliver().mask().collect().unmask()
    with pytest.raises(errors.BadShareError, match="'d' dealt shares of another seed"):
        run.finish()


@pytest.mark.parametrize(("sends", "what"), [(NAMES, "seed"), (NAMES[:3], "key")])
def test_a_dealer_of_shares_that_fit_no_secret_is_named(monkeypatch, sends, what):
    run = Running().advertise()
    too_large = (shamir.PRIME - 1).to_bytes(shamir.SHARE_BYTES, "big")
    monkeypatch.setattr(
        run.clients["d"]._secrets, "_split", lambda _, holders: [too_large] * holders
    )
    run.share().deliver().mask(sends).collect(sends).unmask(sends)
    with pytest.raises(
        errors.BadShareError, match=f"'d' dealt shares of another {what}"
    ):
        run.finish(sends)


def test_a_dropped_dealer_that_shared_another_key_is_named():
    run = Running()
    other = Client("d", TERMS)
    keys = replace(run.keys["d"], mask_key=other.advertise().mask_key)
    run.keys["d"] = keys
    run.advertise().share().deliver().mask(NAMES[:3]).collect(NAMES[:3])
    run.unmask(NAMES[:3])
    with pytest.raises(errors.BadShareError, match="'d' dealt shares of another key"):
        run.finish(NAMES[:3])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Round(0, 0, 32, 2), ArgumentError, "size is 0"),
        (lambda: Round(0, 1, 32, 1), ArgumentError, "threshold is 1"),
        (lambda: Round(0, 1, 32, 2.5), ArgumentError, "threshold is 2.5"),
        (lambda: Round(-1, 1, 32, 2), ArgumentError, "number is -1"),
        (
            lambda: Round("1", 1, 32, 2),
            ArgumentError,
            "number is '1'; allowed: a whole",
        ),
        (lambda: Round(0, 1, 33, 2), ArgumentError, r"bits is 33; allowed: 1\.\.32"),
        (lambda: Round(0, 1, True, 2), ArgumentError, "bits is True"),
        (
            lambda: Server(TERMS, ("a", "b")),
            errors.BelowThresholdError,
            "2 clients take part; the threshold is 3",
        ),
        (
            lambda: Server(TERMS, ("a", "b", "a")),
            errors.UnknownClientError,
            "client_ids hold an id twice",
        ),
    ],
)
def test_impossible_rounds_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("signed", [False, True])
def test_no_phase_ends_before_or_after_its_time(monkeypatch, signed):
    """Ended twice, the first would draw another graph, the others tell of others."""
    tried = set()

    class Hasty(Server):
        def receive(self, message):
            for phase in set(PHASES) - {self.phase}:
                with pytest.raises(errors.WrongPhaseError, match=f"not '{phase}'"):
                    getattr(self, f"end_{phase}")()
                tried.add((self.phase, phase))
            super().receive(message)

    monkeypatch.setattr(rounds, "Server", Hasty)
    inputs = {name: np.full(3, i, np.uint32) for i, name in enumerate(NAMES)}
    total, _ = rounds.run_round(inputs, TERMS, signed=signed)
    check(total)
    assert len(tried) == (6 if signed else 4) * 5
