"""Trains one model with noise at any level of the hierarchy.

    python scripts/train.py --task=digits --privacy=hdp --noise_multiplier=0.5
    python scripts/train.py --flagfile=scripts/flags/mnist_hdp.flags

Leaves metrics.csv, privacy.json, checkpoints and a figure in --out; the same
command again resumes a run that was cut short.
"""

import dataclasses
import sys

from absl import flags

import tasks
from tff_hdp import cli
from tff_hdp.runtime import RUNTIMES
from tff_hdp.simulation import config as settings

DEFAULTS = settings.TrainConfig(noise_multiplier=1.0)


def define_flags() -> None:
    """Defines one flag for every field of `TrainConfig`."""
    d = DEFAULTS
    enum, string = flags.DEFINE_enum, flags.DEFINE_string
    integer, number = flags.DEFINE_integer, flags.DEFINE_float
    enum("task", d.task, list(tasks.TASKS), "Data set.")
    string("model", d.model, "One of the task's models; default: its first.")
    enum("privacy", d.privacy, list(settings.PRIVACY), "Who adds noise (Table I).")
    number("alpha", d.alpha, "Share alpha of Table I, for c5 and c7.")
    number("beta", d.beta, "Share beta of Table I, for c3, c6 and c7.")
    integer("zones", d.zones, "Zones s.")
    integer("num_clients", d.num_clients, "Clients n; default: the task's own.")
    string("partition", d.partition, "How examples are dealt; default: the task's own.")
    number("dirichlet_alpha", d.dirichlet_alpha, "For --partition=dirichlet.")
    number("clients_per_round", d.clients_per_round, "Expected cohort k; q = k/n.")
    enum("sampling", d.sampling, list(settings.SAMPLING), "Poisson, or exactly k_i.")
    integer("rounds", d.rounds, "Rounds T.")
    enum("algorithm", d.algorithm, list(settings.ALGORITHMS), "Client work.")
    integer("local_epochs", None, "Local epochs; default 5, or 1 with fedsgd.")
    integer("batch_size", d.batch_size, "Examples a batch.")
    optimizers = list(settings.OPTIMIZERS)
    enum("client_optimizer", d.client_optimizer, optimizers, "Client optimizer.")
    number("client_learning_rate", d.client_learning_rate, "Client learning rate.")
    enum("server_optimizer", d.server_optimizer, optimizers, "Server optimizer.")
    number("server_learning_rate", d.server_learning_rate, "Server learning rate.")
    enum("clipping", d.clipping, list(settings.CLIPPING), "What S bounds.")
    string("clip_norm", str(d.clip_norm), "S, or auto: a pilot's mean update norm.")
    integer("pilot_rounds", d.pilot_rounds, "Rounds of the pilot of --clip_norm=auto.")
    enum("estimator", None, list(settings.ESTIMATORS), "Default: fixed under noise.")
    enum(
        "weighting", d.weighting, list(settings.WEIGHTING), "w = 1, or min(n_k/cap, 1)."
    )
    integer("example_cap", d.example_cap, "That cap; default: the largest client.")
    number("noise_multiplier", None, "z of every party that adds noise.")
    number("target_epsilon", None, "Choose z for this epsilon after --rounds.")
    enum(
        "target_observer", d.target_observer, list(settings.OBSERVERS), "Whose epsilon."
    )
    number("delta", d.delta, "delta of (epsilon, delta).")
    enum("runtime", d.runtime, list(RUNTIMES), "Where TFF computations run.")
    integer("cohort_chunk", None, "Clients trained at once; 0: each alone.")
    integer("seed", None, "For tests: fixes cohorts and initial model, not noise.")
    string("data_dir", None, "Folder of local data packs; default: $TFF_HDP_DATA.")
    string("out", None, "Run folder; default runs/<task>_<privacy>.")


def config_from_flags() -> settings.TrainConfig:
    """The parsed flags as a `TrainConfig`.

    Raises:
      ConfigError: If a flag is out of range.
    """
    names = [field.name for field in dataclasses.fields(settings.TrainConfig)]
    values = {name: flags.FLAGS[name].value for name in names}
    if values["local_epochs"] is None:
        values["local_epochs"] = 1 if values["algorithm"] == "fedsgd" else 5
    if values["out"] is None:
        values["out"] = f"runs/{values['task']}_{values['privacy']}"
    if values["clip_norm"] != "auto":
        try:
            values["clip_norm"] = float(values["clip_norm"])
        except ValueError as error:
            raise settings.ConfigError(
                f"--clip_norm is {values['clip_norm']}; allowed: a finite number > 0, "
                "or auto"
            ) from error
    return settings.TrainConfig(**values)


def main(argv: list[str]) -> int:
    """Runs one training and prints its account."""
    cli.refuse_arguments(argv)
    config = config_from_flags()
    from tff_hdp.simulation import experiment, report

    result = experiment.run(config)
    print(f"\naccuracy {result.accuracy:.4f} after {config.rounds} rounds")
    if result.accounts:
        print(report.account_table(result.accounts).to_string(index=False))
        print(report.assumptions_text(result.accounts))
    else:
        print("no noise: no observer is promised anything")
    if config.seed is not None:
        print(f"--seed={config.seed} is a test option: it fixes the cohorts.")
    print(f"run folder: {result.path}")
    return 0


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
