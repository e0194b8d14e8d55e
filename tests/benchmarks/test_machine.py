"""A measurement says what it was made on."""

import importlib

import pandas as pd
import pytest

from tff_hdp.errors import ArgumentError


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


def test_rows_of_other_machines_stay_and_a_machines_own_are_replaced(
    machine, monkeypatch, tmp_path
):
    path = tmp_path / "rows.csv"
    for name, seconds in (("one", 1.5), ("other", 2.5), ("one", 3.5)):
        monkeypatch.setattr(machine, "described", lambda device, name=name: name)
        machine.report([{"what": "a round", "seconds": seconds}], str(path))
    found = pd.read_csv(path).set_index("machine")["seconds"]
    assert found.to_dict() == {"other": 2.5, "one": 3.5}
    assert len(found) == 2


def test_a_file_of_something_else_is_neither_read_nor_written(
    machine, tmp_path, capsys
):
    path = tmp_path / "rows.csv"
    path.write_text("what,seconds\na round,1.5\n")
    with pytest.raises(ArgumentError, match=r"csv is .*rows that name their machine"):
        machine.report([{"what": "a round", "seconds": 2.5}], str(path))
    assert path.read_text() == "what,seconds\na round,1.5\n"
    # What was measured for minutes is not lost.
    assert "2.5" in capsys.readouterr().out


def test_a_gpu_that_is_not_there_is_refused(machine, assert_refused):
    if machine.gpus():
        pytest.skip("there is a GPU")
    assert_refused("benchmarks/run.py", ["--devices=gpu"], ["--devices", "gpu"])
