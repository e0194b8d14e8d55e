"""The picture of where runs ended: every seed, mean and spread, and what is printed."""

import pandas as pd
import pytest

from scripts.papers import ends, result_files


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The axes of a drawn frame."""
    found = []
    monkeypatch.setattr(ends, "write_figure", lambda path, figure: found.append(figure))

    def of(frame):
        ends.draw(frame, tmp_path / "ends.png")
        (axes,) = found[-1].axes
        return axes

    return of


def frame_of(*rows):
    names = ["r", "scheme", "printed", "metric", "seed", "accuracy"]
    return pd.DataFrame(rows, columns=names)


def points(axes, marker):
    lines = [line for line in axes.lines if line.get_marker() == marker]
    return [
        (float(x), float(y))
        for line in lines
        for x, y in zip(*line.get_data(), strict=True)
    ]


def test_every_seed_and_what_is_printed_is_a_point(drawn):
    axes = drawn(
        frame_of(
            (0.1, "TOP", 0.8, "accuracy", 0, 0.7),
            (0.1, "TOP", 0.8, "accuracy", 1, 0.9),
            (0.2, "CS", None, "accuracy", 0, 0.5),
        )
    )
    assert points(axes, "o") == [(0.7, 0), (0.9, 0), (0.5, 1)]
    assert points(axes, "D") == [(0.8, 0)]
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == ["r = 0.1, TOP", "r = 0.2, CS"]
    first, second = (each.get_children() for each in axes.containers[:2])
    # Mean 0.8, and the standard deviation of two that are 0.2 apart.
    assert first[0].get_xdata() == pytest.approx([0.8])
    (ends_of_bar,) = first[-1].get_segments()
    assert ends_of_bar[:, 0] == pytest.approx([0.8 - 0.02**0.5, 0.8 + 0.02**0.5])
    assert second[0].get_xdata() == pytest.approx([0.5])


def test_a_number_as_text_is_told_what_it_is_of(drawn):
    """A column has text throughout where one line has none of it."""
    rows = [
        (r, name, None, "accuracy", 0, 0.5) for r, name in (("-", "A"), ("0.1", "B"))
    ]
    axes = drawn(frame_of(*rows))
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == ["A", "r = 0.1, B"]


def test_what_all_lines_share_is_not_said(drawn):
    rows = [(0.1, name, None, "accuracy", 0, 0.5) for name in ("TOP", "CS")]
    axes = drawn(frame_of(*rows))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TOP", "CS"]
    assert points(axes, "D") == []


@pytest.mark.parametrize("name", ["gfl/no_such", "hfl_dp/noise"])
def test_what_is_no_study_is_refused(run_program, name):
    found = run_program("scripts/papers/ends.py", name)
    assert found.returncode == 2
    assert f"STUDY is {name}" in found.stderr


PICTURES = sorted((result_files.ROOT / "docs" / "figures").glob("*_ends.png"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_of_a_study_of_today(path):
    studies = {
        f"{csv.parent.name}_{csv.stem}" for csv in result_files.RESULTS.glob("*/*.csv")
    }
    assert path.stem.removesuffix("_ends") in studies
