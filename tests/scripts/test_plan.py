"""scripts/plan.py: shares and files of trust, and what it prints."""

import pytest

from scripts import plan as program
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.systems.hdp.config import HdpConfig


def config(**options):
    settings = {
        "clients": 60,
        "zones": 3,
        "clients_per_round": 18,
        "rounds": 5,
        "method": "rdp",
        "promises": ("aggregator<=9", "released_model<=5"),
    }
    return program.PlanConfig(**settings | options)


def test_what_is_printed_says_what_binds_and_how_to_train(tmp_path):
    asked = config(trust_nobody=0.3, promises=("super_node<=20", "released_model<=4"))
    text = program._as_text(asked, asked.planned())
    assert "super_node<=20" in text and "10 % more saves" in text
    out = config(out=str(tmp_path / "plan.json"))
    found = out.planned()
    found.write(out.out)
    last = program._as_text(out, found).splitlines()[-1]
    assert last.startswith(f"python scripts/train.py --plan={out.out} ")
    # Every flag is one of training, with a value that it takes.
    flags = dict(flag[2:].split("=") for flag in last.split()[2:])
    sizes = tuple(flags.pop("zone_sizes").split(","))
    numbers = {k: float(flags.pop(k)) for k in ("clients_per_round", "delta")}
    rounds = int(flags.pop("rounds"))
    HdpConfig(zone_sizes=sizes, rounds=rounds, out=str(tmp_path), **numbers, **flags)


def test_trust_by_file(tmp_path):
    zones, trust = tmp_path / "zones.csv", tmp_path / "trust.csv"
    zones.write_text("client,zone\n" + "".join(f"c{i},z{i % 2}\n" for i in range(20)))
    words = ["nobody"] * 4 + ["super_node"] * 10 + ["server"] * 6
    rows = [f"c{i},{word}\n" for i, word in enumerate(words)]
    trust.write_text("client,trust\n" + "".join(rows))
    files = {"zoning_file": str(zones), "trust_file": str(trust)}
    asked = config(clients=None, zones=10, clients_per_round=10, **files)
    assert asked._trust() == ((2, 2), (3, 3))
    shares = config(clients=20, zones=2, trust_nobody=0.2, trust_server=0.3)
    assert shares._trust() == asked._trust()
    for text, message in (
        ("".join(rows[:-1]), "trust.csv: lacks client 'c19'"),
        ("".join(rows) + "c3,nobody\n", "line 22: needs a client of zoning_file, once"),
        ("".join(rows).replace("server", "all"), "found c14, all"),
    ):
        trust.write_text("client,trust\n" + text)
        with pytest.raises(FileError, match=message):
            asked._trust()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"promises": ("aggregator=3",)}, "promises is aggregator=3; allowed: OBS"),
        ({"promises": ("aggregator<=x",)}, "promises is aggregator<=x; allowed: OBS"),
        ({"promises": ()}, "promises is empty; allowed: one or more"),
        ({"trust_nobody": 1.5}, "trust_nobody is 1.5"),
        ({"trust_nobody": 0.5, "trust_server": 0.6}, "trust_server is 0.6"),
        ({"trust_file": "x.csv"}, "trust_file is x.csv; .*zoning_file only"),
    ],
)
def test_what_cannot_be_asked(options, words):
    with pytest.raises(ArgumentError, match=words):
        config(**options).planned()
