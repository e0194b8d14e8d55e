"""A measurement says what it was made on."""

import importlib
import pathlib
import re

import pandas as pd
import pytest

from tff_hdp.errors import ArgumentError, FileError

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
MEASURING = sorted(path.name for path in FOLDER.glob("*.py") if path.stem != "machine")


@pytest.fixture
def machine(monkeypatch, repository):
    monkeypatch.syspath_prepend(repository / "benchmarks")
    return importlib.import_module("machine")


def test_cpu_and_its_instructions_are_named(machine, monkeypatch):
    cpu = "model name\t: An M\nflags\t\t: sse avx2 avx512f fma\n"
    monkeypatch.setattr("pathlib.Path.read_text", lambda _: cpu)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    said = machine.described("cpu")
    assert "cores of An M (AVX-512, oneDNN held to AVX2), CPU only" in said


def test_what_is_measured_again_is_replaced_and_all_else_stays(
    machine, monkeypatch, tmp_path
):
    path = tmp_path / "rows.csv"
    for name, what, threads, seconds in (
        *(("one", "a round", 1, 1.5), ("one", "a round", 2, 2.5)),
        *(("other", "a round", 1, 3.5), ("one", "a step", 1, 4.5)),
        ("one", "a round", 1, 5.5),
    ):
        monkeypatch.setattr(machine, "described", lambda device, name=name: name)
        row = {"what": what, "threads": f"{threads}", "seconds": seconds}
        machine.report([row], str(path), key=["what", "threads"])
    machine.report([], str(path), key=["what", "threads"])
    found = pd.read_csv(path).set_index(["machine", "what", "threads"])["seconds"]
    assert len(found) == 4
    assert found.to_dict() == {
        ("one", "a round", 1): 5.5,
        ("one", "a round", 2): 2.5,
        ("one", "a step", 1): 4.5,
        ("other", "a round", 1): 3.5,
    }


def test_a_file_of_something_else_is_neither_read_nor_written(
    machine, tmp_path, capsys
):
    path = tmp_path / "rows.csv"
    path.write_text("what,seconds\na round,1.5\n")
    with pytest.raises(ArgumentError, match=r"csv is .*rows with what, machine"):
        machine.report([{"what": "a round", "seconds": 2.5}], str(path), key=["what"])
    assert path.read_text() == "what,seconds\na round,1.5\n"
    # What was measured for minutes is not lost.
    assert "2.5" in capsys.readouterr().out


@pytest.mark.parametrize("name", MEASURING)
def test_a_program_that_says_cpu_only_hides_gpus(repository, name):
    """Else TensorFlow would compute on one, and the row would name the CPU."""
    text = (repository / "benchmarks" / name).read_text()
    hides = "machine.hide_gpus()" in text
    # One that measures GPUs alone ends where there is none.
    named = 'devices="gpu")' in text and "if not machine.gpus():" in text
    assert hides or named or not re.search(r"machine\.(described|report)\(", text)


def test_hidden_gpus_are_none(machine, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine.hide_gpus()
    assert machine.gpus() == []


def test_a_gpu_that_is_not_there_is_refused(machine, assert_refused):
    if machine.gpus():
        pytest.skip("there is a GPU")
    assert_refused("benchmarks/run.py", ["--devices=gpu"], ["--devices", "gpu"])


def test_a_file_that_is_no_csv_is_refused_and_kept(machine, tmp_path):
    path = tmp_path / "rows.csv"
    path.touch()
    with pytest.raises(FileError, match=r"rows.csv: is no CSV"):
        machine.report([{"what": "a round", "seconds": 2.5}], str(path), key=["what"])
    assert path.read_text() == ""


def test_rows_are_whole_for_whoever_reads_them_meanwhile(machine, tmp_path):
    path = tmp_path / "rows.csv"
    machine.report([{"what": "a", "seconds": 1.5}], str(path), key=["what"])
    with path.open() as file:
        machine.report([{"what": "b", "seconds": 2.5}], str(path), key=["what"])
        assert pd.read_csv(file)["what"].tolist() == ["a"]
    assert pd.read_csv(path)["what"].tolist() == ["a", "b"]
