"""A measurement says what it was made on."""

import importlib

import pytest


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


def test_a_gpu_that_is_not_there_is_refused(machine, assert_refused):
    if machine.gpus():
        pytest.skip("there is a GPU")
    assert_refused("benchmarks/run.py", ["--devices=gpu"], ["--devices", "gpu"])
