"""Tables 1 and 2 of the FL-TOP paper and its Figure 1: one run a row and seed.

    python scripts/papers/fl_top/reproduce.py --what=table2
    python scripts/papers/fl_top/reproduce.py --what=table1 --scale=reduced

Runs, or resumes, the presets scripts/papers/fl_top/*.flags with every scheme and ratio:
a run folder a row and seed under --out, docs/results/fl_top/<part>.csv with a row a
run, its table in docs/fl_top.md and its pictures in docs/figures. --schemes and
--ratios choose what is run; what was run before stays in the CSV. `sweep` tries steps
and clip norms on public data alone, and `table1_own` takes each scheme's own; `fl_cs`
measures the coefficients that are largest on public data beside random ones; `masked`
runs FL-TOP-DP under the masking protocol. Takes every flag of scripts/fl_top.py but
those by which a part's rows differ; it then counts for all, and results stay in --out.
"""

import itertools
import sys
from collections.abc import Mapping
from typing import Any

from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, require
from tff_hdp.systems.fl_top.config import FlTopConfig

PARTS = (
    *("table2", "table2_digit", "table1"),
    *("sweep", "table1_own", "fl_cs", "masked"),
)
DEFAULT = ("table2", "table1")
ALL = FlTopConfig.choices["scheme"]


def define_flags() -> None:
    """Defines the program's flags."""
    cli.define_choices("schemes", ALL, ALL)
    flags.DEFINE_list(
        "ratios",
        None,
        "Which r to run, for all schemes but FL-STD; default: the paper's.",
    )
    from scripts.papers import program

    program.define_flags(PARTS, FlTopConfig, default=DEFAULT)


def main() -> int:
    """Runs the parts asked for."""
    parts = flags.FLAGS.what
    both = {"sweep", "table1_own"} <= {*parts}
    require(not both, "what", parts, "sweep, and table1_own after it has run")
    from scripts.papers import presets, program

    given = presets.given(FlTopConfig)
    for name in {"scheme", "ratio"} & given.keys():
        raise ArgumentError(name, given[name], f"--{name}s, for all rows")
    asked = ratios()
    from scripts.papers.fl_top import figures, trained
    from tff_hdp.systems.fl_top.results import name_of

    swept = trained.SWEPT_RATIOS
    if "sweep" in parts and not {*asked} <= {*swept}:
        allowed = f"{', '.join(f'{r:g}' for r in swept)} with what=sweep"
        raise ArgumentError("ratios", asked, allowed)
    names = {name_of(scheme) for scheme in flags.FLAGS.schemes}
    results = program.results_folder(given, "fl_top")
    # Others that the CSV has stay there, and are not run again.
    chosen = {1.0, *(asked or itertools.chain(*trained.PRINTED.values()))}

    def wanted(label: Mapping[str, Any]) -> bool:
        of_ratio = float(label["r"]) in chosen if "r" in label else not asked
        return label["scheme"] in names and of_ratio

    return program.run(
        *(parts, FlTopConfig),
        paper="fl_top",
        page="fl_top.md",
        studies=lambda scale: trained.studies(scale, parts, asked, results),
        draw=figures.draw,
        wanted=wanted,
    )


def ratios() -> tuple[float, ...]:
    """The ratios asked for; none for the paper's."""
    # Rows and run folders are told apart by three.
    allowed = "numbers in (0, 1] of three significant digits at most"
    try:
        found = tuple(float(ratio) for ratio in flags.FLAGS.ratios or ())
    except ValueError as error:
        raise ArgumentError("ratios", flags.FLAGS.ratios, allowed) from error
    ok = all(0.0 < ratio <= 1.0 and float(f"{ratio:.3g}") == ratio for ratio in found)
    require(ok, "ratios", flags.FLAGS.ratios, allowed)
    return found


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
