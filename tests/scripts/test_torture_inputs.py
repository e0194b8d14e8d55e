"""Files, messages and flags that were mutated are refused in a line, or sound."""

import pytest

from scripts import torture_inputs
from scripts.parts import torture_files, torture_flags, torture_messages

FUZZ = {
    "files": torture_files.fuzz_files,
    "messages": torture_messages.fuzz_messages,
    "flags": torture_flags.fuzz_flags,
}


@pytest.mark.parametrize(
    ("fuzz", "count"),
    [
        ("files", 1400),
        ("messages", 200),
        ("flags", 900),
        *(
            pytest.param(what, 100_000, marks=pytest.mark.slow)
            for what in ("files", "messages", "flags")
        ),
    ],
)
def test_nothing_crashes(fuzz, count):
    counts = FUZZ[fuzz](count, seed=2)
    assert not [what for outcome, what in counts if outcome == "crashed"]
    assert sum(counts.values()) == count
    assert {outcome for outcome, _ in counts} == {"refused", "accepted"}


def test_a_crash_is_shown_and_counted(monkeypatch):
    def wrong(path, *, client_ids):
        raise KeyError("z" * 300)

    monkeypatch.setattr(torture_files, "load_zones", wrong)
    counts = torture_files.fuzz_files(16, seed=0)
    shown = torture_inputs.table(counts).splitlines()
    assert shown[1].split() == ["zones.csv", "0", "0", "2"]
    assert shown[-2].startswith("zones.csv: KeyError: ")
