"""Which rows a study's CSV keeps, from call to call and whatever befalls the file."""

import concurrent.futures
import time

import pandas as pd
import pytest

from scripts.papers import studies
from scripts.papers.gfl import trained as gfl
from scripts.parts import sweep_job, sweep_runs, sweep_tables
from tff_hdp.errors import FileError
from tff_hdp.systems.gfl.config import GflConfig


def test_what_was_run_is_in_the_csv_even_where_less_is_asked_for(tmp_path, monkeypatch):
    study = gfl.studies("tiny")["mnist"]
    asked = []
    monkeypatch.setattr(
        sweep_runs, "run_jobs", lambda jobs, at_once: asked.extend(jobs) or []
    )
    studies.run(
        [study],
        seeds=[0, 1],
        folder=tmp_path,
        changes={},
        at_once=1,
        results=tmp_path,
        pages=[],
        wanted=lambda label: label["scheme"] == "iid",
    )
    assert [job.settings["scheme"] for job in asked] == ["iid", "iid"]


def test_rows_of_runs_elsewhere_stay_in_the_csv(tmp_path, monkeypatch):
    """A run replaces one of its line and seed; rows of other settings go."""
    study = studies.Study("gfl", "mnist", gfl.studies("tiny")["mnist"].lines, GflConfig)
    monkeypatch.setattr(sweep_job.Job, "is_finished", True)

    def write(folder, seeds, accuracy):
        jobs = study.jobs(seeds, tmp_path / folder, {})
        rows = [
            {
                **{"digest": job.digest, "git_commit": folder, "folder": ""},
                **{"seed": job.config.seed, "scheme": job.settings["scheme"]},
                "accuracy": accuracy,
            }
            for job in jobs
        ]
        monkeypatch.setattr(sweep_tables, "table", lambda jobs: pd.DataFrame(rows))
        return pd.read_csv(study.write(jobs, tmp_path))

    first = write("one", [2, 0], 0.125)
    assert first["scheme"].tolist() == ["none"] * 2 + ["iid"] * 2 + ["hybrid"] * 2
    both = write("other", [1, 2], 0.25)
    assert both["seed"].tolist() == [0, 1, 2] * 3
    assert both["git_commit"].tolist() == ["one", "other", "other"] * 3
    assert both["accuracy"].tolist() == [0.125, 0.25, 0.25] * 3
    assert both.columns.tolist() == first.columns.tolist()
    changed = both.assign(digest=both["digest"].where(both["scheme"] != "iid", "old"))
    changed.to_csv(tmp_path / "gfl" / f"{study.name}.csv", index=False)
    again = write("third", [2], 0.5)
    assert again["seed"].tolist() == [0, 1, 2, 2, 0, 1, 2]


def test_who_writes_at_once_loses_no_row(tmp_path, monkeypatch):
    """Seeds may be run in several places."""
    study = studies.Study("gfl", "mnist", gfl.studies("tiny")["mnist"].lines, GflConfig)
    monkeypatch.setattr(sweep_job.Job, "is_finished", True)
    monkeypatch.setattr(
        sweep_tables,
        "table",
        lambda jobs: pd.DataFrame(
            {
                **{"digest": job.digest, "git_commit": "", "folder": ""},
                **{"seed": job.config.seed, "scheme": job.settings["scheme"]},
            }
            for job in jobs
        ),
    )

    def slow(*arguments):
        found = read(*arguments)
        time.sleep(0.3)  # In which the others would have read the same.
        return found

    read = studies.read
    monkeypatch.setattr(studies, "read", slow)

    def write(seed):
        return study.write(study.jobs([seed], tmp_path / str(seed), {}), tmp_path)

    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        (path, *_) = threads.map(write, [0, 1, 2])
    assert pd.read_csv(path)["seed"].tolist() == [0, 1, 2] * 3


def test_a_damaged_csv_keeps_no_other_study_from_its_rows(tmp_path, monkeypatch):
    damaged, whole = gfl.studies("tiny")["mnist"], gfl.studies("tiny")["figure2"]
    tabulated = []

    def tabulate(study, *_):
        tabulated.append(study.name)
        if study is damaged:
            raise FileError(tmp_path / "mnist.csv", "lacks columns seed")

    monkeypatch.setattr(studies, "_tabulate", tabulate)
    monkeypatch.setattr(sweep_runs, "run_jobs", lambda jobs, at_once: [])
    with pytest.raises(FileError, match="lacks columns seed"):
        studies.run(
            [damaged, whole],
            **{"seeds": [0], "folder": tmp_path, "changes": {}, "at_once": 1},
            **{"results": tmp_path, "pages": []},
        )
    assert tabulated == [damaged.name, whole.name]


def test_rows_of_lines_that_have_not_been_run_yet_stay_in_the_csv(
    tmp_path, monkeypatch
):
    """One line of three has ended on this machine; the others' rows are of another."""
    study = studies.Study("gfl", "mnist", gfl.studies("tiny")["mnist"].lines, GflConfig)
    monkeypatch.setattr(studies, "table", lambda path: "")

    def rows(jobs):
        return pd.DataFrame(
            {
                **{"digest": job.digest, "git_commit": "", "folder": ""},
                **{"seed": job.config.seed, "scheme": job.settings["scheme"]},
                "accuracy": 0.5,
            }
            for job in jobs
            if job.is_finished
        )

    def tabulate(seeds, ended):
        done = property(lambda job: job.settings["scheme"] in ended)
        monkeypatch.setattr(sweep_job.Job, "is_finished", done)
        monkeypatch.setattr(sweep_tables, "table", rows)
        jobs = study.jobs(seeds, tmp_path, {})
        studies._tabulate(study, jobs, tmp_path)
        frame = pd.read_csv(tmp_path / "gfl" / f"{study.name}.csv")
        return list(zip(frame["scheme"], frame["seed"], strict=True))

    everything = tabulate([0], ("none", "iid", "hybrid"))
    assert len(everything) == 3
    assert set(tabulate([1], ("iid",))) == {*everything, ("iid", 1)}


def study_of_files(tmp_path, monkeypatch):
    """A study's path, and what writes rows of one finished run into it."""
    study = studies.Study("gfl", "mnist", gfl.studies("tiny")["mnist"].lines, GflConfig)
    monkeypatch.setattr(sweep_job.Job, "is_finished", True)

    def write(seed):
        (job,) = study.jobs([seed], tmp_path, {})[:1]
        row = {"digest": job.digest, "git_commit": "", "folder": "", "seed": seed}
        rows = pd.DataFrame([row | job.settings | {"accuracy": 0.5}])
        monkeypatch.setattr(sweep_tables, "table", lambda jobs: rows)
        return study.write([job], tmp_path)

    return tmp_path / "gfl" / "mnist.csv", write


def test_a_csv_is_whole_for_whoever_reads_it_meanwhile(tmp_path, monkeypatch):
    path, write = study_of_files(tmp_path, monkeypatch)
    write(0)
    with path.open() as file:
        write(1)
        assert pd.read_csv(file)["seed"].tolist() == [0]
    assert pd.read_csv(path)["seed"].tolist() == [0, 1]


@pytest.mark.parametrize("digest", ["123456789012", "012345678901", "1234567890e1"])
def test_rows_stay_whose_digest_could_be_a_number(tmp_path, monkeypatch, digest):
    monkeypatch.setattr(sweep_job.Job, "digest", digest)
    path, write = study_of_files(tmp_path, monkeypatch)
    write(0)
    write(1)
    rows = pd.read_csv(path, dtype=str)
    assert rows["seed"].tolist() == ["0", "1"]
    assert rows["digest"].tolist() == [digest, digest]


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("", "is no CSV: No columns"),
        ("scheme,digest,seed\nnone,a,0\nnone,a,0,1\n", "is no CSV: .*line 3"),
        ("scheme,printed,dig\n", "lacks columns digest, seed$"),
        ("scheme,digest,seed\nnone,a,0", "ends within a line$"),
    ],
)
def test_what_is_no_csv_of_a_study_is_refused_and_kept(
    tmp_path, monkeypatch, left, words
):
    path, write = study_of_files(tmp_path, monkeypatch)
    path.parent.mkdir()
    path.write_text(left)
    with pytest.raises(FileError, match=f"mnist.csv: {words}"):
        write(0)
    assert path.read_text() == left


@pytest.mark.parametrize(
    ("label", "read"),
    [(1.0, 1), (0.005, 0.005), (1e-5, "1e-05"), ("auto", "auto"), (2.0, "2.0")],
)
def test_a_line_is_known_again_by_what_a_csv_has(label, read):
    assert studies._key([label]) == studies._key([read])
