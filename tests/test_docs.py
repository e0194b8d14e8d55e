"""What pages, notebooks and programs' own words refer to is there."""

import ast
import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import griffe
import pytest
from absl import flags
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from scripts.plan import PlanConfig
from tff_hdp import cli
from tff_hdp.attacks.config import AttackConfig
from tff_hdp.privacy.config import AccountConfig
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROGRAMS = sorted(
    path
    for folder in ("scripts", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if ".venvs" not in path.parts
)
FOLDERS = "tff_hdp|scripts|tests|docs|tasks|benchmarks|notebooks|requirements"
# A name with a <placeholder> is not one of a file.
PATH = re.compile(rf"(?<![\w/.$-])(?:{FOLDERS})/[\w./*{{}},-]*+(?!<)")
DOTTED = re.compile(r"(?<![\w/.-])(?:tff_hdp|tasks)(?:\.[A-Za-z_]\w*)+(?![\w/])")
COMMAND = re.compile(
    r"\bpython(?:3\.11)? (?P<program>[\w./]+\.py)(?P<flags>(?:\\\n|[^\n`|&])*)"
)
# Whose flags are a config's.
CONFIGS = {
    "scripts/account.py": AccountConfig,
    "scripts/attack.py": AttackConfig,
    "scripts/fl_top.py": FlTopConfig,
    "scripts/gfl.py": GflConfig,
    "scripts/hfl_dp.py": HflDpConfig,
    "scripts/plan.py": PlanConfig,
    "scripts/train.py": HdpConfig,
    "scripts/udp_hypernet.py": UdpHypernetConfig,
}
# Made when they are asked for, or by a run.
GENERATED = ("benchmarks/.venvs",)


@functools.cache
def text_of(path):
    """The words of a page, of a notebook's cells, or of a program's docstring."""
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells)
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(path.read_text())) or ""
    return path.read_text()


def named(path):
    return str(path.relative_to(ROOT))


def paths_in(text):
    """The paths that a text names, as patterns; `...` is for what is left out.

    Comments of Markdown are not the text; they mark which results stand where.
    """
    for found in PATH.findall(re.sub(r"<!--.*?-->", "", text)):
        yield found.replace("...", "*").rstrip(".,-")


def expand(name):
    """The names that a{b,c} stands for: ab and ac."""
    parts = re.split(r"\{(.*?)\}", name)
    return map("".join, itertools.product(*(part.split(",") for part in parts)))


everywhere = pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS, *PROGRAMS], ids=named)


@everywhere
def test_every_path_is_there(page):
    for found in paths_in(text_of(page)):
        for name in expand(found):
            if not name.startswith(GENERATED):
                assert any(ROOT.glob(name)), f"{named(page)} names {name}"


@everywhere
def test_every_dotted_name_is_defined(page):
    for name in DOTTED.findall(text_of(page)):
        # A sentence may end here, and a file's name is a path.
        if not name.endswith(".py"):
            assert is_defined(name), f"{named(page)} names {name}"


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=named)
def test_every_import_in_code_can_be_made(page):
    text = text_of(page)
    blocks = (
        [text]
        if page.suffix == ".ipynb"
        else re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    )
    for line in re.findall(r"^from \S+ import .+$", "\n".join(blocks), re.MULTILINE):
        (statement,) = ast.parse(line).body
        if statement.module.partition(".")[0] in ("tff_hdp", "tasks", "scripts"):
            for alias in statement.names:
                name = f"{statement.module}.{alias.name}"
                assert is_defined(name), f"{named(page)} imports {name}"


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS, ROOT / "Makefile"], ids=named)
def test_every_sync_keeps_what_another_brought(page):
    """One without --inexact removes what its own extra does not name."""
    for command in re.findall(r"\buv sync\b[^`\n]*", text_of(page)):
        assert "--inexact" in command.split(), f"{named(page)}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_imports_this_library_before_tensorflow(page):
    """So that TensorFlow is told to be quiet before it speaks."""
    blocks = re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)
    for block in blocks:
        imports = re.findall(
            r"^\s*(?:from|import) (tff_hdp|tensorflow)\w*", block, re.M
        )
        if "tff_hdp" in imports:
            assert imports[0] == "tff_hdp", f"{named(page)}: {imports}"


def is_defined(dotted):
    """Whether modules and what they hold go as far as the name does."""
    parts = dotted.split(".")
    place = ROOT
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").exists():
        module = place / f"{parts.pop(0)}.py"
    else:
        module = place / "__init__.py"
    # Fields of what is defined are the business of the tests of its room.
    return module.exists() and (not parts or parts[0] in names_of(module))


def names_of(module):
    """What a module defines, imports or, if a package, hands on lazily."""
    names = set()
    body = ast.parse(module.read_text()).body
    # What a package hands on lazily may be spelled out for type checkers.
    for node in [*body, *(n for i in body if isinstance(i, ast.If) for n in i.body)]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
            if module.name == "__init__.py" and isinstance(node.value, ast.Dict):
                names |= {getattr(key, "value", None) for key in node.value.keys}
    return names


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        # The reference is made with the site, whose strict build holds its links.
        if re.match(r"[a-z]+:|reference/", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{named(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{named(page)} links to {target}"


def anchors(page):
    """The headings of a page as links name them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.strip().replace(" ", "-"))
    return found


@functools.cache
def commands():
    """The flags that pages and docstrings give to every program."""
    found = {}
    for page in [*PAGES, *NOTEBOOKS, *PROGRAMS]:
        for match in COMMAND.finditer(text_of(page)):
            # What follows a lone -- goes to a program that this one starts.
            own = match["flags"].partition(" -- ")[0]
            flags = re.findall(r"(?<=[ (])--(\w+)", own)
            found.setdefault(match["program"], {}).update(dict.fromkeys(flags, page))
    return found


@pytest.mark.parametrize("program", sorted(commands()))
def test_every_command_line_is_one_that_the_program_takes(program, run_program):
    assert (ROOT / program).exists(), f"{program} is not there"
    shown = run_program(program, "--help").stdout
    for flag, page in commands()[program].items():
        # absl's own flags are not of the program.
        if flag not in ("flagfile", "help"):
            known = re.search(rf"--(\[no\])?{flag.removeprefix('no')}\b", shown)
            known = known or re.search(rf"--(\[no\])?{flag}\b", shown)
            assert known, f"{named(page)} gives --{flag} to {program}"


def settings(program):
    """The words of every command that pages and docstrings give to a program."""
    for page in [*PAGES, *NOTEBOOKS, *PROGRAMS]:
        for match in COMMAND.finditer(text_of(page)):
            own = match["flags"].replace("\\\n", " ").partition(" -- ")[0]
            # A shell's variable stands for several values.
            if match["program"] == program and "$" not in own:
                words = shlex.split(own, comments=True)
                # What ends a sentence is not of the command.
                flag = [w.rstrip(").,;:") for w in words if w.startswith("--")]
                yield page, flag


@pytest.mark.parametrize("program", sorted(CONFIGS))
def test_the_settings_of_every_command_go_together(program):
    shown = list(settings(program))
    assert shown
    for page, words in shown:
        values = flags.FlagValues()
        cli.define_flags(CONFIGS[program], values)
        try:
            values([program, *words])
            cli.config_from_flags(CONFIGS[program], values)
        except OSError:
            # Of the reader's own.
            continue
        except ValueError as error:
            pytest.fail(f"{named(page)}: {program} {' '.join(words)}: {error}")


def test_the_readme_is_read():
    """The patterns above find what they are for."""
    text = (ROOT / "README.md").read_text()
    assert "docs/figures/hdp_digits.png" in list(paths_in(text))
    assert "scripts/train.py" in commands()
    assert "privacy" in commands()["scripts/train.py"]
    assert "uv sync" in text_of(ROOT / "docs" / "install.md")
    assert is_defined("tff_hdp.errors.ArgumentError")
    assert not is_defined("tff_hdp.errors.NoSuchError")
    assert not is_defined("tff_hdp.nowhere")


def test_the_site_builds_strictly(tmp_path, caplog):
    """A broken link fails it. The reference's pages are there, but unwritten."""
    config = load_config(
        str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path), plugins=[]
    )
    try:
        build(config)
    except Abort:
        pytest.fail(caplog.text)
    assert (tmp_path / "reference" / "privacy.html").exists()
    names = re.findall(
        r"\[(\S+)\]\[\]", (tmp_path / "reference/index.html").read_text()
    )
    assert "tff_hdp.privacy.plan.NoisePlan" in names
    assert [name for name in names if not is_defined(name)] == []


@pytest.mark.parametrize("package", ["tff_hdp", "tasks"])
def test_docstrings_are_what_the_reference_can_show(package, caplog):
    """An argument that a function does not have is a warning."""
    found = griffe.load(
        package,
        search_paths=[ROOT],
        docstring_parser="google",
        allow_inspection=False,
    )
    rooms = [found]
    while rooms:
        room = rooms.pop()
        assert room.docstring is None or room.docstring.parsed
        rooms += [member for member in room.members.values() if not member.is_alias]
    assert not caplog.records, caplog.text


@pytest.mark.slow
def test_the_site_builds_strictly_with_its_reference(tmp_path):
    """As `make docs` does it; with --quiet, warnings would not count."""
    build = ["-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, *build],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "reference" / "privacy.html").read_text()
    assert "tff_hdp.privacy.plan.NoisePlan" in reference
