"""What docs/attacks.md says the attacks reached: a CSV each, over seeds, and tables.

    python scripts/papers/attacks/reproduce.py --what=table4_mnist,lira --jobs=2

Runs scripts/attack.py for every row's settings (`commands`) and seed, each into a
folder of its own under --out, and leaves alone what is there already. It writes
docs/results/attacks/<part>.csv, where each row names its seed, its commit and a digest
of its settings, and the tables in docs/attacks.md and docs/hdp.md. A seed decides
weights, victims, starts and trials, but never the noise of rounds that are run.
"""

import pathlib
import sys

from absl import flags

from tff_hdp import cli


def define_flags() -> None:
    """Defines the program's flags."""
    from scripts.papers.attacks.commands import CSVS

    cli.define_choices("what", tuple(CSVS), tuple(CSVS))
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Every attack for each.")
    flags.DEFINE_integer("jobs", 1, "Attacks at a time.", lower_bound=1)
    flags.DEFINE_string("out", "runs/attacks", "Where the attacks' folders are.")
    flags.DEFINE_string("data_dir", None, "Folder with the data sets' files.")


def main() -> int:
    """Runs the attacks asked for and writes what they reached."""
    from scripts.papers import result_files, result_tables
    from scripts.papers.attacks import job, rows
    from scripts.parts.sweep_runs import run_jobs

    asked = flags.FLAGS
    seeds, folder = cli.check_seeds(asked.seeds), pathlib.Path(asked.out)
    own = {} if asked.data_dir is None else {"data_dir": asked.data_dir}
    jobs = {name: job.jobs_of(name, seeds, folder, **own) for name in asked.what}
    try:
        failed = run_jobs([one for each in jobs.values() for one in each], asked.jobs)
    finally:
        # Also where somebody lost patience.
        for name, each in jobs.items():
            if path := rows.write(name, each, result_files.RESULTS):
                print(path)
        for page in ("attacks.md", "hdp.md"):
            result_tables.embed(result_files.ROOT / "docs" / page)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
