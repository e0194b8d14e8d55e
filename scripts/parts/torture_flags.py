"""Flags that nobody should give programs, at random, and what is accounted of them.

Used by `scripts/torture_inputs.py`.
"""

import collections
import contextlib
import dataclasses
import json
import random
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from scripts.parts.mutations import Counts, outcome_of
from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.config import AccountConfig

LONGEST_ACCOUNT = 60
_WORDS = (
    *("", " ", "0", "-1", "1", "2", "3.5", "1e9", "1e400", "nan", "inf", "-inf"),
    *("none", "auto", "true", "False", "9" * 30, "9" * 5000, "0x10", "x" * 999),
    *("1,2", ",", "1,,2", "\x00", "\n", "é", "\ud800", "../..", "digits", "2/3"),
    *("0.5", "1e-300", "0.999999999", "1e-318", "1000000", "1000000000000"),
)


def fuzz_flags(count: int, seed: int) -> Counts:
    """Makes every program's config of random flags; TensorFlow is not started.

    What can be accounted is, by a Renyi account or by all.
    """
    rng = random.Random(seed)
    kinds = [AccountConfig, *map(systems.config_class, systems.PROGRAMS.values())]
    return collections.Counter(
        outcome_of(kind.__name__, lambda kind=kind: _taken(kind, rng), LONGEST_ACCOUNT)
        for i in range(count)
        for kind in [kinds[i % len(kinds)]]
    )


def _taken(kind: type, rng: random.Random) -> None:
    """Makes a config, and accounts what it asks."""
    shown: list[str] = []
    try:
        config = _config_of(kind, rng, shown)
        if hasattr(config, "rows"):
            with _time_limit(LONGEST_ACCOUNT):
                _account(config, ("rdp",) if rng.random() < 0.8 else None)
    except (ArgumentError, FileError, OSError, flags.Error):
        raise
    except Exception as error:
        # A case that nobody can repeat is of no use.
        raise RuntimeError(f"{error!r:.80} of {' '.join(shown)}") from error


def _account(config: Any, methods: tuple[str, ...] | None) -> None:
    if config.calibrate is not None:
        config = config.calibrated()
    account_is_sound(config.rows(methods))


def account_is_sound(rows: Sequence[AccountRow]) -> None:
    """Asserts that every epsilon is none or a number from 0 on."""
    for row in rows:
        json.dumps(row.to_dict(), allow_nan=False)
        for epsilon in (row.epsilon_rdp, row.epsilon_pld):
            assert epsilon is None or epsilon >= 0


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Stops what takes longer, in processor time."""

    def stop(*_: object) -> None:
        raise RuntimeError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _config_of(kind: type, rng: random.Random, words: list[str]) -> Any:
    """A config of random flags, which are left in `words`."""
    values = flags.FlagValues()
    cli.define_flags(kind, values)
    for field in rng.sample(dataclasses.fields(kind), rng.randrange(1, 6)):
        allowed = kind.choices.get(field.name)
        if allowed and rng.random() < 0.8:
            value = rng.choice(allowed)
        elif field.default is not None and rng.random() < 0.3:
            value = rng.choice(["-", "1", ""]) + str(field.default)
        else:
            value = rng.choice(_WORDS)
        words.append(f"--{field.name}={value}")
    values(["program", *words])
    return cli.config_from_flags(kind, values)
