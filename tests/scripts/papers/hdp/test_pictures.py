"""What the pictures of HDP's studies show: lines, panels and seeds."""

import dataclasses

import pandas as pd
import pytest

from scripts.papers.hdp import pictures, trained
from scripts.papers.kept_curves import Run
from scripts.parts import curves


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws a study of runs whose accuracy after round r is r / 10 + seed / 100."""

    found = []

    def draw(panels, path, **_):
        found.extend(panels)

    monkeypatch.setattr(curves, "draw", draw)

    def of(study):
        runs = [
            Run(
                settings={**line.label, "seed": seed},
                config=study.config(line, {"seed": seed}),
                row={},
                curve=pd.DataFrame(
                    {"round": [1, 2], "accuracy": [0.1 + seed / 100, 0.2 + seed / 100]}
                ),
                path=tmp_path,
            )
            for line in study.lines
            for seed in (0, 3)
        ]
        pictures.draw(study, runs, tmp_path / "picture.png")
        return found

    return of


def test_accuracy_over_rounds_has_a_line_a_setting(drawn):
    (panel,) = drawn(trained.studies("reduced")["figure2_mnist"])
    assert list(panel.curves) == ["none", "cdp", "hdp", "ldp"]
    assert [list(seed) for seed in panel.curves["hdp"]] == [[0.1, 0.2], [0.13, 0.23]]


def test_two_tasks_of_a_study_are_lines_of_their_own(drawn):
    (panel,) = drawn(trained.studies("reduced")["figure2_cifar10_chosen"])
    assert list(panel.curves)[:2] == ["cifar10, none", "cifar10_mirrored, none"]
    assert all(len(seeds) == 2 for seeds in panel.curves.values())


def test_figure_3_is_over_zones_by_cohort(drawn):
    (panel,) = drawn(trained.figure3())
    assert list(panel.curves) == ["k = 100", "k = 200", "k = 300"]
    assert panel.xlabel == "zones s"
    one, other = panel.curves["k = 200"]
    assert one.to_dict() == dict.fromkeys([10, 20, 30, 40, 50], 0.2)
    assert other.to_dict() == dict.fromkeys([10, 20, 30, 40, 50], 0.23)


def test_the_claim_is_over_noise_a_panel_a_cohort(drawn):
    panels = drawn(trained.claim())
    assert [panel.title for panel in panels] == ["k = 50", "k = 100", "k = 300"]
    for panel in panels:
        assert list(panel.curves) == ["cdp", "hdp"]
        assert list(panel.curves["hdp"][0].index) == [0.1, 0.3, 1.0]


def test_what_is_no_accuracy_is_not_drawn(drawn):
    other = dataclasses.replace(trained.claim(), metric="seconds")
    assert drawn(other) == []


def test_the_claim_by_model_and_rounds_is_over_rounds(drawn):
    """Its name begins as the claim's, its lines have no cohort."""
    (panel,) = drawn(trained.studies("reduced")["claim_sizes"])
    assert len(panel.curves) == 10


def test_a_study_at_another_scale_is_drawn_like_its_own(drawn):
    (panel,) = drawn(trained.studies("full", "bfloat16")["figure3_cifar10"])
    assert list(panel.curves) == ["k = 100", "k = 200", "k = 300"]
