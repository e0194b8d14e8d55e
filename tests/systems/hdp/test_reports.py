"""Reports of a run whose files somebody else wrote to."""

import json

import pandas as pd
import pytest

from scripts import report as program
from tff_hdp.errors import FileError
from tff_hdp.simulation import experiment, report
from tff_hdp.simulation.journal import Journal


def test_a_report_refuses_a_run_that_privacy_json_does_not_cover(copied):
    frame = pd.read_csv(copied / "metrics.csv")
    extra = frame.iloc[-1:].assign(round=4)
    pd.concat([frame, extra]).to_csv(copied / "metrics.csv", index=False)
    with pytest.raises(
        FileNotFoundError, match=r"ends at round 4 of 3, privacy.json at 3"
    ):
        report.read_run(copied)


def test_a_report_refuses_a_privacy_json_older_than_the_journal(copied):
    """Put back from a copy, it stated fewer releases than there were."""
    journal = Journal(copied / "journal.jsonl")
    stated = json.loads((copied / "privacy.json").read_text())
    older = {"journal": [2, journal.head(2)]}
    (copied / "privacy.json").write_text(json.dumps(stated | older))
    with pytest.raises(FileError, match="not of the 3 rounds that the journal says"):
        report.read_run(copied)
    (copied / "journal.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"no journal\.jsonl"):
        report.read_run(copied)


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        *(
            (name, None, "{}")
            for name in ("privacy.json", "config.json", "metrics.csv")
        ),
        ("metrics.csv", "\n3,", "\ninf,"),
        ("metrics.csv", "\n3,", "\n3.5,"),
        ("metrics.csv", "\n2,", "\n3,"),
        ("privacy.json", '"notes": [', '"notes": null, "and": ['),
        ("config.json", '"flags": {', '"flags": [], "and": {'),
        ("config.json", '"resolved": {', '"resolved": [], "and": {'),
    ],
)
def test_a_report_of_a_damaged_run_is_one_line(copied, name, before, now):
    held = (copied / name).read_text()
    if before is not None:
        assert held.count(before) == 1
    (copied / name).write_text(held.replace(before or held, now))
    with pytest.raises(FileError, match="holds no run that can be read") as error:
        report.read_run(copied)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "where", "value"),
    [
        ("privacy.json", ("accounts", -2, "epsilon_pld"), 0.01),
        ("privacy.json", ("accounts", 0, "epsilon_rdp"), 0.01),
        ("privacy.json", ("accounts", -2, "delta"), 1e-12),
        ("privacy.json", ("accounts", -2, "noise_multiplier"), {}),
        ("privacy.json", ("accounts", -2, "sampling"), "none"),
        ("config.json", ("flags", "delta"), 1e-12),
        ("config.json", ("flags", "clients_per_round"), None),
        ("config.json", ("flags", "clip_norm"), 0.001),
        ("config.json", ("flags", "noise_multiplier"), 50.0),
        ("config.json", ("resolved", "task"), "Source: elsewhere."),
        ("privacy.json", ("notes",), ["All is well."]),
        ("privacy.json", ("rounds",), 99),
    ],
)
def test_a_report_believes_no_epsilon_that_an_editor_wrote(copied, name, where, value):
    """It printed what privacy.json said, beside the delta that config.json said."""
    content = json.loads((copied / name).read_text())
    part = content
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    (copied / name).write_text(json.dumps(content))
    for of_a_run in (program.read, program.page):
        with pytest.raises(FileError) as caught:
            of_a_run(copied)
        assert "\n" not in str(caught.value)


def test_what_a_report_says_to_do_about_a_note_that_is_gone_helps(hdp_config, copied):
    content = json.loads((copied / "privacy.json").read_text())
    (copied / "privacy.json").write_text(json.dumps(content | {"notes": []}))
    with pytest.raises(FileError, match=r"seed=.* fixes; run the same command again"):
        program.read(copied)
    experiment.run(hdp_config(copied))
    program.read(copied)


def test_a_report_draws_the_rounds_of_the_journal(copied):
    """A page drew epsilon over the ledger that privacy.json holds."""
    before = program.page(copied)
    content = json.loads((copied / "privacy.json").read_text())
    for entry in content["ledger"]["history"]:
        entry["plan"]["zone_noise_multipliers"] = [100.0, 100.0]
    (copied / "privacy.json").write_text(json.dumps(content))
    assert program.page(copied) == before
