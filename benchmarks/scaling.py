"""Work G: rounds of small cohorts out of very many registered clients."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import children
import rows

# Registered clients and the expected cohort.
CASES = ((100_000, 1_000), (1_000_000, 1_000), (1_000_000, 10_000))


def registered_clients(
    rounds: int, cases: Sequence[tuple[int, int]] = CASES
) -> list[rows.Row]:
    """Processor seconds a round of `programs.scale`, for each case.

    Raises:
      ProgramError: If a run fails.
    """
    result = []
    for registered, cohort in cases:
        found = _run(registered, cohort, rounds)
        row = rows.Row(
            work="G",
            runtime="in_process",
            program="stacked",
            privacy="hdp",
            clients=cohort,
            registered=registered,
            peak_rss_mb=found["peak_rss_mb"],
            notes=(
                f"{cohort:,} of {registered:,}: {found['first']:.1f} s up to the first "
                f"release, a round's sampling and data {found['prepared']:.2f} s, the "
                f"final account {found['account']:.2f} s, {found['mapped_mb']:.0f} MB "
                "of the peak are mapped examples"
            ),
            **rows.summary(found["rounds"]),
        )
        rows.print_row(row)
        result.append(row)
    return result


def _run(registered: int, cohort: int, rounds: int) -> dict:
    with tempfile.TemporaryDirectory(prefix="tff_hdp_bench_") as folder:
        numbers = map(str, (registered, cohort, rounds))
        command = [sys.executable, "-m", "programs.scale", *numbers, folder]
        done = subprocess.run(
            command, cwd=children.FOLDER, capture_output=True, text=True
        )
    if done.returncode:
        raise children.ProgramError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
