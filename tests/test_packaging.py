"""What a wheel holds, and what runs from one outside a clone."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

SOURCES = ("tff_hdp", "tasks", "scripts", "benchmarks", "tests")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """A wheel of a copy of the sources: building leaves files beside them."""
    copy = tmp_path_factory.mktemp("sources")
    ignore = shutil.ignore_patterns("__pycache__", ".venvs")
    for name in SOURCES:
        shutil.copytree(repository / name, copy / name, ignore=ignore)
    for name in FILES:
        shutil.copy(repository / name, copy)
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run(
        [sys.executable, "-m", "pip", *build, f"--wheel-dir={copy}", copy],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    (built,) = copy.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that holds what the wheel installs, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_outside(folder, installed, *arguments):
    """Runs Python in an empty folder with the wheel, and no clone, on its path."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_holds_the_library_and_the_tasks_only(wheel, repository):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = f"tff_hdp-{version(repository)}.dist-info"
    assert {name.split("/")[0] for name in names} == {"tff_hdp", "tasks", metadata}
    expected = {
        str(path.relative_to(repository))
        for room in ("tff_hdp", "tasks")
        for path in (repository / room).rglob("*.py")
    }
    found = {name for name in names if name.endswith(".py")}
    assert found == expected
    assert "tff_hdp/py.typed" in names
    assert any(name.startswith(metadata) and "LICENSE" in name for name in names)


def version(repository):
    text = (repository / "tff_hdp" / "__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.M)
    return found


def test_the_version_is_in_one_place(repository):
    number = re.escape(version(repository))
    for name in ("setup.py", "pyproject.toml", "CITATION.cff"):
        assert not re.search(rf"version.*{number}", (repository / name).read_text())


def test_the_library_comes_from_the_wheel(installed, tmp_path):
    code = (
        "import tff_hdp, tasks\n"
        "from tff_hdp.systems.hdp.config import HdpConfig\n"
        "from tff_hdp.privacy import account\n"
        "print(tff_hdp.__file__, tasks.__file__, HdpConfig(privacy='none').task)\n"
    )
    result = run_outside(tmp_path, installed, "-S", "-c", PATHS + code)
    assert result.returncode == 0, result.stderr
    library, task_room, task = result.stdout.split()
    for path in (library, task_room):
        assert pathlib.Path(path).is_relative_to(installed)
    assert task == "digits"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("scripts/papers/hdp/reproduce.py", ["--what=table3"]),
        ("scripts/papers/gfl/reproduce.py", []),
        ("scripts/papers/udp_alg/reproduce.py", []),
        ("scripts/papers/comparison/reproduce.py", []),
        ("benchmarks/protocols.py", []),
        ("scripts/sweep.py", []),
        ("scripts/plan.py", ["--promises=released_model<=2"]),
        ("scripts/bundle.py", []),
        ("scripts/torture.py", []),
        ("scripts/torture_inputs.py", []),
    ],
)
def test_a_program_without_its_clone_is_one_line(
    installed, tmp_path, repository, program, arguments
):
    """The file alone, run by a Python that has the wheel but not the clone."""
    code = (
        "import runpy\n"
        f"sys.path[0] = {str((repository / program).parent)!r}\n"
        f"sys.argv = {[program, *arguments]!r}\n"
        f"runpy.run_path({str(repository / program)!r}, run_name='__main__')\n"
    )
    result = run_outside(tmp_path, installed, "-S", "-c", PATHS + code)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "the clone" in line and "pip install" in line
    assert not list(tmp_path.iterdir())


# -S leaves out site-packages with its .pth files, and so an editable install of the
# clone; the packages themselves are put back.
PATHS = f"import sys; sys.path += {[p for p in sys.path if '-packages' in p]!r}\n"


def test_make_goes_on_from_an_environment_without_pip(repository, tmp_path):
    """As uv makes it, or an interrupted `python -m venv`."""
    for name in ("Makefile", "setup.py", "pyproject.toml", "uv.lock"):
        shutil.copy(repository / name, tmp_path)
    venv = tmp_path / ".venv"
    made = [sys.executable, "-m", "venv", "--without-pip", venv]
    subprocess.run(made, check=True)
    # Where no package is to be had, nothing but pip's own refusal may end it.
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    environment = {"PATH": os.environ["PATH"], **nothing}
    result = subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "No matching distribution found for uv" in result.stderr
    done = subprocess.run([venv / "bin" / "python", "-m", "pip", "--version"])
    assert done.returncode == 0
