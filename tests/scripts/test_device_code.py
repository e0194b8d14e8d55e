"""Code for other kinds of GPU is blanked out, and nothing else."""

import struct

import pytest

from scripts.parts.device_code import architecture, keep_for
from tff_hdp.errors import ArgumentError

PTX, ELF = 1, 2


def entry(kind, architecture, code):
    header = struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + bytes(12)
    return (header + struct.pack("<I", architecture)).ljust(64, b"\1") + code


def fat_binary(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


CODE = {
    (kind, architecture): bytes([kind, architecture]) * 50
    for kind in (PTX, ELF)
    for architecture in (70, 75, 80, 86, 90)
}


def kept_in(path):
    content = path.read_bytes()
    return {what for what, code in CODE.items() if code in content}


@pytest.mark.parametrize(
    ("held", "architecture", "kept"),
    [
        # Its own; the newest of its generation that is not newer; never a newer one.
        ([(ELF, 80), (ELF, 90), (PTX, 90)], 90, {(ELF, 90)}),
        ([(ELF, 75), (ELF, 80), (ELF, 86), (PTX, 80)], 89, {(ELF, 86)}),
        ([(ELF, 80), (ELF, 86), (PTX, 70)], 80, {(ELF, 80)}),
        # Machine code of another generation does not run; source does.
        ([(ELF, 75), (ELF, 80), (PTX, 70), (PTX, 80)], 90, {(PTX, 80)}),
        ([(ELF, 80), (PTX, 80), (PTX, 90)], 75, set()),
    ],
)
def test_what_the_driver_would_choose_stays(tmp_path, held, architecture, kept):
    library = tmp_path / "library.so"
    fat = fat_binary(*(entry(*what, CODE[what]) for what in held))
    other = fat_binary(entry(ELF, architecture, b"mine" * 20))
    library.write_bytes(b"before" + fat + b"between" + other + b"after")
    size = library.stat().st_size
    blanked = keep_for(library, architecture)
    assert kept_in(library) == kept
    assert blanked == 100 * (len(held) - len(kept))
    content = library.read_bytes()
    assert len(content) == size
    assert content.startswith(b"before") and content.endswith(b"mineafter")
    assert content.count(b"between") == 1
    assert keep_for(library, architecture) == blanked  # of zeros


def test_several_of_the_one_architecture_all_stay(tmp_path):
    library = tmp_path / "library.so"
    twice = [entry(ELF, 90, CODE[ELF, 90]), entry(ELF, 90, CODE[PTX, 70])]
    library.write_bytes(fat_binary(*twice, entry(ELF, 80, CODE[ELF, 80])))
    keep_for(library, 90)
    assert kept_in(library) == {(ELF, 90), (PTX, 70)}


@pytest.mark.parametrize("cut", [1, 30, 90])
def test_what_only_looks_like_code_is_left_alone(tmp_path, cut):
    library = tmp_path / "library.so"
    fat = fat_binary(entry(ELF, 80, CODE[ELF, 80]), entry(ELF, 90, CODE[ELF, 90]))
    for content in (fat[:-cut], fat[:16] + b"\0" * 64, fat[:24] + fat[40:]):
        library.write_bytes(content)
        assert keep_for(library, 90) == 0
        assert library.read_bytes() == content


def test_other_kinds_of_entries_are_left_alone(tmp_path):
    library = tmp_path / "library.so"
    library.write_bytes(fat_binary(entry(8, 80, b"unknown" * 9)))
    assert keep_for(library, 90) == 0


@pytest.mark.parametrize("capability", ["90", "9", "sm_90", "9.0a", ""])
def test_a_capability_is_two_numbers(capability):
    assert architecture("9.0") == 90
    with pytest.raises(ArgumentError, match=f"gpu is {capability}"):
        architecture(capability)
