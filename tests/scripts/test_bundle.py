"""Pieces come together again, or not at all; the whole bundle trains (slow)."""

import os
import subprocess
import sys

import pytest

from scripts import bundle
from tff_hdp.errors import ArgumentError, FileError

PIECE = 50_000


@pytest.fixture
def packed(tmp_path):
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    content = os.urandom(3 * PIECE)
    (tree / "deep" / "er" / "noise").write_bytes(content)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    out = tmp_path / "out"
    return out, bundle.pack(tree, out, PIECE), content


def unpack(out, target):
    return subprocess.run(
        ["sh", out / "unpack.sh", target],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )


def test_pieces_are_small_and_come_together(packed, tmp_path):
    out, names, content = packed
    assert len(names) > 3
    sizes = [(out / name).stat().st_size for name in names]
    assert sizes[:-1] == [PIECE] * (len(names) - 1) and 0 < sizes[-1] <= PIECE
    assert unpack(out, tmp_path / "new").returncode == 0
    found = tmp_path / "new" / "tff_hdp"
    assert (found / "deep" / "er" / "noise").read_bytes() == content
    assert os.access(found / "run", os.X_OK)


@pytest.mark.parametrize("harm", ["flip", "cut", "lose"])
def test_a_harmed_piece_is_not_unpacked(packed, tmp_path, harm):
    out, names, _ = packed
    piece = out / names[1]
    data = bytearray(piece.read_bytes())
    if harm == "lose":
        piece.unlink()
    elif harm == "cut":
        piece.write_bytes(data[:-1])
    else:
        data[7] ^= 1
        piece.write_bytes(data)
    assert unpack(out, tmp_path / "new").returncode != 0
    assert not list((tmp_path / "new").iterdir())


def test_a_new_bundle_replaces_the_last_ones_files(packed, tmp_path):
    out, names, _ = packed
    (again,) = bundle.pack(tmp_path / "tree", out, 10 * PIECE)
    assert again == names[0]
    assert {path.name for path in out.iterdir()} == {again, "SHA256SUMS", "unpack.sh"}
    assert unpack(out, tmp_path / "new").returncode == 0


@pytest.mark.parametrize("name", ["thesis.txt", ".ssh", "tff_hdp.tar.gz.000/deep"])
def test_a_folder_of_anything_else_is_left_as_it_is(packed, tmp_path, name):
    out = tmp_path / "home"
    (out / name).parent.mkdir(parents=True)
    for path in (out / name, out / "unpack.sh"):
        path.write_text("mine")
    with pytest.raises(ArgumentError, match=f"out is {out}; allowed: a new folder"):
        bundle.pack(tmp_path / "tree", out, PIECE)
    with pytest.raises(ArgumentError, match="out is"):
        bundle.pack(tmp_path / "tree", out / "unpack.sh", PIECE)
    assert (out / name).read_text() == (out / "unpack.sh").read_text() == "mine"


def test_what_would_be_overwritten_is_refused_before_anything_is_built(
    tmp_path, monkeypatch, start_program
):
    (tmp_path / "thesis.txt").write_text("mine")
    # Building would end at once, as nothing can be asked of git.
    monkeypatch.setenv("PATH", "")
    result = start_program("scripts/bundle.py", f"--out={tmp_path}")
    assert result.returncode == 2 and f"--out is {tmp_path}" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_what_python_links_to_is_found_without_the_c_library():
    names = {p.name for p in bundle.linked_libraries([sys.executable])}
    assert not any(name.startswith(bundle.GLIBC) for name in names)
    ssl = {p.name for p in bundle.linked_libraries([_extension("_ssl")])}
    assert any(name.startswith("libcrypto") for name in ssl)


def _extension(name):
    return __import__(name).__file__


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_bundle_trains_where_there_is_nothing(tmp_path):
    subprocess.run(
        [sys.executable, bundle.__file__, f"--out={tmp_path / 'out'}", "--extras="],
        check=True,
    )
    assert unpack(tmp_path / "out", tmp_path / "new").returncode == 0
    result = subprocess.run(
        [
            *("env", "-i", "PATH=/usr/bin:/bin", tmp_path / "new/tff_hdp/run"),
            *("scripts/train.py", "--noise_multiplier=1", "--rounds=1"),
            f"--out={tmp_path / 'run'}",
        ],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "accuracy" in result.stdout
    loaded = subprocess.run(
        [tmp_path / "new/tff_hdp/run", "-c", "import tff_hdp; print(tff_hdp.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "new") in loaded.stdout
    # As benchmarks start theirs, with a path of their own.
    child = (
        "import os, subprocess, sys; subprocess.run([sys.executable, '-c', "
        "'import tff_hdp, scripts.bundle'], env=os.environ | {'PYTHONPATH': '/'}, "
        "check=True)"
    )
    subprocess.run([tmp_path / "new/tff_hdp/run", "-c", child], check=True)


def test_a_folder_that_is_no_clone_is_said_to_be_none(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(FileError, match="is no clone"):
        bundle.copy_project(tmp_path / "tree")
