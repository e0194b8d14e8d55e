"""The neighbour systems' works: their arithmetic, and two programs that agree."""

import dataclasses
import pathlib

import numpy as np
import pytest

import tasks

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
TINY = {
    "gfl": {"repetitions": 2, "servers": 3, "num_clients": 9, "per_round": 2},
    "hfl_dp": {"num_clients": 4, "edges": 2, "local_steps": 2},
    "fl_top": {"num_clients": 30, "clients_per_round": 3, "local_epochs": 1},
    "udp_alg": {"num_clients": 20, "local_steps": 3, "hidden_width": 4},
}


@pytest.fixture
def neighbour_works(monkeypatch):
    """The works on small data sets, which no other test sees."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import neighbour_works

    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    sizes = dict.fromkeys(neighbour_works._SIZES, (600, 200))
    monkeypatch.setattr(neighbour_works, "_SIZES", sizes)
    neighbour_works.use_made_up_examples()
    return neighbour_works


def tiny(neighbour_works, name):
    work = neighbour_works.NEIGHBOURS[name]
    return dataclasses.replace(work, changes={**work.changes, **TINY[name]})


def test_run_knows_them_all(neighbour_works):
    import run

    assert set(run._NEIGHBOURS) == set(neighbour_works.NEIGHBOURS) == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_settings_are_the_presets(neighbour_works, name):
    work = neighbour_works.NEIGHBOURS[name]
    text = (FOLDER.parent / "scripts" / "papers" / f"{work.preset}.flags").read_text()
    config = work.config(noisy=True)
    assert f"--rounds={config.rounds}\n" in text
    assert config.system == work.system
    assert config.label != work.config(noisy=False).label


def test_operations_by_hand(neighbour_works):
    works = neighbour_works.NEIGHBOURS
    # 20 networks of 10 servers with 5 clients; two passes over one matrix of 2 x 1.
    assert works["gfl"].round == ("gfl", 1000, 1000 * 10 * (2 * 2 * 2))

    # Two convolutions, a hidden layer: no inputs' gradient in the first.
    def image(pixels, channels, filters, units):
        first, second = filters
        side = pixels // 16 * second
        return (
            2 * 2 * pixels * 25 * channels * first
            + 3 * 2 * (pixels // 4) * 25 * first * second
            + 3 * 2 * (side * units + units * 10)
        )

    # 12 examples are one batch, 80 times over.
    per_example = image(784, 1, (16, 32), 40)
    assert works["hfl_dp"].round == ("hfl_dp", 50, 50 * 80 * 12 * per_example)
    fl_top = tiny(neighbour_works, "fl_top").round
    assert fl_top == ("fl_top", 3, 3 * 20 * image(784, 1, (32, 64), 512))


def test_operations_of_a_hypernetwork_by_hand(neighbour_works):
    work = tiny(neighbour_works, "udp_alg")
    alone = dataclasses.replace(work, changes={**work.changes, "local_steps": 6})
    # Three more batches of what there is, then and now the same hypernetwork.
    assert work.round.clients == alone.round.clients == 2
    training = alone.round.flops - work.round.flops
    lenet = 456 + 2416 + 86_100 + 850
    kernels = 4 * (32 + 2 * 4 + lenet)
    assert work.round.flops == training + 2 * 6 * kernels


@pytest.mark.parametrize(
    ("size", "steps", "batch_size", "examples"),
    [(10, 5, 10, 50), (400, 50, 64, 7 * 400 + 64), (1200, 80, 32, 2528), (3, 2, 8, 6)],
)
def test_examples_seen(neighbour_works, size, steps, batch_size, examples):
    from tff_hdp.clients.batches import make_order

    assert neighbour_works._seen(size, steps, batch_size) == examples
    order = make_order(
        size, epochs=steps, batch_size=batch_size, rng=np.random.default_rng(0)
    )
    assert np.count_nonzero(order[:steps] >= 0) == examples


@pytest.mark.parametrize(
    "name", [n if n == "gfl" else pytest.param(n, marks=pytest.mark.slow) for n in TINY]
)
def test_clients_alone_and_stacked_agree(neighbour_works, name):
    import measure
    from programs import neighbour

    work = tiny(neighbour_works, name)
    found = {}
    for program in ("alone", "stacked"):
        build = neighbour.builder({"work": work, "program": program})
        quiet, noisy = build(noisy=False), build(noisy=True)
        start = quiet.weights()
        for federation in (quiet, noisy):
            federation.round()
        found[program] = quiet.weights()
        moved = measure.distance(found[program], start)
        noise = measure.distance(noisy.weights(), quiet.weights())
        assert moved > 0
        assert noise > 0
    assert measure.distance(*found.values()) < 1e-3 * moved


@pytest.mark.slow
def test_measured_in_children(neighbour_works):
    import neighbours

    found = neighbours.measured(tiny(neighbour_works, "gfl"), 2)
    assert [row.program for row in found] == ["alone", "stacked", "loop"]
    for row in found:
        assert (row.work, row.clients, row.rounds) == ("gfl", 12, 2)
        assert (row.preset, row.preset_rounds) == ("gfl/figure2_hybrid", 1500)
        assert row.ratio_to_floor == row.seconds_median / row.floor_seconds
    assert found[0].ratio_to_native == 1.0
