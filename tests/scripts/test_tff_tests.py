"""TFF's test files by two runtimes, on a made-up one."""

import subprocess

import pandas as pd
import pytest

from scripts import tff_tests

_FILE = """
import unittest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.core.backends.test import execution_contexts

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)

class Case(tf.test.TestCase):
    def test_sum(self):
        self.assertEqual(total([1, 2, 3]), 6)

    def test_natively_alone(self):
        context = tff.framework.get_context_stack().current
        self.assertNotIn("InProcess", type(context).__name__)

    @unittest.skip("as asked")
    def test_skipped(self):
        pass

    def test_fails(self):
        self.fail()

if __name__ == "__main__":
    execution_contexts.set_sync_test_cpp_execution_context()
    tf.test.main()
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source/tensorflow_federated/python/aggregators"
    folder.mkdir(parents=True)
    (folder / "sum_test.py").write_text(_FILE)
    (folder / "types_test.py").write_text("import unittest\nunittest.main()\n")
    return tmp_path / "source"


@pytest.mark.slow
def test_what_passes_natively_alone_is_named(source, tmp_path, run_program):
    rows = tmp_path / "rows.csv"
    done = run_program("scripts/tff_tests.py", "--tff_source", source, "--csv", rows)
    assert done.returncode == 1, done.stderr
    assert "files: 1\n" in done.stdout
    told = "sum_test.py: passes natively alone: __main__.Case.test_natively_alone"
    assert told in done.stdout
    (row,) = pd.read_csv(rows).to_dict("records")
    assert row["file"] == "aggregators/sum_test.py"
    # tf.test.TestCase brings a case that is skipped.
    assert (row["cases"], row["skipped"]) == (5, 2)
    assert (row["native_pass"], row["in_process_pass"]) == (2, 1)
    assert row["worse"] == 1


def test_a_file_that_does_not_end_is_stopped(source):
    path = source / "sum_test.py"
    path.write_text("import time\ntime.sleep(600)\n")
    ran = tff_tests.outcomes_of(path, "native", timeout=1, log=subprocess.DEVNULL)
    assert ran == {}


def test_a_file_that_tells_nothing_is_named(source, tmp_path, run_program):
    (path,) = source.rglob("sum_test.py")
    path.write_text("import nothing  # set_sync_test_cpp_execution_context()\n")
    logs = tmp_path / "logs"
    done = run_program("scripts/tff_tests.py", "--tff_source", source, "--logs", logs)
    assert done.returncode == 1
    assert "aggregators/sum_test.py: tells nothing natively" in done.stdout
    told = (logs / "aggregators_sum_test.py.native.log").read_text()
    assert "No module named 'nothing'" in told


def test_without_a_source_there_is_nothing_to_run(tmp_path, run_program):
    for given in ([], ["--tff_source", tmp_path]):
        done = run_program("scripts/tff_tests.py", *given)
        assert done.returncode == 2
        assert "error: --t" in done.stderr
