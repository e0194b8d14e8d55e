"""Trees of any depth: reference epsilons, and refused shapes."""

import math

import pytest

from scripts.papers.hdp.closed_form import multi_level
from scripts.papers.hdp.figures import draw_levels, draw_rounds
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import account
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.privacy.configurations import even_levels


@pytest.fixture(scope="module")
def rows():
    return multi_level(fan_ins=(10, 5, 2))


def find(rows, noise_at, level, key="epsilon_rdp"):
    (value,) = [
        r[key] for r in rows if (r["noise_at"], r["level"]) == (noise_at, level)
    ]
    return value


@pytest.mark.parametrize(
    ("noise_at", "level", "epsilon"),
    [
        # n = 500, q = 0.2, z = 1, T = 200: own super-node, zone of 50, release.
        *((0, 0, 55.83), (0, 1, 11.659), (0, 3, 2.9643)),
        # Central-type Gaussians at z = 1 and sqrt 10.
        *((1, 1, 23.421075), (1, 3, 4.436601), (2, 2, 23.421075), (3, 3, 23.421075)),
    ],
)
def test_reference_epsilons(rows, noise_at, level, epsilon):
    assert find(rows, noise_at, level) == pytest.approx(epsilon, rel=2e-4)


def test_the_papers_formula(rows):
    for row in rows:
        product = math.prod((10, 5, 2)[row["noise_at"] : row["level"]])
        expected = 24.807369 / math.sqrt(product)
        assert row["epsilon_paper"] == pytest.approx(expected, rel=1e-6)


def test_noise_counts_for_more_the_higher_one_looks(rows):
    for noise_at in range(4):
        own = [r["epsilon_rdp"] for r in rows if r["noise_at"] == noise_at]
        assert own == sorted(own, reverse=True)


def test_one_level_is_the_flat_account():
    (*_, released) = [r for r in multi_level(fan_ins=(4, 6)) if r["noise_at"] == 1]
    request = AccountConfig(
        privacy="hdp", zone_sizes=(20,) * 6, clients_per_round=24, sampling="poisson"
    )
    flat = [r for r in request.rows(("rdp",)) if r.observer == "released_model"]
    assert released["epsilon_rdp"] == pytest.approx(flat[0].epsilon_rdp)


def test_even_levels_share_out_nodes():
    first, second = even_levels(7, (3, 2), {3: 1.5})
    sizes = [first.parents.count(node) for node in range(3)]
    assert sorted(sizes) == [2, 2, 3]
    assert first.noise_multipliers == (0.0,) * 3
    assert second.noise_multipliers == (1.5,) * 2
    assert sorted(second.parents) == [0, 0, 1]
    assert even_levels(7, (), {}) == ()


@pytest.mark.parametrize(
    ("nodes", "noise", "message"),
    [
        ((8,), {}, "levels is 8; allowed: 1..7 nodes at level 2"),
        ((3, 4), {}, "levels is 3,4; allowed: 1..3 nodes at level 3"),
        ((3,), {3: 1.0}, "noising_levels is 3; .* server, here 2$"),
        ((), {2: 1.0}, "noising_levels is 2; .* server, here none"),
    ],
)
def test_levels_that_cannot_be(nodes, noise, message):
    with pytest.raises(ValueError, match=message):
        even_levels(7, nodes, noise)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fan_ins": ()}, "fan_ins is empty; allowed: whole numbers"),
        ({"fan_ins": (10, 0)}, "fan_ins is 10,0; allowed: whole numbers"),
        ({"fan_ins": (10,), "q": 0.3}, "allowed: 10 / q a whole number"),
        ({"q": 0.0}, r"q is 0.0; allowed: \(0, 1\]"),
    ],
)
def test_trees_out_of_range(options, message):
    with pytest.raises(ArgumentError, match=message):
        multi_level(**options)


def test_a_request_with_levels(tmp_path):
    request = AccountConfig(
        privacy="levels", levels=(5, 2), noising_levels=(3,), rounds=20
    )
    plan = request.noise_plan()
    assert [level.noise_multipliers for level in plan.upper_levels] == [
        (0.0,) * 5,
        (1.0,) * 2,
    ]
    assert not any(plan.zone_noise_multipliers)
    rows = account(plan, 20, 1e-5, ("rdp",))
    promised = [(r.observer, r.level) for r in rows if r.epsilon_rdp is not None]
    # The other node of level 3 knows its own noise.
    assert promised == [
        *(("aggregator", 4), ("released_model", 5), ("fellow_super_node", 5))
    ]
    draw_rounds(request, str(tmp_path / "rounds.png"))
    draw_levels(multi_level(fan_ins=(2, 2)), (2, 2), str(tmp_path / "levels.png"))
    assert all(p.stat().st_size > 1000 for p in tmp_path.iterdir())
    with pytest.raises(ValueError, match="noising_levels is empty; allowed: a level"):
        AccountConfig(privacy="levels")
    with pytest.raises(ValueError, match="noising_levels is 4"):
        AccountConfig(levels=(5,), noising_levels=(4,)).noise_plan()


def test_noise_at_levels_that_a_zoning_file_lacks(tmp_path):
    file = tmp_path / "zones.csv"
    file.write_text("client,zone,region\na,x,north\nb,x,north\nc,y,south\n")
    options = {"zoning_file": str(file), "sampling": "full"}
    plan = AccountConfig(noising_levels=(2,), **options).noise_plan()
    assert [level.noise_multipliers for level in plan.upper_levels] == [(1.0, 1.0)]
    for level in (1, 3):
        config = AccountConfig(noising_levels=(2, level), **options)
        with pytest.raises(ArgumentError, match=r"noising_levels is 2,.; .* here 2$"):
            config.noise_plan()


def test_curves_of_two_levels_stay_apart(tmp_path, monkeypatch):
    """One line per observer, level and kind, however many levels observe."""
    from matplotlib.axes import Axes

    labels = []
    plain = Axes.plot

    def plot(axes, *args, **kwargs):
        labels.append((kwargs["label"], len(args[0])))
        return plain(axes, *args, **kwargs)

    monkeypatch.setattr(Axes, "plot", plot)
    request = AccountConfig(privacy="ldp", levels=(2,), zones=4, rounds=5)
    draw_rounds(request, str(tmp_path / "rounds.png"))
    assert {label for label, _ in labels} >= {
        "super node: ldp client",
        "super node of level 2: ldp client",
    }
    assert {count for _, count in labels} == {5}
