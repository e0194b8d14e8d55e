"""Mutated bytes, and how what is given them ends."""

import collections
import copy
import json
import random
import time
from collections.abc import Callable
from typing import Any

from absl import flags

from tff_hdp.errors import LONGEST_LINE, ArgumentError, FileError, one_line
from tff_hdp.protocols import wire
from tff_hdp.protocols.elections.electorate import ElectionError
from tff_hdp.protocols.secagg.errors import SecureAggregationError

LONGEST_SECONDS = 10.0
# (outcome, what it was): `refused`, `accepted` or `crashed`.
Counts = collections.Counter[tuple[str, str]]

_TOKENS = (
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n"),
    *(b",", b'"', b"'", b" ", b"\\ud800"),
    *(b"nan", b"inf", b"-Infinity", b"NaN", b"1e999", b"1e308", b"5e-324", b"-0"),
    *(b"-1", b"1_0", b"0x10", b"null", b"true", b"{}", b"[]", b'""', b"9" * 5000),
    *(b"[" * 3000, b'{"a":' * 3000, b"[" * 200_000, b"x" * 140_000, b"x," * 20_000),
    *(b"c0", b"z0", b"client", b"%s", b"\xc3\xa9", b"\xe2\x80\xae", b"../", b"c0,c0"),
)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """`data` cut, doubled, overwritten or with odd tokens in it."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, to = sorted(rng.randrange(len(changed) + 1) for _ in range(2))
        action = rng.randrange(7)
        if action == 0:
            del changed[at:to]
        elif action == 1:
            changed[to:to] = changed[at:to]
        elif action == 2 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif action == 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif action == 4:
            changed[at : min(to, at + 5)] = rng.choice(_TOKENS)
        elif action == 5:
            changed[at:at] = rng.choice(_TOKENS)
        elif len(changed) < 10**5:
            changed[at:at] = changed[at:to] * rng.choice([2, 50])
    return bytes(changed)


_VALUES = (
    *(None, True, "x", "", "1", [], {}, [[]], -1, 0, 1, 2, 3.5, 10**9, 10**400),
    *(1e-320, 1e-160, 1e-18, 1e-9, 0.1, 1e9, 1e160, 1e308, 2**63, -0.0, "\ud800"),
)


def mutated_leaf(rng: random.Random, data: bytes) -> bytes:
    """JSON `data` with other values in some of its places, or without them."""
    tree = json.loads(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place: Any = tree
        while True:
            key = rng.choice(
                list(place if isinstance(place, dict) else range(len(place)))
            )
            if not (isinstance(place[key], dict | list) and place[key]):
                break
            if rng.random() < 0.1:
                break
            place = place[key]
        if rng.random() < 0.1 and len(place) > 1:
            del place[key]
        else:
            place[key] = copy.deepcopy(rng.choice(_VALUES))
    return json.dumps(tree).encode()


def outcome_of(
    what: str, call: Callable[[], object], seconds_allowed: float = LONGEST_SECONDS
) -> tuple[str, str]:
    """How a call ended, and what of."""
    began = time.process_time()
    try:
        call()
        outcome, line = "accepted", ""
    except (
        ArgumentError,
        FileError,
        ElectionError,
        SecureAggregationError,
        wire.WireError,
    ) as error:
        outcome, line = "refused", str(error)
    except (flags.Error, OSError) as error:
        outcome, line = "refused", one_line(str(error))  # as the command line does
    except Exception as error:
        return "crashed", f"{what}: {type(error).__name__}: {str(error)[:200]}"
    if len(line) > LONGEST_LINE:
        return "crashed", f"{what}: refused in {len(line)} characters: {line[:200]}"
    seconds = time.process_time() - began
    if seconds > seconds_allowed:
        return "crashed", f"{what}: {outcome} after {seconds:.0f} s"
    return outcome, what
