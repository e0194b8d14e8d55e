"""Files that nobody should give the project: sound ones, mutated at random.

Used by `scripts/torture_inputs.py`.
"""

import collections
import itertools
import json
import math
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from scripts.parts.mutations import Counts, mutated, mutated_leaf, outcome_of
from scripts.parts.torture_flags import account_is_sound
from scripts.parts.torture_messages import BOARD, zone
from tff_hdp.privacy import Level, NoisePlan, PoissonSampling, ThreatModel, account
from tff_hdp.privacy.planned import Planned, read_plan
from tff_hdp.privacy.promises import Kept, Promise
from tff_hdp.protocols.elections.election_round import run_election
from tff_hdp.protocols.elections.setup import Call
from tff_hdp.topology import load_zones, zones_by_capability, zones_by_overlay
from tff_hdp.topology.attributes import load_attribute, load_numbers, load_overlay

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

    from tff_hdp.systems.hdp import seats, verification

    planned = folder / "plan.json"
    _PLANNED.write(planned)
    registry, electors = zone()
    winner, transcript = run_election(
        registry, Call(registry.digest, 1), electors, relay=BOARD
    )
    elections = folder / "elections"
    seat = seats.Seat(
        zone=0, super_node=winner, transcripts=(transcript.to_text(),), elections=1
    )
    seats.write_seats(elections, 1, [seat], [registry])
    record, keys_of_all = elections / "round_00001.json", elections / seats.REGISTRY

    def verify(path: pathlib.Path) -> None:
        chains = verification.verify_seats(elections, {0: registry})
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
