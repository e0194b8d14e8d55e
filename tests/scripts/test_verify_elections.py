"""What verify_elections.py asks of a run before it says that anything verifies."""

import json

from tff_hdp.simulation.journal import Journal


def test_a_run_without_its_journal_needs_the_number_of_rounds(run_program, tmp_path):
    """Else the last transcripts could be deleted with it, and what is left verifies."""
    (tmp_path / "elections").mkdir()
    (tmp_path / "elections" / "registry.json").write_text("{}")
    done = run_program("scripts/verify_elections.py", f"--run={tmp_path}")
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert "journal.jsonl, or --rounds" in line


def test_a_journal_that_privacy_json_says_was_longer_is_refused(run_program, tmp_path):
    """As where its end was cut off together with the last transcripts."""
    (tmp_path / "elections").mkdir()
    (tmp_path / "elections" / "registry.json").write_text("{}")
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({"resolved": {}})
    for number in (1, 2):
        journal.announce(journal.entry(number, {"format": 3, "history": []}))
    stated = [journal.releases, journal.head(journal.releases)]
    (tmp_path / "privacy.json").write_text(json.dumps({"journal": stated}))
    lines = journal.path.read_text().splitlines(keepends=True)
    journal.path.write_text("".join(lines[:-1]))
    done = run_program("scripts/verify_elections.py", f"--run={tmp_path}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is not the journal that privacy.json was written with" in line
