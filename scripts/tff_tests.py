"""TFF's own test files, in process beside TFF's worker.

    git clone --depth=1 --branch=v0.87.0 \
        https://github.com/google-parfait/tensorflow-federated
    python scripts/tff_tests.py --tff_source=tensorflow-federated --csv=tff_tests.csv

A file that makes an execution context is run twice, each time in a process of its own:
as it is, and with contexts in process wherever it asks for TFF's. What is tested is the
installed TFF; the source gives the test files only, which the package does not bring.
"""

import contextlib
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pandas as pd
from absl import flags
from tqdm import tqdm

from tff_hdp import cli
from tff_hdp.errors import ArgumentError
from tff_hdp.files import write_text

# A file makes a context by one of these, of TFF's backends native or test.
_MAKES_A_CONTEXT = re.compile(r"\bset_(a?sync)_(local|test)_cpp_execution_context\(")
_CHILD = "import sys, tff_tests; tff_tests.run_file(*sys.argv[1:])"
RUNTIMES = ("native", "in_process")
# Of a row: the file, of its cases how many, and what each runtime took.
FIELDS = (
    "file",
    "cases",
    "native_pass",
    "in_process_pass",
    "skipped",
    "worse",
    "native_seconds",
    "in_process_seconds",
)


def define_flags() -> None:
    """Defines which files to run."""
    flags.DEFINE_string(
        "tff_source", None, "A checkout of TFF, of the installed version."
    )
    flags.DEFINE_string(
        "tests", "**/*_test.py", "Which files, under tensorflow_federated/python."
    )
    flags.DEFINE_integer(
        "timeout", 1800, "Seconds that a file may take.", lower_bound=1
    )
    flags.DEFINE_string("csv", None, "Also write a row for each file to this file.")
    flags.DEFINE_string("logs", None, "Folder for what the test files print.")


def main() -> int:
    """Prints what passes where.

    Returns:
      1 if a case passes by TFF's worker alone, or a file tells nothing by it.
    """
    f = flags.FLAGS
    if f.tff_source is None:
        raise ArgumentError("tff_source", None, "a checkout of TFF")
    root = pathlib.Path(f.tff_source) / "tensorflow_federated" / "python"
    files = files_with_contexts(root, f.tests)
    if not files:
        allowed = f"some that make an execution context, under {root}"
        raise ArgumentError("tests", f.tests, allowed)
    logs = None if f.logs is None else pathlib.Path(f.logs)
    rows = []
    for path in tqdm(files, unit="file", disable=not sys.stderr.isatty()):
        name = str(path.relative_to(root))
        row, worse = compare(path, name, timeout=f.timeout, logs=logs)
        rows.append(row)
        if not row["cases"]:
            tqdm.write(f"{name}: tells nothing natively")
        for case in worse:
            tqdm.write(f"{name}: passes natively alone: {case}")
    print(f"files: {len(rows)}")
    for name in ("cases", "native_pass", "in_process_pass", "skipped", "worse"):
        print(f"{name}: {sum(row[name] for row in rows)}")
    if f.csv:
        table = pd.DataFrame(rows, columns=FIELDS).to_csv(index=False)
        write_text(pathlib.Path(f.csv), table)
    return int(any(row["worse"] or not row["cases"] for row in rows))


def files_with_contexts(root: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """The test files under `root` that make an execution context."""
    found = sorted(path for path in root.glob(pattern) if path.is_file())
    return [path for path in found if _MAKES_A_CONTEXT.search(path.read_text())]


def compare(
    path: pathlib.Path, name: str, *, timeout: int, logs: pathlib.Path | None
) -> tuple[dict[str, Any], list[str]]:
    """Runs a test file by both runtimes.

    Args:
      path: The file.
      name: What to call it.
      timeout: Seconds that a run may take.
      logs: Folder for what the runs print.

    Returns:
      A row of `FIELDS`, and the cases that pass by TFF's worker alone.
    """
    outcomes, seconds = {}, {}
    for runtime in RUNTIMES:
        began = time.monotonic()
        with _log(logs, f"{name.replace('/', '_')}.{runtime}.log") as log:
            outcomes[runtime] = outcomes_of(path, runtime, timeout=timeout, log=log)
        seconds[runtime] = time.monotonic() - began
    native, ours = outcomes["native"], outcomes["in_process"]
    worse = [c for c in native if native[c] == "pass" and ours.get(c) != "pass"]
    row = {
        "file": name,
        "cases": len(native),
        "native_pass": _count(native, "pass"),
        "in_process_pass": _count(ours, "pass"),
        "skipped": _count(native, "skip"),
        "worse": len(worse),
        "native_seconds": f"{seconds['native']:.3g}",
        "in_process_seconds": f"{seconds['in_process']:.3g}",
    }
    return row, worse


def outcomes_of(
    path: pathlib.Path, runtime: str, *, timeout: int, log: BinaryIO | int
) -> dict[str, str]:
    """Runs a test file in a process of its own.

    Args:
      path: The file.
      runtime: One of `RUNTIMES`.
      timeout: Seconds it may take.
      log: Where what it prints goes.

    Returns:
      `pass`, `skip` or `fail` by the case's class and name. Empty where the file
      cannot be run, or is stopped before its last case: it writes its report then.
    """
    here = str(pathlib.Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [sys.executable, "-c", _CHILD, str(path.resolve()), runtime, report]
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout)
        finally:
            # TFF's worker outlives the process that started it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        try:
            return _read(ElementTree.parse(report))
        except (FileNotFoundError, ElementTree.ParseError):
            return {}


def run_file(path: str, runtime: str, report: str) -> None:
    """Runs a test file in this process, as if called by name.

    Args:
      path: The file.
      runtime: One of `RUNTIMES`.
      report: Where to write absl's report of its cases.
    """
    # TFF stops its worker by SIGINT and waits; what a shell runs in the background
    # ignores it, and so would the worker.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if runtime == "in_process":
        _replace_contexts()
    sys.argv = [path, f"--xml_output_file={report}"]
    runpy.run_path(path, run_name="__main__")


def _replace_contexts() -> None:
    """Makes TFF's setters of contexts set ours."""
    import tensorflow_federated as tff
    from tensorflow_federated.python.core.backends.native import execution_contexts
    from tensorflow_federated.python.core.backends.test import (
        execution_contexts as contexts_of_tests,
    )

    from tff_hdp.runtime import in_process

    def set_sync(*, default_num_clients: int = 0, **_: Any) -> None:
        in_process.set_in_process_context(default_num_clients=default_num_clients)

    def set_async(*, default_num_clients: int = 0, **_: Any) -> None:
        context = in_process.create_async_in_process_context(
            default_num_clients=default_num_clients
        )
        tff.framework.set_default_context(context)

    backends = tff.backends
    for module in (
        execution_contexts,
        contexts_of_tests,
        backends.native,
        backends.test,
    ):
        for name in dir(module):
            found = _MAKES_A_CONTEXT.fullmatch(f"{name}(")
            if found:
                setattr(module, name, set_sync if found[1] == "sync" else set_async)


@contextlib.contextmanager
def _log(logs: pathlib.Path | None, name: str) -> Iterator[BinaryIO | int]:
    if logs is None:
        yield subprocess.DEVNULL
        return
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / name).open("wb") as file:
        yield file


def _read(report: ElementTree.ElementTree) -> dict[str, str]:
    """The outcomes of absl's report."""
    outcomes = {}
    for case in report.iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        ran = case.get("status") == "run" and case.find("skipped") is None
        outcome = "fail" if failed else "pass" if ran else "skip"
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return outcomes


def _count(outcomes: Mapping[str, str], outcome: str) -> int:
    return sum(found == outcome for found in outcomes.values())


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
