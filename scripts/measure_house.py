"""Measures how much of the library one must open to understand a part of it.

    python scripts/measure_house.py                # the table
    python scripts/measure_house.py --update       # and write it into docs
    python scripts/measure_house.py --root=OTHER   # of another checkout

Reads the sources of tff_hdp only; nothing is imported. See `House` for the rules.
"""

import ast
import dataclasses
import functools
import itertools
import pathlib
import sys
from collections.abc import Iterable, Iterator

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MARKS = "<!-- house -->", "<!-- /house -->"

# Name, module of its process, module that runs it; the second pair is where they
# lay before there was a folder for each system.
SYSTEMS = {
    "HDP": (
        ("systems.hdp.process", "systems.hdp.run"),
        ("learning.hdp", "simulation.systems.hdp"),
    ),
    "HFL-DP": (
        ("systems.hfl_dp.process", "systems.hfl_dp.run"),
        ("learning.hfl_dp", "simulation.systems.hfl_dp"),
    ),
    "GFL": (
        ("systems.gfl.process", "systems.gfl.run"),
        ("learning.gfl", "simulation.systems.gfl"),
    ),
    "FL-TOP": (
        ("systems.fl_top.process", "systems.fl_top.run"),
        ("learning.fl_top", "simulation.systems.fl_top"),
    ),
    "UDP-Alg": (
        ("systems.udp_hypernet.process", "systems.udp_hypernet.run"),
        ("learning.udp_hypernet", "simulation.systems.udp_hypernet"),
    ),
}
LOOP = ("simulation.experiment", "simulation.binary")
# What a thing is called in code, then and now; `a.b` is attribute b of an `a`. Rooms
# that carry whatever they are given use some of these words for something else.
WALKS: dict[str, tuple[str, ...]] = {
    "noise multiplier": (
        *("noise_multiplier", "noise_multipliers", "multiplier"),
        *("client_noise_multiplier", "zone_noise_multipliers"),
        *("server_noise_multiplier", "node_noise_multipliers"),
        *("client_stddev", "node_stddevs", "discrete_stddevs", "least_discrete_noise"),
        *("noise_std", "stddev"),
        # As one value with its sensitivity.
        *("PartyNoise", "client_noise", "zone_noise", "level.noise", "server_noise"),
        *("node_noise", "noise_by_field", "most_noise"),
    ),
    "client's data": ("examples", "features", "batches", "chunk"),
    "clip norm": ("clip_norm", "clipping.norm"),
}
CARRIERS = {"client's data": ("runtime.", "protocols.", "secagg.")}
# What this program finds in commit f7a5660, before systems had folders.
BEFORE = {
    "HDP: process": "15",
    "HFL-DP: process": "25",
    "GFL: process": "13",
    "FL-TOP: process": "20",
    "UDP-Alg: process": "14",
    "HDP: run": "109",
    "HFL-DP: run": "86",
    "GFL: run": "79",
    "FL-TOP: run": "92",
    "UDP-Alg: run": "79",
    "noise multiplier": "25, under 8 names",
    "client's data": "13, under 4 names",
    "clip norm": "10, under 2 names",
    "lines": "24,437 in 162",
    "privacy": "34",
}


@dataclasses.dataclass(frozen=True)
class House:
    """The files of tff_hdp under `root`, and who needs whom.

    A file needs those it imports, at any depth of its code, but for what type
    checkers alone see. A name imported from a package counts as imported from the
    file that defines it, since that is the one a reader opens: a package's `__init__`
    that only hands names on is never counted.

    Attributes:
      root: Of a checkout.
    """

    root: pathlib.Path

    @functools.cached_property
    def files(self) -> dict[str, pathlib.Path]:
        """Path by module, `tff_hdp.` left off; the library itself is the empty name."""
        library = self.root / "tff_hdp"
        found = {}
        for path in sorted(library.rglob("*.py")):
            parts = path.relative_to(library).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
        return found

    @functools.cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Syntax tree by module."""
        return {name: ast.parse(path.read_text()) for name, path in self.files.items()}

    @functools.cached_property
    def lines(self) -> int:
        """Lines of all files, blank ones and docstrings included."""
        return sum(len(p.read_text().splitlines()) for p in self.files.values())

    def room(self, name: str) -> int:
        """Files of the folder `name`, its `__init__` among them."""
        return sum(module.split(".")[0] == name for module in self.files)

    @functools.cached_property
    def needs(self) -> dict[str, set[str]]:
        """Modules that each module imports."""
        return {name: set(self._imports(name)) - {name} for name in self.files}

    def closure(self, starts: Iterable[str]) -> set[str]:
        """Everything that the modules `starts` need, themselves included."""
        found: set[str] = set()
        waiting = list(starts)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.needs[name]
        return found

    def walk(self, names: Iterable[str], among: Iterable[str]) -> dict[str, set[str]]:
        """Which of `names` the code of each module of `among` uses, if any."""
        wanted = set(names)
        used = {name: wanted & set(_words(self.trees[name])) for name in among}
        return {name: words for name, words in used.items() if words}

    def entry(self, system: str) -> tuple[str, str] | None:
        """The modules of a system's process and run; None if it has no such."""
        for pair in SYSTEMS[system]:
            if all(name in self.files for name in pair):
                return pair
        return None

    def _imports(self, name: str) -> Iterator[str]:
        for node in _nodes(self.trees[name]):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    yield from self._defining(node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    module = alias.name.removeprefix("tff_hdp.")
                    if module in self.files:
                        yield module

    def _defining(self, package: str, name: str) -> Iterator[str]:
        if not package.startswith("tff_hdp"):
            return
        module = package.removeprefix("tff_hdp").removeprefix(".")
        inner = f"{module}.{name}".removeprefix(".")
        if inner in self.files:
            yield inner
        elif module in self.files:
            is_package = self.files[module].name == "__init__.py"
            exports = _exports(self.trees[module]) if is_package else {}
            if name not in exports:
                yield module
                return
            home, original = exports[name]
            if f"{module}.{home}".removeprefix(".") in self.files:
                home = f"{package}.{home}"
            yield from self._defining(home, original)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a file but what is there for type checkers alone."""
    yield node
    for child in ast.iter_child_nodes(node):
        test = getattr(child, "test", None)
        if getattr(test, "id", None) != "TYPE_CHECKING":
            yield from _nodes(child)


def _exports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Home and own name of every name that a package hands on, lazily or not.

    Lazily is by a table from names to homes, as `__getattr__` of a package reads it,
    or by imports that only type checkers see.
    """
    found = {}
    typed = (node.body for node in tree.body if isinstance(node, ast.If))
    for node in itertools.chain(tree.body, *typed):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(
            node.value, ast.Dict
        ):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                pair = (getattr(key, "value", None), getattr(value, "value", None))
                if all(isinstance(word, str) for word in pair):
                    found[pair[0]] = (pair[1], pair[0])
    return found


def _words(tree: ast.Module) -> Iterator[str]:
    """Every name in code, `a.b` for attributes besides; not comments, not prose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
            owner = node.value
            inner = getattr(owner, "attr", getattr(owner, "id", ""))
            yield f"{inner}.{node.attr}"
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A field that is spoken of by name, as in getattr.
            yield node.value


@dataclasses.dataclass(frozen=True)
class Count:
    """What one part needs.

    Attributes:
      own: Files of the system's own folder.
      shared: Files elsewhere that those import themselves.
      all: Files altogether, with what the shared ones need in turn.
    """

    own: int
    shared: int
    all: int


def count(house: House, starts: Iterable[str]) -> Count:
    """Counts the files that modules need.

    Args:
      house: Of which checkout.
      starts: The modules; the folder of the first is the system's own.
    """
    starts = list(starts)
    folder = starts[0].rpartition(".")[0] + "."
    found = house.closure(starts)
    own = {name for name in found if name.startswith(folder)}
    shared = set().union(*(house.needs[name] for name in own)) - own
    return Count(len(own), len(shared), len(found))


def measured(house: House) -> dict[str, Count]:
    """What was measured, by what it is of."""
    found: dict[str, Count] = {}
    for system in SYSTEMS:
        entry = house.entry(system)
        if entry is not None:
            process, run = entry
            found[f"{system}: process"] = count(house, [process])
            found[f"{system}: run"] = count(house, [run, *LOOP])
    return found


def walks(house: House) -> dict[str, dict[str, set[str]]]:
    """The files through which a thing passes when HDP is run, and its names there."""
    entry = house.entry("HDP")
    run = house.closure([entry[1], *LOOP]) if entry else set()
    return {
        thing: house.walk(
            names,
            (name for name in run if not name.startswith(CARRIERS.get(thing, ()))),
        )
        for thing, names in WALKS.items()
    }


def table(house: House) -> str:
    """The measurements as Markdown, those of before beside them."""
    rows = [
        "| to understand | own files | shared, imported by these | in all | before |",
        "|---|---|---|---|---|",
    ]
    for part, found in sorted(measured(house).items(), key=lambda p: ": run" in p[0]):
        rows.append(
            f"| {part} | {found.own} | {found.shared} | {found.all} | {BEFORE[part]} |"
        )
    rows += [
        "",
        "| on its way through an HDP run | files | called | before |",
        "|---|---|---|---|",
    ]
    for thing, found in walks(house).items():
        names = sorted(set().union(*found.values()))
        shown = ", ".join(f"`{name}`" for name in names)
        called = f"{len(names)}: {shown}"
        rows.append(f"| {thing} | {len(found)} | {called} | {BEFORE[thing]} |")
    rows += [
        "",
        f"Lines of tff_hdp: {house.lines:,} in {len(house.files)} files; before: "
        f"{BEFORE['lines']}.",
        f"Files of its room `privacy`: {house.room('privacy')}; before: "
        f"{BEFORE['privacy']}.",
    ]
    return "\n".join(rows)


def update(page: pathlib.Path, text: str) -> None:
    """Puts the table between the page's marks.

    Args:
      page: A Markdown file with both of `MARKS`.
      text: What to put there.
    """
    start, end = MARKS
    head, _, rest = page.read_text().partition(start)
    tail = rest.partition(end)[2]
    page.write_text(f"{head}{start}\n{text}\n{end}{tail}")


def main() -> int:
    """Prints the table, and writes it where --update says so."""
    house = House(pathlib.Path(flags.FLAGS.root))
    if not house.files:
        raise ArgumentError("root", house.root, "a checkout of tff_hdp")
    text = table(house)
    print(text)
    if flags.FLAGS.update:
        update(PAGE, text)
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("root", str(ROOT), "The checkout to measure.")
    flags.DEFINE_boolean("update", False, "Write the table into docs/architecture.md.")
    sys.exit(cli.run(main))
