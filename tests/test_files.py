"""Files are replaced whole; what is no file, or leads to one, stays what it is."""

import concurrent.futures
import os
import pathlib
import resource
import threading

import numpy as np
import pytest
from matplotlib.figure import Figure

from tff_hdp.errors import FileError
from tff_hdp.files import (
    alone_in,
    read_arrays,
    write_arrays,
    write_figure,
    write_text,
)


def test_a_file_is_replaced_and_the_old_one_stays_whole_for_its_readers(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    with path.open() as reader:
        write_text(path, "new and longer")
        assert reader.read() == "old"
    assert path.read_text() == "new and longer"
    assert list(tmp_path.iterdir()) == [path]


def test_behind_a_link_the_target_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with target.open() as reader:
        write_text(link, "new")
        assert reader.read() == "old"
    assert link.is_symlink() and target.read_text() == "new"
    missing = tmp_path / "missing"
    missing.symlink_to(tmp_path / "folder" / "made")
    write_text(missing, "made")
    assert missing.is_symlink() and (tmp_path / "folder" / "made").is_file()


def test_a_pipe_stays_one(tmp_path):
    """A regular file took its place; so it would have taken /dev/null's."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "through")
    reader.join(timeout=10)
    assert read == ["through"] and pipe.is_fifo()


def test_what_stdout_leads_to_is_written_to(tmp_path):
    """/dev/stdout is such a link; a file there was replaced under whoever writes on."""
    with (tmp_path / "out").open("w+") as out:
        descriptor = pathlib.Path(f"/proc/self/fd/{out.fileno()}")
        write_text(descriptor, "first\n")
        out.seek(0, os.SEEK_END)
        out.write("then")
    assert (tmp_path / "out").read_text() == "first\nthen"


def test_whatever_bit_of_arrays_is_wrong_they_are_refused_or_as_they_were(tmp_path):
    """Of the file's directory many ended in errors of the zip reader's."""
    path, array = tmp_path / "arrays.npz", np.arange(3.0)
    write_arrays(path, array=array)
    whole, refused = path.read_bytes(), 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            (found,) = read_arrays(path, "array")
        except FileError as error:
            assert str(error).startswith(f"{path}: is damaged")
            refused += 1
        else:
            np.testing.assert_array_equal(found, array)
    assert refused > len(whole)
    with path.open("wb") as file:
        np.save(file, array)  # one array alone
    with pytest.raises(FileError, match=r"or no \.npz of array"):
        read_arrays(path, "array")


def test_arrays_that_are_not_there_are_an_operating_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "missing.npz")
    with pytest.raises(IsADirectoryError):
        read_arrays(tmp_path)


def test_a_file_that_is_taken_away_while_it_is_written_is_an_error(tmp_path):
    path, replace = tmp_path / "file", pathlib.Path.replace

    def taken_away(self, target):
        self.unlink()
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pathlib.Path, "replace", taken_away)
        with pytest.raises(FileNotFoundError):
            write_text(path, "text")
    write_text(path, "text")
    assert path.read_text() == "text"


@pytest.mark.parametrize("kind", ["text", "picture"])
def test_on_a_full_disk_the_old_file_stays_and_the_error_names_it(tmp_path, kind):
    path = tmp_path / "file.png"
    path.write_bytes(b"old")
    figure = Figure()
    figure.subplots().plot([1, 3, 2])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"large.*file\.png"):
            if kind == "text":
                write_text(path, "x" * 2000)
            else:
                write_figure(path, figure)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    write_figure(path, figure)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_a_picture_is_of_the_format_that_its_name_says(tmp_path, suffix):
    begins = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    path = tmp_path / f"figure.{suffix}"
    write_figure(path, Figure())
    assert path.read_bytes().startswith(begins[suffix])


def test_who_has_a_folder_alone_is_waited_for(tmp_path):
    entered = threading.Event()

    def enter():
        with alone_in(tmp_path):
            entered.set()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        with alone_in(tmp_path):
            thread.submit(enter)
            assert not entered.wait(0.2)
        assert entered.wait(10)


def test_several_writers_at_once_leave_one_of_theirs(tmp_path):
    """They had one name for what was not finished, and wrote into each other's."""
    path = tmp_path / "shared.csv"
    contents = [letter * 200_000 for letter in "abcd"]

    def write(content):
        for _ in range(50):
            write_text(path, content)
            assert path.read_text() in contents

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(write, contents))
    assert [each.name for each in tmp_path.iterdir()] == ["shared.csv"]
