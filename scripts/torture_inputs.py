"""Feeds the project what nobody should send it, and counts how it takes that.

    python scripts/torture_inputs.py --what=files,messages,flags,clients --count=2000

Files, protocol messages, flags, and single clients of a round, each mutated at
random. What is refused must be so in one short line, soon, and what is accepted must
be sound; anything else counts as crashed, is shown, and ends in exit code 1.
"""

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

from scripts.parts.mutations import Counts, mutated, mutated_leaf, outcome_of
from scripts.parts.torture_messages import BOARD, fuzz_messages, zone
from tff_hdp import cli, systems
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.privacy import (
    AccountRow,
    Level,
    NoisePlan,
    PoissonSampling,
    ThreatModel,
    account,
)
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.planned import Planned, read_plan
from tff_hdp.privacy.promises import Kept, Promise
from tff_hdp.protocols.elections.election_round import run_election
from tff_hdp.protocols.elections.setup import Call
from tff_hdp.topology import load_zones, zones_by_capability, zones_by_overlay
from tff_hdp.topology.attributes import load_attribute, load_numbers, load_overlay

LONGEST_ACCOUNT = 60
WHAT = ("files", "messages", "flags", "clients")


def define_flags() -> None:
    """Defines what to mutate and how often."""
    flags.DEFINE_list("what", list(WHAT), "Some of " + ", ".join(WHAT) + ".")
    flags.DEFINE_integer("count", 2000, "Mutations of each.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Decides the mutations.", lower_bound=0)


def main(argv: list[str]) -> int:
    """Prints a table of what was refused, accepted and crashed."""
    cli.refuse_arguments(argv)
    cli.check_choices("what", flags.FLAGS.what, WHAT)
    fuzz = {
        "files": fuzz_files,
        "messages": fuzz_messages,
        "flags": fuzz_flags,
        "clients": fuzz_clients,
    }
    counts: Counts = collections.Counter()
    for what in flags.FLAGS.what:
        counts += fuzz[what](flags.FLAGS.count, flags.FLAGS.seed)
    print(table(counts))
    return int(any(outcome == "crashed" for outcome, _ in counts))


def table(counts: Counts) -> str:
    """A line for each thing that was mutated, and one for each way it crashed."""
    outcomes = ("refused", "accepted", "crashed")
    rows: dict[str, collections.Counter[str]] = {}
    for (outcome, what), count in counts.items():
        rows.setdefault(what.partition(": ")[0], collections.Counter())[outcome] += (
            count
        )
    lines = [f"{'':24}" + "".join(f"{outcome:>10}" for outcome in outcomes)]
    for what, row in rows.items():
        lines.append(f"{what:24}" + "".join(f"{row[o]:>10}" for o in outcomes))
    crashed = sorted(what for outcome, what in counts if outcome == "crashed")
    return "\n".join([*lines, *crashed])


# Files ------------------------------------------------------------------------------

CLIENTS = tuple(f"c{i}" for i in range(12))
_CSV = "client,zone,region,capability\n" + "".join(
    f"{c},z{i % 4},r{i % 2},{i}.5\n" for i, c in enumerate(CLIENTS)
)
_ZONES = "client,zone,region\n" + "".join(
    f"{c},z{i % 4},r{i % 2}\n" for i, c in enumerate(CLIENTS)
)
_LINKS = "a,b,weight\n" + "".join(
    f"{a},{b},{i + 1}\n" for i, (a, b) in enumerate(itertools.pairwise(CLIENTS))
)
_PLANNED = Planned(
    plan=NoisePlan(
        zone_sizes=(4, 3, 5),
        sampling=PoissonSampling((0.5, 0.4, 1.0)),
        client_noise_multiplier=0.7,
        noising_clients=(2, 0, 5),
        zone_noise_multipliers=(1.0, 2.0, 0.5),
        server_noise_multiplier=1.5,
        upper_levels=(Level((0, 0, 1), (0.3, 0.0)),),
        mixing=(0.3, 0.3, 0.4),
        zone_weights=(4.0, 2.5, 5.0),
    ),
    threat=ThreatModel(dropout_rate=0.1),
    rounds=20,
    delta=1e-5,
    kept=(Kept(promise=Promise("released_model", 9.0), epsilon=8.5, noise=1.0),),
    trusting=(1, 3, 0),
)
_TREE = {"r0": {"z0": CLIENTS[:4], "z1": CLIENTS[4:7]}, "r1": {"z2": CLIENTS[7:]}}


def fuzz_files(count: int, seed: int) -> Counts:
    """Reads mutated zonings, tables, overlays, plans, registries and transcripts."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        kinds = _file_kinds(pathlib.Path(folder))
        return collections.Counter(
            outcome_of(name, lambda read=read, path=path: read(path))
            for name, path, read in _mutated_files(rng, kinds, count)
        )


def _mutated_files(
    rng: random.Random, kinds: dict[str, Any], count: int
) -> Iterator[tuple[str, pathlib.Path, Callable[[pathlib.Path], None]]]:
    names = list(kinds)
    for i in range(count):
        name = names[i % len(names)]
        path, content, read = kinds[name]
        by_value = name == "plan.json" and rng.random() < 0.8
        change = mutated_leaf if by_value else mutated
        path.write_bytes(change(rng, content))
        yield name, path, read


def _file_kinds(folder: pathlib.Path) -> dict[str, Any]:
    """By name: where, its sound content, and what reads and checks it."""

    def zones(path: pathlib.Path) -> None:
        assert load_zones(path, client_ids=CLIENTS).client_ids == CLIENTS

    def keys(path: pathlib.Path) -> None:
        assert set(load_attribute(path, "region", client_ids=CLIENTS)) == set(CLIENTS)

    def capability(path: pathlib.Path) -> None:
        found = load_numbers(path, "capability", client_ids=CLIENTS)
        assert all(map(math.isfinite, found.values()))
        zones_by_capability(CLIENTS, capability=found, num_zones=3)

    def overlay(path: pathlib.Path) -> None:
        graph = load_overlay(path, client_ids=CLIENTS)
        assert sum(zones_by_overlay(CLIENTS, overlay=graph).zone_sizes) == len(CLIENTS)

    def plan(path: pathlib.Path) -> None:
        asked = read_plan(path)
        account_is_sound(
            account(
                asked.plan, asked.rounds, asked.delta, ("rdp",), threat=asked.threat
            )
        )

    from tff_hdp.systems.hdp import seats

    planned = folder / "plan.json"
    _PLANNED.write(planned)
    registry, electors = zone()
    winner, transcript = run_election(
        registry, Call(registry.digest, 1), electors, relay=BOARD
    )
    elections = folder / "elections"
    seat = {
        "zone": 0,
        "super_node": winner,
        "failed": [],
        "refused": None,
        "elections": 1,
        "transcripts": [transcript.to_text()],
    }
    seats.write_seats(elections, 1, [seat], [registry])
    record, keys_of_all = elections / "round_00001.json", elections / seats.REGISTRY

    def verify(path: pathlib.Path) -> None:
        chains = seats.verify_seats(elections, {0: registry})
        assert [chain.leader for chain in chains.values()] == [winner]
        assert path == record

    return {
        "zones.csv": (folder / "zones.csv", _ZONES.encode(), zones),
        "zones.json": (folder / "zones.json", json.dumps(_TREE).encode(), zones),
        "keys.csv": (folder / "keys.csv", _CSV.encode(), keys),
        "capability.csv": (folder / "capability.csv", _CSV.encode(), capability),
        "overlay.csv": (folder / "overlay.csv", _LINKS.encode(), overlay),
        "plan.json": (planned, planned.read_bytes(), plan),
        "registry.json": (
            folder / "registry.json",
            keys_of_all.read_bytes(),
            seats.read_registries,
        ),
        "round_00001.json": (record, record.read_bytes(), verify),
    }


# Flags ------------------------------------------------------------------------------

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


# Clients ----------------------------------------------------------------------------


def fuzz_clients(count: int, seed: int) -> Counts:
    """Rounds of every system with one hostile client. Imports TensorFlow."""
    from scripts.parts import torture_clients, torture_systems
    from tff_hdp import runtime

    runtime.set_context("in_process")
    counts: Counts = collections.Counter()
    built = torture_systems.systems()
    for name, build in built.items():
        share = max(1, count // len(built))
        for outcome, why in torture_clients.torture(build(), share, seed):
            crash = f": {why}" if outcome == "crashed" else ""
            counts[outcome, name + crash] += 1
    return counts


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
