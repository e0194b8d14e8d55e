"""What verify_elections.py asks of a run before it says that anything verifies."""


def test_a_run_without_its_journal_needs_the_number_of_rounds(run_program, tmp_path):
    """Else the last transcripts could be deleted with it, and what is left verifies."""
    (tmp_path / "elections").mkdir()
    (tmp_path / "elections" / "registry.json").write_text("{}")
    done = run_program("scripts/verify_elections.py", f"--run={tmp_path}")
    assert done.returncode == 2
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert "journal.jsonl, or --rounds" in line
