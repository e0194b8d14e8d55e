"""Curves of runs: kept beside a study's rows, and drawn whoever ran them."""

import contextlib
import dataclasses

import numpy as np
import pandas as pd
import pytest

from scripts.papers import ends, kept_curves, studies
from scripts.papers.gfl import trained as gfl
from scripts.papers.udp_alg import trained as udp_alg
from scripts.parts import sweep_job
from tff_hdp import files
from tff_hdp.errors import FileError

PATH = "gfl/curves/mnist_tiny.csv"


@dataclasses.dataclass
class Folder:
    """What is read of a run's folder."""

    metrics: pd.DataFrame


@pytest.fixture
def study():
    """Three schemes over iterations."""
    return gfl.studies("tiny")["mnist"]


@pytest.fixture
def keep(study, tmp_path, monkeypatch):
    """Keeps the curves of the runs of some seeds, which a study's CSV has all."""
    done = set()

    def metrics(path):
        seed = int(str(path).rpartition("seed=")[2])
        table = {"round": [1, 2, 3], "accuracy": [seed, None, seed + 0.123456789]}
        return Folder(pd.DataFrame(table))

    finished = property(lambda job: job.config.seed in done)
    monkeypatch.setattr(sweep_job.Job, "is_finished", finished)
    monkeypatch.setattr(kept_curves, "read_run", metrics)

    def of(run, rows):
        done.clear()
        done.update(run)
        jobs = study.jobs(rows, tmp_path / "runs", {})
        table = [
            {"digest": job.digest, "seed": job.config.seed, "accuracy": 0.5}
            for job in jobs
        ]
        path = study.csv(tmp_path)
        path.parent.mkdir(exist_ok=True)
        pd.DataFrame(table).to_csv(path, index=False)
        return kept_curves.keep(study, jobs, tmp_path)

    return of


def test_runs_of_others_are_drawn_from_the_csv(keep, tmp_path):
    """Three schemes and two seeds, of which each was run on a machine of its own."""
    first = keep([0], rows=[0])
    assert [list(run.series("accuracy").index) for run in first] == [[1, 3]] * 3
    both = keep([4], rows=[0, 4])
    assert [run.settings["seed"] for run in both] == [0, 4] * 3
    assert all(run.curve is not None for run in both)
    # Of a CSV in five digits, and of the run itself.
    assert both[0].series("accuracy").to_dict() == {1: 0, 3: 0.12346}
    assert both[1].series("accuracy").to_dict() == {1: 4, 3: 4.123456789}
    kept = pd.read_csv(tmp_path / PATH)
    assert list(kept) == ["scheme", "seed", "digest", "round", "accuracy"]
    # Two tested rounds a run.
    assert len(kept) == 12


def test_curves_that_others_keep_meanwhile_stay(study, keep, tmp_path, monkeypatch):
    """Another program adds a seed's rows and curves while this one waits for it."""
    keep([0], rows=[0])
    jobs = study.jobs([0], tmp_path / "runs", {})

    @contextlib.contextmanager
    def alone_in(folder):
        with files.alone_in(folder):
            others = pd.read_csv(tmp_path / PATH).assign(seed=4)
            others.to_csv(tmp_path / PATH, mode="a", header=False, index=False)
            rows = pd.read_csv(study.csv(tmp_path)).assign(seed=4)
            rows.to_csv(study.csv(tmp_path), mode="a", header=False, index=False)
            yield

    monkeypatch.setattr(kept_curves, "alone_in", alone_in)
    found = kept_curves.keep(study, jobs, tmp_path)
    assert [run.settings["seed"] for run in found] == [0] * 3
    assert {*pd.read_csv(tmp_path / PATH)["seed"]} == {0, 4}


def test_lines_of_one_setting_have_a_curve_each(tmp_path, study, keep, monkeypatch):
    """As where a scale leaves nothing of what sets them apart."""
    first = study.lines[0]
    again = dataclasses.replace(first, label={"scheme": "again"})
    monkeypatch.setitem(vars(study), "lines", [first, again])
    keep([0], rows=[0])
    found = keep([0], rows=[0])
    assert [run.settings["scheme"] for run in found] == [first.label["scheme"], "again"]
    found = keep([], rows=[0])
    assert [list(run.series("accuracy").index) for run in found] == [[1, 3]] * 2


def test_a_curve_whose_row_is_gone_is_not_kept(keep, tmp_path):
    keep([0, 1], rows=[0, 1])
    left = keep([], rows=[1])
    assert {*pd.read_csv(tmp_path / PATH)["seed"]} == {1}
    assert [run.settings["seed"] for run in left] == [1] * 3


def test_a_run_without_a_curve_is_told_apart(keep):
    found = keep([1], rows=[0, 1])
    assert [run.curve is None for run in found] == [True, False] * 3


def test_a_damaged_file_is_refused(keep, tmp_path):
    keep([0], rows=[0])
    path = tmp_path / PATH
    path.write_text(path.read_text()[:-3])
    with pytest.raises(FileError, match="ends within a line"):
        keep([1], rows=[0, 1])
    path.write_text("seed,round\n0,1\n")
    with pytest.raises(FileError, match="lacks columns digest"):
        keep([1], rows=[0, 1])


def test_without_noise_a_curve_has_no_epsilon(tmp_path, monkeypatch):
    study = udp_alg.studies("tiny")["figure2a"]
    table = pd.DataFrame({"round": [1], "accuracy": [0.5]})
    monkeypatch.setattr(kept_curves, "read_run", lambda path: Folder(table))
    curve = kept_curves._curve(study, study.jobs([0], tmp_path, {})[0])
    assert list(curve)[-3:] == ["round", "accuracy", "epsilon_rdp"]
    assert curve["epsilon_rdp"].isna().all()


def test_curves_of_all_rows_are_drawn_or_only_ends(study, keep, tmp_path, monkeypatch):
    drawn = []

    def draw_ends(rows, path):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        drawn.append((path.name, len(rows)))

    monkeypatch.setattr(ends, "draw", draw_ends)

    def draw(study, runs, picture):
        drawn.append((picture.name, len(runs)))

    for seeds in ([0], [0, 1]):
        keep(seeds, rows=[0, 1])
        given = (study, tmp_path / "runs", {}, tmp_path, draw)
        studies._picture(*given)
    # Ends that were drawn before are so again.
    of_ends = ("gfl_mnist_tiny_ends.png", 6)
    assert drawn == [of_ends, ("gfl_mnist_tiny.png", 6), of_ends]


CURVES = sorted(studies.RESULTS.glob("*/curves/*.csv"))


@pytest.mark.parametrize("path", CURVES, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_a_curve_ends_where_its_row_says(path):
    """The docs' own: what a table has of a run is the last point of its curve."""
    rows = pd.read_csv(path.parents[1] / path.name, dtype={"digest": str})
    curves = pd.read_csv(path, dtype={"digest": str})
    metric = rows["metric"][0].removeprefix("best_")
    reached = rows.set_index(["digest", "seed"])
    for run, curve in curves.groupby(["digest", "seed"]):
        row = reached.loc[run]
        assert curve["round"].iloc[-1] == row["round"]
        if metric != rows["metric"][0]:
            assert curve[metric].max() == pytest.approx(row[f"best_{metric}"], rel=1e-4)
        # GFL's rows have the mean of the last iterations.
        elif path.parts[-3] not in ("gfl", "udp_alg"):
            # The comparison's of UDP-Alg are of its users' own tests.
            own = row.get("own_accuracy", np.nan)
            end = row[metric] if pd.isna(own) else own
            assert curve[metric].iloc[-1] == pytest.approx(end, rel=1e-4)
