"""Flags to zones: every builder, and what does not fit is refused by its flag."""

import dataclasses
import json
import types

import numpy as np
import pytest

import tasks
from tasks.task import ClientData, Task
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.simulation import experiment
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.run import OF_EXAMPLES, Hdp
from tff_hdp.systems.hdp.zones import build_elections, build_zoning

N = 12
IDS = tuple(f"c{i}" for i in range(N))
SIZES = np.arange(1, N + 1)
# Client i holds i + 1 examples of label i % 3.
TASK = Task(
    name="made up",
    train=ClientData(
        client_ids=IDS,
        features=np.zeros([SIZES.sum(), 2, 2, 1], np.uint8),
        labels=np.repeat(np.arange(N) % 3, SIZES).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(SIZES)]),
    ),
    test_features=np.zeros([1, 2, 2, 1], np.uint8),
    test_labels=np.zeros(1, np.int32),
    num_classes=3,
    build_model=lambda: None,
    model_name="none",
    description="",
)


def build(seed=0, **flags):
    config = HdpConfig(privacy="hdp", noise_multiplier=1.0, **flags)
    return build_zoning(config, TASK, rng=np.random.default_rng(seed))


def write(path, rows):
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_by_default_ten_zones_of_like_size_at_random():
    assert sorted(build().zone_sizes) == [1] * 8 + [2] * 2
    assert build(zones=3).zone_sizes == (4, 4, 4)
    assert build(zones=3) != build(seed=1, zones=3)
    assert build(zone_sizes=("7", "1", "4")).zone_sizes == (7, 1, 4)


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ({}, False),
        ({"zoning": "label"}, True),
        ({"zoning": "capability"}, True),
        ({"zoning": "capability", "capability_file": "c.csv"}, False),
        ({"zoning": "key", "zoning_file": "z.csv"}, False),
        ({"elect_super_nodes": "rotate"}, False),
        ({"elect_super_nodes": "rotate", "min_capability": 2.0}, True),
        (
            {
                "elect_super_nodes": "rotate",
                "min_capability": 2.0,
                "capability_file": "c.csv",
            },
            False,
        ),
    ],
    ids=str,
)
def test_what_examples_decide_is_said_beside_the_epsilons(settings, reads):
    """Nothing that an account knows of covers it."""
    config = HdpConfig(privacy="hdp", noise_multiplier=1.0, **settings)
    assert config.reads_examples == reads
    clipping = types.SimpleNamespace()
    threat = types.SimpleNamespace(secure_sums_hold=True)
    run = types.SimpleNamespace(
        config=config,
        plan=types.SimpleNamespace(clipping=clipping),
        federation=types.SimpleNamespace(threat=threat),
    )
    assert (OF_EXAMPLES in Hdp.notes_on_noise(run)) == reads


def test_zones_of_like_clients(tmp_path):
    assert build(zoning="label").zone_of == tuple(i % 3 for i in range(N))
    bands = build(zoning="capability", zones=4)
    assert bands.zone_of == tuple(i // 3 for i in range(N))
    table = write(
        tmp_path / "t.csv",
        ["client,capability,land"]
        + [f"{c},{-i},{'north' if i < 5 else 'south'}" for i, c in enumerate(IDS)],
    )
    land = build(zoning="key", zoning_file=table, zone_key="land")
    assert (land.zone_names, land.zone_sizes) == (("north", "south"), (5, 7))
    turned = build(zoning="capability", zones=4, capability_file=table)
    assert turned.zone_of == tuple(3 - i // 3 for i in range(N))


def test_zones_of_an_overlay(tmp_path):
    links = ["a,b,weight"]
    for group in (range(4), range(4, 7), range(7, 12)):
        links += [f"c{i},c{j},1" for i in group for j in group if i < j]
    file = write(tmp_path / "o.csv", links)
    found = build(zoning="overlay", zoning_file=file, zones=3)
    assert sorted(found.zone_sizes) == [3, 4, 5]
    assert len({found.zone_of[i] for i in range(4)}) == 1
    world = build(zoning="overlay")
    assert sum(world.zone_sizes) == N
    assert build(zoning="overlay", zones=2).num_zones == 2


def test_levels_from_flags_and_from_files(tmp_path):
    tree = build(zones=6, levels=("3", "2"))
    assert tree.level_sizes == (12, 6, 3, 2)
    file = tmp_path / "z.json"
    file.write_text(
        json.dumps(
            {"west": {"a": list(IDS[:5]), "b": list(IDS[5:9])}, "east": {"c": IDS[9:]}}
        )
    )
    read = build(zoning="file", zoning_file=str(file), zones=3)
    assert read.zone_sizes == (5, 4, 3)
    assert read.parents == ((0, 0, 1),)
    with pytest.raises(ArgumentError, match=r"levels is 2; allowed: none, since"):
        build(zoning="file", zoning_file=str(file), levels=("2",))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"zones": 13}, "zones is 13; allowed: 1..12"),
        ({"zoning": "label", "zones": 4}, "zones is 4; allowed: 3, as many as"),
        ({"zone_sizes": ("5", "5")}, "zone_sizes is 5,5; allowed: .* sum to 12"),
        ({"zones": 4, "levels": ("5",)}, r"levels\[0\] is 5; allowed: 1\.\.4"),
        ({"levels": ("2",), "noising_levels": ("3",)}, "noising_levels is 3; .*2..2"),
        ({"levels": ("2",), "noising_levels": ("1",)}, "noising_levels is 1; .*2..2"),
        ({"noising_levels": ("2",)}, "noising_levels is 2; allowed: none without"),
        (
            {"zoning": "file", "zoning_file": "."},
            r"zoning_file is \.; allowed: a \.csv",
        ),
    ],
)
def test_flags_that_do_not_fit_the_clients(flags, message):
    with pytest.raises(ArgumentError, match=f"^{message}") as error:
        build(**flags)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["client,zone", "c0,a", "c0,b"],
            "client 'c0' is in zone 'a' and again in zone 'b'",
        ),
        (["client,zone", "c0,a", "zz,b"], "'c1' is in no zone"),
        (["client,zone", *(f"{c},a" for c in IDS), "zz,a"], "'zz' is mapped"),
        (["client,zone", "c0,"], "line 2"),
    ],
)
def test_bad_files_are_refused_naming_the_offender(tmp_path, rows, message):
    file = write(tmp_path / "z.csv", rows)
    with pytest.raises(FileError, match=rf"z\.csv: .*{message}"):
        build(zoning="file", zoning_file=file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        build(zoning="file", zoning_file=str(tmp_path / "nowhere.csv"))
    table = write(tmp_path / "t.csv", ["client,capability", "c0,1"])
    with pytest.raises(FileError, match=r"t\.csv: capability is without 'c1'"):
        config = HdpConfig(
            privacy="hdp",
            noise_multiplier=1.0,
            elect_super_nodes="rotate",
            min_capability=1.0,
            capability_file=table,
        )
        build_elections(config, TASK, build())


def test_elections_from_flags():
    def elections(**flags):
        config = HdpConfig(privacy="hdp", noise_multiplier=1.0, **flags)
        return build_elections(config, TASK, build(zones=2))

    assert elections() is None
    found = elections(elect_super_nodes="persistent", voters=4, min_capability=3.0)
    assert (found.policy, found.call_size, found.run_protocol) == (
        "persistent",
        4,
        True,
    )
    assert found.capability["c4"] == 5.0
    drawn = elections(elect_super_nodes="rotate", election_protocol="drawn")
    assert (drawn.policy, drawn.run_protocol) == ("rotate", False)


def test_a_zone_that_may_elect_nobody_is_refused():
    """Every round went without it: such a run trained on nobody, and said nothing."""
    flags = {"elect_super_nodes": "rotate", "zoning": "capability", "zones": 3}
    zoning = build(**{**flags, "elect_super_nodes": "none"})
    # Client i holds i + 1 examples; of the least able third the best holds 4.
    for least in (4.0, 4.5):
        config = HdpConfig(noise_multiplier=1.0, min_capability=least, **flags)
        if least == 4.0:
            assert build_elections(config, TASK, zoning).min_capability == least
        else:
            with pytest.raises(ArgumentError, match=r"min_capability is 4\.5; .* 4, "):
                build_elections(config, TASK, zoning)


@pytest.mark.parametrize(
    "changes",
    [
        {"elect_super_nodes": "rotate", "min_capability": 90.0},
        {"zoning": "capability"},
    ],
    ids=str,
)
def test_a_run_keeps_to_the_capabilities_it_began_with(hdp_config, tmp_path, changes):
    """With others that may lead, no later transcript would verify."""
    file, out = tmp_path / "capabilities.csv", tmp_path / "run"
    ids = tasks.load("digits", seed=5).train.client_ids
    config = hdp_config(out, capability_file=str(file), **changes)

    def begin(rows):
        write(file, ["client,capability", *rows])
        with RunFolder(config) as folder:
            if not folder.journal.began:
                folder.resolve(partition_seed=5)
            system = config.build(folder)
            folder.begin()
        return system

    rows = [f"{client},{number}" for number, client in enumerate(ids)]
    began = begin(rows)
    message = "capability_file is .*; allowed: the .* with which the run in out"
    with pytest.raises(ArgumentError, match=message):
        begin([f"{client},{number}" for number, client in enumerate(reversed(ids))])
    # Another order of the rows is no other file.
    assert begin(rows[::-1]).zoning == began.zoning


def test_adaptive_clipping_under_a_files_levels_is_refused_by_its_flag(tmp_path):
    ids = tasks.load("digits").train.client_ids
    file = tmp_path / "z.json"
    west = {"a": ids[:70], "b": ids[70:140]}
    file.write_text(json.dumps({"west": west, "east": {"c": ids[140:]}}))
    config = HdpConfig(
        **{"privacy": "cdp", "noise_multiplier": 1.0, "clipping": "adaptive"},
        **{"zoning": "file", "zoning_file": file, "out": tmp_path / "run"},
    )
    message = r"^clipping is adaptive; allowed: flat or .* with no levels between it"
    with pytest.raises(ArgumentError, match=message):
        experiment.run(config)


def begun(config):
    """The system of a run that has begun in the settings' folder, or goes on there."""
    with RunFolder(config) as folder:
        if not folder.journal.began:
            folder.resolve(partition_seed=5)
        system = config.build(folder)
        folder.begin()
    return system


@pytest.mark.parametrize(
    ("name", "header", "changes"),
    [
        ("zoning_file", "client,region", {"zoning": "key"}),
        ("zoning_file", "client,zone", {"zoning": "file"}),
        ("capability_file", "client,capability", {"zoning": "capability"}),
        (
            "capability_file",
            "client,capability",
            {"elect_super_nodes": "rotate", "min_capability": 1.0},
        ),
    ],
    ids=str,
)
def test_a_run_knows_its_files_again_wherever_they_lie(
    hdp_config, tmp_path, name, header, changes
):
    """A run went on only where the same path led to them."""

    def config(file):
        return hdp_config(tmp_path / "run", **{name: str(file)}, **changes)

    ids = tasks.load("digits", seed=5).train.client_ids
    before, now, other = (tmp_path / f"{n}.csv" for n in ("before", "now", "other"))
    write(before, [header, *(f"{client},{i % 4}" for i, client in enumerate(ids))])
    write(other, [header, *(f"{client},{i // 50}" for i, client in enumerate(ids))])
    began = begun(config(before))
    before.rename(now)
    words = rf"not there; give the run's command its new {name}, .*: '.*before\.csv'"
    with pytest.raises(FileNotFoundError, match=words):
        begun(config(before))
    assert begun(config(now)).zoning == began.zoning
    with pytest.raises(ArgumentError, match=rf"^{name} is .*other\.csv; allowed: the "):
        begun(config(other))


@pytest.mark.parametrize(
    "changes",
    [{}, {"zoning": "capability"}, {"elect_super_nodes": "rotate", "voters": 5}],
    ids=str,
)
def test_other_clients_are_the_tasks_fault(hdp_config, tmp_path, monkeypatch, changes):
    """A file of zones was refused that nobody had given."""
    config, load = hdp_config(tmp_path / "run", **changes), HdpConfig.load_task
    begun(config)

    def with_fewer(config, seed):
        return load(dataclasses.replace(config, num_clients=150), seed)

    monkeypatch.setattr(HdpConfig, "load_task", with_fewer)
    words = r"^task is digits; allowed: clients as in the zones with which the run in"
    with pytest.raises(ArgumentError, match=words):
        begun(config)


def test_a_run_that_began_without_a_file_takes_none(hdp_config, tmp_path):
    """What is public in it would be told otherwise."""
    given = {"zoning": "capability", "zones": 4}
    train = tasks.load("digits", seed=5).train
    rows = [
        f"{c},{size}" for c, size in zip(train.client_ids, train.sizes, strict=True)
    ]
    file = write(tmp_path / "sizes.csv", ["client,capability", *rows])
    begun(hdp_config(tmp_path / "run", **given))
    with pytest.raises(ArgumentError, match=r"capability_file is .*; allowed: None"):
        begun(hdp_config(tmp_path / "run", **given, capability_file=file))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"zoning": "file"}, "zoning_file is None; allowed: a file, needed by"),
        ({"zoning_file": "z.csv"}, "zoning_file is z.csv; .*zoning=key, file"),
        ({"zone_sizes": ("4", "x")}, "zone_sizes is 4,x; allowed: whole numbers"),
        ({"levels": ("0",)}, "levels is 0; allowed: whole numbers"),
        ({"zone_sizes": ("4", "8"), "zones": 3}, "zones is 3; allowed: 2, as"),
        ({"zone_sizes": ("12",), "zoning": "label"}, "zone_sizes is 12; .*iid"),
        ({"mixing": "0.5,half"}, "mixing is 0.5,half"),
        ({"drop_rate": 1.0}, r"drop_rate is 1.0; allowed: \[0, 1\)"),
        ({"supernode_failure_rate": -1.0}, "supernode_failure_rate is -1.0"),
        ({"byzantine": ("9:0.1", "3:0.2")}, "byzantine is 9:0.1,3:0.2; allowed"),
        ({"byzantine": ("lots",)}, "byzantine is lots; allowed: SHARE, or ROUND"),
        ({"voters": 0}, "voters is 0"),
        ({"min_capability": 2.0}, "min_capability is 2.0; .*elect_super_nodes"),
        ({"capability_file": "c.csv"}, "capability_file is c.csv; .*capability"),
        ({"elect_super_nodes": "once"}, "elect_super_nodes is once; allowed: none"),
        ({"privacy": "levels"}, "noising_levels is empty; allowed: a level"),
        (
            {"privacy": "none", "noise_multiplier": None, "noising_levels": ("2",)},
            "noising_levels is 2; allowed: none with privacy=none",
        ),
        (
            {"privacy": "cdp", "clipping": "adaptive", "levels": ("2",)},
            "clipping is adaptive; allowed: flat or per_layer with levels",
        ),
    ],
)
def test_settings_that_contradict_each_other(flags, message):
    settings = {"privacy": "hdp", "noise_multiplier": 1.0} | flags
    with pytest.raises(ArgumentError, match=f"^{message}") as error:
        HdpConfig(**settings)
    assert "\n" not in str(error.value)
