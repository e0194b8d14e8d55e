"""The main of every training binary. Imports TensorFlow only once flags are right."""

import sys

from tff_hdp import cli
from tff_hdp.simulation.config import RunConfig


def run_binary(config_class: type[RunConfig]) -> None:
    """Defines the flags of a config, trains as they say, prints, and exits."""

    def main() -> int:
        _train(cli.config_from_flags(config_class))
        return 0

    cli.define_flags(config_class)
    sys.exit(cli.run(main))


def _train(config: RunConfig) -> None:
    """Runs one training and prints what came of it and who is promised what."""
    config.check_plan()
    from tff_hdp.privacy.table import account_text
    from tff_hdp.simulation import experiment

    try:
        result = experiment.run(config)
    except KeyboardInterrupt:
        print("the same command goes on from where the run is", file=sys.stderr)
        raise
    reached = result.metrics[result.headline]
    print(f"\n{result.headline} {reached:.4g} after {config.rounds} rounds")
    if result.summary:
        print(result.summary)
    if result.accounts:
        print(account_text([row.to_dict() for row in result.accounts]))
    else:
        print("no noise: no observer is promised anything")
    print("\n".join(["", *result.notes, ""]))
    print(f"run folder: {result.path}")
