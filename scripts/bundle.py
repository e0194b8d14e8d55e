"""Packs interpreter, locked wheels and this project for machines without network.

    make bundle                       # dist/bundle/tff_hdp.tar.gz.000, .001, ...
    sh unpack.sh FOLDER               # on the other machine, beside the pieces
    FOLDER/tff_hdp/run scripts/train.py --noise_multiplier=1 --rounds=1 --out=runs/first

The other machine needs Linux on x86-64, a C library no older than this machine's, a
shell, tar and gzip; no Python, no compiler, no root. Pieces have checksums, and are
small enough to be carried one by one. For one kind of GPU alone they are fewer:

    python scripts/bundle.py --gpu=9.0 --extras=gpu,dev     # with what tests need
"""

import glob
import gzip
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import FileError, require

ROOT = pathlib.Path(__file__).parents[1]
NAME = "tff_hdp"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Of the C library: these belong to the kernel and loader of the machine they run on.
GLIBC = ("ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.")
# Parts of the standard library that nothing here imports.
WITHOUT = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3")
UNUSED = (
    # What only compiling against a package needs.
    *("tensorflow/include", "nvidia/*/include", "pyarrow/include", "**/*.a"),
    # Packages' own tests, and a compiler's bindings that TensorFlow only names.
    *("pandas/tests", "sklearn/**/tests", "scipy/**/tests", "numpy/**/tests", "clang"),
    "nvidia/nccl",  # collectives across GPUs
    "**/__pycache__",
)
# The names of what it writes.
OWN = re.compile(rf"{NAME}\.tar\.gz\.\d{{3,}}|SHA256SUMS|unpack\.sh")
LAUNCHER = """#!/bin/sh
# Runs the bundled Python in the project's folder, with nothing from outside.
here=$(cd "$(dirname "$0")" && pwd)
libraries=$here/python/lib
for folder in "$here"/python/lib/{python}/site-packages/nvidia/*/lib; do
  libraries=$libraries:$folder
done
export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PYTHONHOME="$here/python" PYTHONNOUSERSITE=1
unset PYTHONPATH
cd "$here/project" && exec "$here/python/bin/{python}" "$@"
"""
UNPACK = """#!/bin/sh
# sh unpack.sh FOLDER: checks the pieces beside this file and unpacks them there.
set -eu
[ $# -eq 1 ] || { echo "usage: sh unpack.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
if command -v sha256sum >/dev/null; then
  sha256sum --check --quiet SHA256SUMS
else
  echo "unpack.sh: no sha256sum here; the pieces are not checked" >&2
fi
cut -c67- SHA256SUMS | while read -r piece; do cat "$piece"; done |
  tar -xzf - -C "$folder"
echo "unpacked; try:"
echo "  $folder/tff_hdp/run scripts/train.py --noise_multiplier=1 --rounds=1"
"""


def copy_interpreter(tree: pathlib.Path) -> None:
    """Copies the running Python, its standard library, and what those link to.

    Args:
      tree: Of the bundle; gets `python/`.
    """
    base = pathlib.Path(sys.base_prefix)
    (tree / "python" / "bin").mkdir(parents=True)
    library = tree / "python" / "lib"
    executable = pathlib.Path(sys._base_executable).resolve()
    shutil.copy2(executable, tree / "python" / "bin" / PYTHON)
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        library / PYTHON,
        ignore=shutil.ignore_patterns(
            *WITHOUT, "site-packages", "dist-packages", "config-*", "__pycache__"
        ),
    )
    for extension in (library / PYTHON / "lib-dynload").glob("_tkinter*"):
        extension.unlink()
    for shared in base.glob("lib/libpython3*.so*"):
        shutil.copy2(shared, library, follow_symlinks=True)
    extensions = (library / PYTHON / "lib-dynload").glob("*.so")
    for path in linked_libraries([executable, *extensions]):
        if not (library / path.name).exists():
            shutil.copy2(path, library / path.name)


def linked_libraries(files: Iterable[pathlib.Path]) -> set[pathlib.Path]:
    """Shared libraries that files need, but for those of the C library."""
    found = set()
    for file in files:
        result = subprocess.run(["ldd", file], capture_output=True, text=True)
        for line in result.stdout.splitlines():
            _, arrow, place = line.partition("=>")
            path = pathlib.Path(place.split("(")[0].strip()) if arrow else None
            if path and path.is_absolute() and not path.name.startswith(GLIBC):
                found.add(path)
    return found


def install_packages(tree: pathlib.Path, extras: Iterable[str]) -> None:
    """Installs the locked wheels into the bundled Python, and drops what is unused."""
    uv = pathlib.Path(sys.prefix) / "bin" / "uv"
    asked = [word for extra in extras for word in ("--extra", extra)]
    listed = subprocess.run(
        [uv, "export", "--frozen", "--quiet", "--no-emit-project", *asked],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    target = tree / "python" / "lib" / PYTHON / "site-packages"
    where = ["--python", sys.executable, "--target", target, "--link-mode=copy"]
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", *where, "--requirements", "-"],
        input=listed,
        check=True,
    )
    # A path of programs' own, as benchmarks give theirs, does not hide the project.
    (target / f"{NAME}.pth").write_text("../../../../project\n")
    for pattern in UNUSED:
        for place in glob.glob(pattern, root_dir=target, recursive=True):
            path = target / place
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def copy_project(tree: pathlib.Path) -> None:
    """Copies what git tracks, or would, into `project/`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        raise FileError(ROOT, "is no clone, of which git knows the files") from error
    for name in filter(None, found.stdout.decode().split("\0")):
        target = tree / "project" / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


def files_of_bundle(out: pathlib.Path) -> list[pathlib.Path]:
    """The files of an earlier bundle, in whose place the next one comes.

    Args:
      out: The folder; it need not be there.

    Raises:
      ArgumentError: If it holds anything else, or is no folder.
    """
    if not out.exists():
        return []
    found = list(out.iterdir()) if out.is_dir() else []
    own = all(path.is_file() and OWN.fullmatch(path.name) for path in found)
    require(out.is_dir() and own, "out", out, "a new folder, or one of a bundle alone")
    return found


def pack(tree: pathlib.Path, out: pathlib.Path, piece_bytes: int) -> list[str]:
    """Writes a folder as pieces of one archive, with checksums and `unpack.sh`.

    Args:
      tree: What to pack, under the name `tff_hdp`.
      out: Where to; see `files_of_bundle`.
      piece_bytes: A piece's size at most.

    Returns:
      The pieces' names in order.
    """
    for path in files_of_bundle(out):
        path.unlink()
    out.mkdir(parents=True, exist_ok=True)
    pieces = Pieces(out, piece_bytes)
    with (
        gzip.GzipFile(fileobj=pieces, mode="wb", compresslevel=4) as stream,
        tarfile.open(fileobj=stream, mode="w|", bufsize=2**20) as archive,
    ):
        archive.add(tree, NAME)
    sums = dict(pieces.finish())
    lines = (f"{digest}  {name}\n" for name, digest in sums.items())
    (out / "SHA256SUMS").write_text("".join(lines))
    (out / "unpack.sh").write_text(UNPACK)
    return list(sums)


class Pieces:
    """A stream that is written into files of bounded size.

    Args:
      folder: Where the files go.
      piece_bytes: A file's size at most.
    """

    def __init__(self, folder: pathlib.Path, piece_bytes: int) -> None:
        self._folder = folder
        self._piece_bytes = piece_bytes
        self._waiting = bytearray()
        self._sums: list[tuple[str, str]] = []

    def write(self, data: bytes) -> int:
        """Takes the next bytes."""
        self._waiting += data
        while len(self._waiting) >= self._piece_bytes:
            self._put(bytes(self._waiting[: self._piece_bytes]))
            del self._waiting[: self._piece_bytes]
        return len(data)

    def finish(self) -> Iterator[tuple[str, str]]:
        """Writes what is left; every file's name and SHA-256."""
        if self._waiting:
            self._put(bytes(self._waiting))
            self._waiting.clear()
        return iter(self._sums)

    def _put(self, data: bytes) -> None:
        name = f"{NAME}.tar.gz.{len(self._sums):03d}"
        (self._folder / name).write_bytes(data)
        self._sums.append((name, hashlib.sha256(data).hexdigest()))


def main() -> int:
    """Builds the tree, packs it, and says what came of it."""
    from scripts.parts import device_code

    out, piece_mb = pathlib.Path(flags.FLAGS.out), flags.FLAGS.piece_mb
    gpu = None if flags.FLAGS.gpu is None else device_code.architecture(flags.FLAGS.gpu)
    files_of_bundle(out)
    tree = ROOT / "build" / "bundle"
    shutil.rmtree(tree, ignore_errors=True)
    copy_project(tree)
    copy_interpreter(tree)
    install_packages(tree, flags.FLAGS.extras)
    if gpu is not None:
        packages = tree / "python" / "lib" / PYTHON / "site-packages"
        device_code.keep_one_gpu(packages, gpu)
    launcher = tree / "run"
    launcher.write_text(LAUNCHER.format(python=PYTHON))
    launcher.chmod(0o755)
    names = pack(tree, out, piece_mb * 2**20)
    size = sum((out / name).stat().st_size for name in names)
    print(f"{len(names)} pieces, {size / 2**20:,.0f} MB, in {out}")
    return 0


if __name__ == "__main__":
    flags.DEFINE_string("out", str(ROOT / "dist" / "bundle"), "Where the pieces go.")
    flags.DEFINE_integer(
        "piece_mb", 60, "Size of a piece at most, MB (2^20 bytes).", lower_bound=1
    )
    flags.DEFINE_list("extras", ["gpu"], "Extras of setup.py that come along.")
    flags.DEFINE_string("gpu", None, "Compute capability of the only GPU to pack for.")
    sys.exit(cli.run(main))
