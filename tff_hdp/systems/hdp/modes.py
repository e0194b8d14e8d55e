"""The paper's comparison: none, CDP, HDP and LDP on one task (HDP, Figure 2).

Or none and the noise of a plan.
"""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Sequence

import tasks
from tff_hdp.simulation import experiment, report
from tff_hdp.systems.hdp.config import HdpConfig

_LOG = logging.getLogger(__name__)
MODES = ("none", "cdp", "hdp", "ldp")
PLANNED = ("none", "plan")


def compare(config: HdpConfig, modes: Sequence[str] | None = None) -> list[report.Run]:
    """Runs every mode with the same settings, then writes table and figure.

    All modes share one partition over clients and zones, data and evaluation.

    Args:
      config: The settings of the noisy modes; `out` is the folder that gets one
        run folder a mode, table.csv, table.txt and accuracy.png. Calling again
        resumes.
      modes: Values of `privacy`, or `plan`; None takes `PLANNED` where the settings
        have a plan, else `MODES`.

    Returns:
      One finished run a mode.
    """
    folder = pathlib.Path(config.out)
    runs, partition_seed = [], None
    modes = modes or (PLANNED if config.plan is not None else MODES)
    with tasks.kept():
        # Settings of noise may be refused: before the others have trained.
        for mode in reversed(modes):
            changes: dict[str, object] = {"out": str(folder / mode)}
            if mode != "plan":
                changes |= {"privacy": mode, "plan": None}
            if mode == "none":
                changes |= {"noise_multiplier": None, "target_epsilon": None}
                changes["target_observer"] = HdpConfig.target_observer
            if not config.quiet:
                _LOG.info("training %s", mode)
            result = experiment.run(
                dataclasses.replace(config, **changes), partition_seed
            )
            record = json.loads((result.path / "config.json").read_text())
            partition_seed = record["resolved"]["partition_seed"]
            runs.insert(0, report.read_run(result.path))
    report.write_comparison(runs, folder)
    return runs
