"""A journal keeps every line it was given, or says that it does not."""

import pytest

from tff_hdp.errors import FileError
from tff_hdp.privacy import Ledger, PoissonSampling, configurations
from tff_hdp.simulation.journal import Journal

BEGAN = {"layout": 3, "resolved": {"noise_multiplier": 0.75}}


def ledger(*noise_multipliers):
    found = Ledger()
    for z in noise_multipliers:
        plan = configurations.c4(
            zone_sizes=(8,), sampling=PoissonSampling((0.5,)), noise_multiplier=z
        )
        found.record(plan)
    return found


def write(path, noise_multipliers):
    journal = Journal(path)
    journal.begin(BEGAN)
    for number, z in enumerate(noise_multipliers, start=1):
        journal.announce(journal.entry(number, ledger(z).state_dict()))
    return journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


@pytest.mark.parametrize(
    "ran", [[], [1.0], [1.0, 1.0, 2.0], [1.0, 2.0, 1.0, 1.0], [3.0] * 7]
)
def test_all_that_was_announced_is_recalled(path, ran):
    write(path, ran)
    again = Journal(path)
    found = Ledger()
    again.recall(found)
    assert found == ledger(*ran)
    assert again.releases == len(ran)
    assert again.began == BEGAN


def test_one_journal_goes_on_with_another(path):
    write(path, [1.0, 1.0])
    again = Journal(path)
    again.begin({"layout": 4})
    again.announce(again.entry(2, ledger(1.0).state_dict()))
    third = Journal(path)
    found = Ledger()
    third.recall(found)
    assert found == ledger(1.0, 1.0, 1.0)
    assert third.began == BEGAN
    # A round like the one before takes a short line.
    assert len(path.read_bytes().splitlines()[-1]) < 60


def test_every_change_of_a_byte_is_seen(path):
    write(path, [1.0, 1.0, 2.0, 2.0])
    whole = path.read_bytes()
    for position in range(0, len(whole) - 1, 7):
        changed = bytearray(whole)
        changed[position] ^= 4
        path.write_bytes(changed)
        with pytest.raises(FileError, match="is not as the run wrote it") as error:
            Journal(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", range(4))
def test_a_line_taken_out_is_seen(path, line):
    write(path, [1.0, 1.0, 2.0, 2.0])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(FileError, match=f"line {line + 1} is not"):
        Journal(path)


def test_a_half_written_last_line_was_never_announced(path):
    """It is cut off before the next, wherever writing stopped."""
    write(path, [1.0])
    before = path.read_bytes()
    entry = Journal(path).entry(2, ledger(1.0).state_dict())
    Journal(path).announce(entry)
    whole = path.read_bytes()
    for end in range(len(before), len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        assert journal.releases == 1
        journal.announce(entry)
        assert path.read_bytes() == whole


def test_heads_tell_journals_apart(path, tmp_path):
    first = write(path, [1.0, 1.0])
    other = write(tmp_path / "other", [1.0, 2.0])
    assert first.head(0) == other.head(0)
    assert first.head(1) == other.head(1)
    assert first.head(2) != other.head(2)
    assert first.head(3) is None
