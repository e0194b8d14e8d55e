"""A study's runs and CSV, and the docs' tables, which must be those of their CSVs."""

import dataclasses
import hashlib
import json
import pathlib
import re

import pandas as pd
import pytest

from scripts.papers import result_files, result_tables, studies
from scripts.papers.comparison import trained as comparison
from scripts.papers.fl_top import trained as fl_top
from scripts.papers.gfl import trained as gfl
from scripts.papers.hdp import reproduce, trained
from scripts.papers.hfl_dp import trained as hfl_dp
from scripts.papers.udp_alg import trained as udp_alg
from scripts.parts import sweep_job, sweep_runs
from tff_hdp.simulation.journal import Journal
from tff_hdp.systems.hdp.seats import Seat, write_seats

PAGES = [studies.ROOT / "README.md", *sorted((studies.ROOT / "docs").rglob("*.md"))]
FL_TOP = ("table1", "table2", "table2_digit", "sweep", "fl_cs", "masked")
STUDIES = {
    "hdp": trained.studies,
    "gfl": gfl.studies,
    "hfl_dp": hfl_dp.studies,
    # Steps and clip norms of one's own come of the sweep, which was run reduced.
    "fl_top": lambda scale: fl_top.studies(
        scale, FL_TOP + ("table1_own",) * (scale == "reduced")
    ),
    "udp_alg": udp_alg.studies,
}
COMPARED = comparison.studies("full")
ANYHOW = {"errors": "ignore"}
EVERY = [
    (paper, scale, name)
    for paper, of in STUDIES.items()
    for scale in ("full", "reduced")
    for name in of(scale)
]


def test_every_table_in_the_docs_is_that_of_its_csv():
    held = {k: v for page in PAGES for k, v in result_tables.embedded(page).items()}
    assert len(held) > 80
    for name, text in held.items():
        assert text == result_tables.shown(name), name


def test_what_can_be_asked_is_what_there_is():
    assert set(reproduce.TRAINED) == set(trained.STUDIES)


def test_runs_that_compute_otherwise_are_another_study():
    found = trained.studies("reduced", "bfloat16")["figure2_cifar10"]
    assert found.name == "figure2_cifar10_reduced_bfloat16"
    for line in found.lines:
        config = found.config(line, {})
        assert (config.compute_dtype, config.rounds) == ("bfloat16", 40)


@pytest.mark.parametrize("task", ["cifar10", "cifar100", "emnist"])
def test_figure_3_has_panels_in_the_papers_setting(task):
    study = trained.STUDIES[f"figure3_{task}"]
    configs = [study.config(line, {}) for line in study.lines]
    assert {(c.zones, c.clients_per_round) for c in configs} == {
        (s, k) for s in (10, 20, 30, 40, 50) for k in (100, 200, 300)
    }
    for c in configs:
        assert (c.task, c.privacy, c.rounds, c.noise_multiplier) == (
            task,
            "hdp",
            200,
            1,
        )
        assert (c.client_learning_rate, c.clip_norm) == (0.02, "auto")


@pytest.mark.parametrize(("paper", "scale", "name"), EVERY)
def test_every_line_is_a_run_of_its_own(paper, scale, name, tmp_path):
    """Settings that hold together, and another run for every line and seed."""
    study = STUDIES[paper](scale)[name]
    jobs = study.jobs([0, 1], tmp_path, {})
    assert len({job.path for job in jobs}) == len(jobs) == 2 * len(study.lines)
    assert len({job.digest for job in jobs}) == len(study.lines)
    for job in jobs:
        program = pathlib.Path(job.command[1]).stem
        again = sweep_runs.job_of(program, job.command[2:], job.settings, job.path)
        assert again.config == job.config


@pytest.mark.parametrize(("paper", "scale", "name"), EVERY)
def test_every_row_in_the_docs_is_of_settings_that_the_command_has(paper, scale, name):
    """By the digest; what the commands run has not been changed since."""
    for study in computed(paper, scale, name):
        if study.csv(result_files.RESULTS).exists():
            assert_rows_are_of(study)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_nor_has_what_the_comparison_runs(name, data_dir, monkeypatch):
    """What is chosen for an epsilon takes seconds."""
    monkeypatch.setenv("TFF_HDP_DATA", str(data_dir))
    assert_rows_are_of(COMPARED[name])


def computed(paper, scale, name):
    """A study in every arithmetic."""
    yield STUDIES[paper](scale)[name]
    if paper == "hdp":
        yield trained.studies(scale, "bfloat16")[name]


def assert_rows_are_of(study):
    path = study.csv(result_files.RESULTS)
    known = {job.digest for job in study.jobs([0], pathlib.Path("runs"), {})}
    rows = pd.read_csv(path, dtype={"digest": str})
    assert len(rows) and set(rows["digest"]) <= known, path


def test_every_csv_of_runs_is_looked_at():
    known = [study for each in EVERY for study in computed(*each)]
    known += COMPARED.values()
    papers = [*STUDIES, "comparison"]
    folders = [result_files.RESULTS / paper for paper in papers]
    # Curves lie in folders of their own.
    there = [path for folder in folders for path in folder.glob("*.csv")]
    of_runs = {path for path in there if "digest" in result_files.read(path)}
    assert len(of_runs) > 40
    assert of_runs <= {study.csv(result_files.RESULTS) for study in known}


@pytest.mark.parametrize("paper", STUDIES)
def test_rows_that_no_run_replaces_stay_as_they_are(paper, tmp_path, monkeypatch):
    for scale, name in (each[1:] for each in EVERY if each[0] == paper):
        study = STUDIES[paper](scale)[name]
        if not (there := study.csv(result_files.RESULTS)).exists():
            continue
        path = study.csv(tmp_path)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(there.read_bytes())
        label = study.lines[0].label
        new = result_files.read(there)[-1:].astype(dict.fromkeys(label, object))
        new = new.drop(columns=list(studies._FRONT), **ANYHOW)
        new = new.assign(**label, seed=99)
        monkeypatch.setattr(studies.Study, "_measured", lambda *_, new=new: new)
        study.write(study.jobs([0], tmp_path, {}), tmp_path)
        before, after = (
            pd.read_csv(file, dtype=str).drop(columns=list(studies._FRONT), **ANYHOW)
            for file in (there, path)
        )
        after = after[after["seed"] != "99"].reset_index(drop=True)
        pd.testing.assert_frame_equal(before, after, obj=str(there), check_like=True)


def test_a_digest_is_not_changed_by_a_newer_setting_at_its_default(tmp_path):
    (job,) = gfl.studies("tiny")["mnist"].jobs([0], tmp_path, {})[:1]
    settings = job.config.to_dict()
    assert settings["compute_dtype"] == "float32"
    kept = {k: v for k, v in settings.items() if k not in sweep_job._NOWHERE}
    del kept["compute_dtype"]
    text = json.dumps([job.config.system, kept], sort_keys=True)
    assert job.digest == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_digest_is_of_five_digits(tmp_path):
    (job,) = gfl.studies("tiny")["mnist"].jobs([0], tmp_path, {})[:1]

    def digest(**changes):
        config = dataclasses.replace(job.config, **changes)
        return dataclasses.replace(job, config=config).digest

    assert digest(mu=0.123451) == digest(mu=0.123449) != digest(mu=0.12346)
    assert digest(mu=0.1, compute_dtype="bfloat16") != digest(mu=0.1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_epsilon_in_a_table_has_codes_that_are_explained(page):
    for name, text in result_tables.embedded(page).items():
        cells, _, below = text.partition("```")
        used = {code for each in re.findall(r"`(.+?)`", cells) for code in each.split()}
        explained = set(re.findall(r"^([A-Z][a-z]?\d*)  +\S", below, re.M))
        assert used == explained, name


def test_what_is_interrupted_is_tabulated_as_far_as_it_came(tmp_path, monkeypatch):
    written = []

    def interrupted(jobs, at_once):
        raise KeyboardInterrupt

    done = property(lambda job: job.settings["scheme"] == "iid")
    monkeypatch.setattr(sweep_runs, "run_jobs", interrupted)
    monkeypatch.setattr(sweep_job.Job, "is_finished", done)
    monkeypatch.setattr(studies, "table", lambda path: "")
    monkeypatch.setattr(studies, "_picture", lambda *_: None)
    monkeypatch.setattr(
        studies.Study,
        "write",
        lambda self, jobs, results: written.append(jobs) or tmp_path / "study.csv",
    )
    with pytest.raises(KeyboardInterrupt):
        studies.run(
            [gfl.studies("tiny")["mnist"]],
            **{"seeds": [0, 1], "folder": tmp_path, "changes": {}, "at_once": 1},
            **{"results": tmp_path, "pages": []},
        )
    ((first, second),) = ([job for job in jobs if job.is_finished] for jobs in written)
    assert (first.settings["seed"], second.settings["seed"]) == (0, 1)


@pytest.mark.parametrize("name", comparison.PARTS)
def test_a_comparison_has_a_line_a_system(name):
    found = comparison.studies("full")[name]
    systems = [line.label["system"] for line in found.lines]
    assert sorted(systems) == sorted(comparison.NAMES.values())


def test_the_claims_losses_are_cdps_accuracy_less_hdps():
    """By the length of HDP's noise; what lacks one of the two is left out."""
    by = ("noise_multiplier", "clients_per_round", "seed", "privacy", "accuracy")
    runs = pd.DataFrame(
        [
            (1.0, 100, 0, "cdp", 0.9),
            (1.0, 100, 0, "hdp", 0.8),
            (0.1, 100, 0, "cdp", 0.95),
            (0.1, 100, 0, "hdp", 0.94),
            (0.1, 100, 1, "cdp", 0.95),
        ],
        columns=by,
    )
    found = trained.losses(runs)
    assert found["lost_accuracy"].tolist() == pytest.approx([0.01, 0.1])
    # z sqrt(10 zones * 159,010 weights) / k.
    assert found["z sqrt(s d) / k"].tolist() == ["1.26", "12.6"]
    assert trained.losses(runs[runs["privacy"] == "cdp"]).empty


def test_a_small_models_noise_is_short():
    """Softmax regression has 7,850 weights; lines without a cohort have 100 clients."""
    line = {"seed": 0, "noise_multiplier": 4.5, "rounds": 40, "accuracy": 0.9}
    runs = pd.DataFrame(
        [
            {**line, "model": model, "privacy": mode}
            for model in ("dnn", "softmax")
            for mode in ("cdp", "hdp")
        ]
    )
    lines = trained.claim_sizes().lines
    assert all(
        trained.claim_sizes().config(line, {}).clients_per_round == trained.COHORT
        for line in lines
    )
    found = trained.losses(runs)
    assert found["model"].tolist() == ["softmax", "dnn"]
    assert found["z sqrt(s d) / k"].tolist() == ["12.6", "56.7"]


def test_terms_of_office_are_counted_from_the_seats(tmp_path):
    def seat(zone, super_node, elections):
        return Seat(zone=zone, super_node=super_node, elections=elections)

    rounds = [
        [seat(0, "a", 1), seat(1, "b", 1)],
        [seat(0, "a", 0), seat(1, None, 0)],
        [seat(0, "c", 1), seat(1, "b", 1)],
    ]
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({})
    for number, seats_now in enumerate(rounds, start=1):
        write_seats(tmp_path / "elections", number, seats_now)
        journal.announce(journal.entry(number, {"history": []}))
    found = {
        "elections": 4,
        "tenure": pytest.approx(5 / 4),
        "saw_any": 3,
        "most_seen": 2,
        "skipped": pytest.approx(1 / 6),
    }
    assert trained.measure_seats(tmp_path) == found
    # The last checkpoint was lost, so that its round was released again.
    journal.announce(journal.entry(3, {"history": []}))
    assert trained.measure_seats(tmp_path) == {**found, "most_seen": 3}


@pytest.mark.slow
def test_the_command_runs_every_line_and_tabulates(run_program, tmp_path):
    result = run_program(
        *("scripts/papers/hdp/reproduce.py", "--what=figure2_mnist", "--scale=tiny"),
        *("--seeds=3", f"--out={tmp_path}"),
    )
    assert result.returncode == 0, result.stderr
    found = pd.read_csv(pathlib.Path(tmp_path) / "hdp" / "figure2_mnist_tiny.csv")
    assert found["privacy"].tolist() == ["none", "cdp", "hdp", "ldp"]
    assert found["accuracy"].between(0, 1).all() and found["git_commit"].notna().all()
    assert "| hdp |" in result.stdout
