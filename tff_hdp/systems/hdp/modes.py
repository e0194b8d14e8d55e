"""The paper's comparison: none, CDP, HDP and LDP on one task (HDP, Figure 2).

Or none and the noise of a plan.
"""

import dataclasses
import logging
import pathlib
from collections.abc import Sequence

import tasks
from tff_hdp.errors import require
from tff_hdp.simulation import experiment, report
from tff_hdp.simulation.journal import Journal
from tff_hdp.systems.hdp.config import HdpConfig

_LOG = logging.getLogger(__name__)
MODES = ("none", "cdp", "hdp", "ldp")
PLANNED = ("none", "plan")


def compare(config: HdpConfig, modes: Sequence[str] | None = None) -> list[report.Run]:
    """Runs every mode with the same settings, then writes table and figure.

    All modes share one partition over clients and zones, data and evaluation, also
    with those that `modes` leaves out and whose runs are there already.

    Args:
      config: The settings of the noisy modes; `out` is the folder that gets one
        run folder a mode, table.csv, table.txt and accuracy.png. Calling again
        resumes.
      modes: Values of `privacy`, or `plan`; None takes `PLANNED` where the settings
        have a plan, else `MODES`.

    Returns:
      One finished run a mode.

    Raises:
      ArgumentError: If a mode's settings are refused, or run folders that are there
        already are of other partitions than one.
      FileError: If a run's journal is damaged.
    """
    folder = pathlib.Path(config.out)
    modes = modes or (PLANNED if config.plan is not None else MODES)
    configs = {mode: _of_mode(config, mode) for mode in modes}
    partition_seed = _partition_of(folder)
    with tasks.kept():
        # Settings of noise may be refused: CDP's soonest, and before others trained.
        for mode in sorted(modes, key=lambda mode: mode == "none"):
            if not config.quiet:
                _LOG.info("training %s", mode)
            experiment.run(configs[mode], partition_seed)
            partition_seed = _partition_of(folder)
    runs = [report.read_run(folder / mode) for mode in modes]
    report.write_comparison(runs, folder)
    return runs


def _of_mode(config: HdpConfig, mode: str) -> HdpConfig:
    """The settings of a mode's run."""
    changes: dict[str, object] = {"out": str(pathlib.Path(config.out) / mode)}
    if mode != "plan":
        changes |= {"privacy": mode, "plan": None}
    if mode == "none":
        changes |= {"noise_multiplier": None, "target_epsilon": None}
        changes |= {"noising_levels": (), "target_observer": HdpConfig.target_observer}
    return dataclasses.replace(config, **changes)


def _partition_of(folder: pathlib.Path) -> int | None:
    """What the runs in a folder were dealt by, of any mode; None before there is any.

    Raises:
      ArgumentError: If not all by the same.
      FileError: If a run's journal is damaged.
    """
    found = {}
    for mode in dict.fromkeys((*MODES, *PLANNED)):
        # What binds a run is in its journal, whatever became of its config.json.
        began = Journal(folder / mode / "journal.jsonl").began or {}
        resolved = began.get("resolved", {})
        if "partition_seed" in resolved:
            found[mode] = resolved["partition_seed"]
    seeds = set(found.values())
    allowed = f"a folder of runs of one partition; here seeds are {found}"
    require(len(seeds) <= 1, "out", folder, allowed)
    return seeds.pop() if seeds else None
