"""How much of the library one must open: counted on a library made for it."""

import pytest

from scripts import measure_house
from scripts.measure_house import BEFORE, MARKS, PAGE, SYSTEMS, House, count, table

LIBRARY = {
    "__init__.py": (
        "if TYPE_CHECKING:\n  from tff_hdp.lazy import late\n"
        "_HOMES = {'far': 'tff_hdp.lazy.inner'}"
    ),
    "lazy/__init__.py": "_HOMES = {'late': 'inner'}",
    "lazy/inner.py": "import numpy\nlate = far = 1",
    "parts/__init__.py": "from tff_hdp.parts.one import one\n",
    "parts/one.py": "def one(clip_norm): return clip_norm",
    "parts/two.py": "'''clip_norm is only spoken of'''\nfrom tff_hdp.parts import one",
    "systems/gfl/process.py": (
        "from tff_hdp.parts import one\nfrom tff_hdp.systems.gfl import plan\n"
    ),
    "systems/gfl/plan.py": (
        "def plan():\n  from tff_hdp.parts.two import x\n"
        "if TYPE_CHECKING:\n  from tff_hdp.lazy import late\n"
    ),
    "systems/gfl/run.py": "from tff_hdp.lazy import late",
    "door.py": "from tff_hdp import far",
    "typed.py": "from tff_hdp import late",
    "version.py": "from tff_hdp import __version__",
}


@pytest.fixture
def house(tmp_path):
    for name, text in LIBRARY.items():
        path = tmp_path / "tff_hdp" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(tmp_path)


def test_a_name_handed_on_counts_as_the_file_that_defines_it(house):
    assert house.needs["systems.gfl.process"] == {"parts.one", "systems.gfl.plan"}
    # Also where a package hands it on only once it is asked for.
    for name in ("systems.gfl.run", "door", "typed"):
        assert house.needs[name] == {"lazy.inner"}
    assert house.needs["version"] == {""}


def test_imports_inside_functions_count(house):
    assert house.closure(["systems.gfl.plan"]) == {
        *("systems.gfl.plan", "parts.two", "parts.one"),
    }


def test_own_files_shared_ones_and_all(house):
    assert count(house, ["systems.gfl.process"]) == measure_house.Count(
        own=2, shared=2, all=4
    )


def test_a_room_is_all_files_of_its_folder(house):
    assert (house.room("parts"), house.room("systems"), house.room("part")) == (3, 3, 0)


def test_a_walk_passes_through_code_not_through_prose(house):
    assert house.walk(["clip_norm"], house.files) == {"parts.one": {"clip_norm"}}


def test_attributes_are_told_apart_by_their_owner(tmp_path):
    (tmp_path / "tff_hdp").mkdir()
    file = tmp_path / "tff_hdp" / "a.py"
    file.write_text("x = plan.clipping.norm + clipping.norm + gradient.norm")
    assert House(tmp_path).walk(["clipping.norm"], ["a"]) == {"a": {"clipping.norm"}}
    file.write_text("x = gradient.norm")
    assert not House(tmp_path).walk(["clipping.norm"], ["a"])


def test_the_page_has_the_table_of_every_system():
    start, end = MARKS
    shown = PAGE.read_text().partition(start)[2].partition(end)[0]
    for system in SYSTEMS:
        assert f"| {system}: process |" in shown
    for thing, before in BEFORE.items():
        assert before in shown, thing


def test_update_touches_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n")
    measure_house.update(page, "new")
    assert page.read_text() == f"above\n{MARKS[0]}\nnew\n{MARKS[1]}\nbelow\n"


def test_every_system_of_this_checkout_is_measured(repository):
    lines = table(House(repository)).splitlines()
    for system in SYSTEMS:
        assert any(line.startswith(f"| {system}: process |") for line in lines)
    assert not any(" | 0 | " in line for line in lines)


def test_another_folder_is_refused(assert_refused, tmp_path):
    assert_refused("scripts/measure_house.py", [f"--root={tmp_path}"], ["--root is"])
