"""Makes the pages of the API reference: one for each room, from its docstrings."""

import ast
import pathlib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[2]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds `reference/index.md` and a page for every room of the library."""
    library = ROOT / "tff_hdp"
    rooms = [path.parent for path in library.glob("*/__init__.py")]
    pages = {room.name: _room(room) for room in [*rooms, ROOT / "tasks"]}
    pages["index"] = _front_door(library / "__init__.py")
    alone = (
        f"::: {_dotted(path.with_suffix(''))}" for path in library.glob("[a-z]*.py")
    )
    pages["errors"] = "\n\n".join(["# Errors and flags", *sorted(alone)])
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def _room(folder: pathlib.Path) -> str:
    """A directive for every module that documents something public."""
    parts = [f"# {_dotted(folder)}"]
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path.name != "__init__.py":
            parts.append(f"::: {_dotted(path.with_suffix(''))}")
        elif any(isinstance(node, ast.FunctionDef) for node in tree.body):
            parts.append(f"::: {_dotted(path.parent)}")
        elif path.parent == folder:
            parts.append(ast.get_docstring(tree) or "")
    return "\n\n".join(parts) + "\n"


def _front_door(path: pathlib.Path) -> str:
    """The library's table of contents, and where each of its names is described."""
    tree = ast.parse(path.read_text())
    imports = [
        (alias.asname or alias.name, node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    ]
    lines = ["# tff_hdp", "", "```text", ast.get_docstring(tree) or "", "```", ""]
    lines += [
        f"- `tff_hdp.{name}`: [{_home(module, own)}][]"
        for name, module, own in sorted(imports)
        if name != "environment"
    ]
    return "\n".join(lines) + "\n"


def _home(module: str, name: str) -> str:
    """The module that defines what a package hands on, followed to its end."""
    package = ROOT / module.replace(".", "/")
    if (package / f"{name}.py").exists():
        return f"{module}.{name}"
    if (package / "__init__.py").exists():
        for node in ast.walk(ast.parse((package / "__init__.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if name in (alias.asname, alias.name):
                        return _home(node.module, alias.name)
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if getattr(key, "value", None) == name:
                        home = str(value.value)
                        if (
                            not (ROOT / home.replace(".", "/"))
                            .with_suffix(".py")
                            .exists()
                        ):
                            home = f"{module}.{home}"
                        return _home(home, name)
    return f"{module}.{name}"


def _dotted(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).parts)
