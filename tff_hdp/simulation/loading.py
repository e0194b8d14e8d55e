"""The task of a run, split over clients once and for all."""

import tasks
from tff_hdp.simulation.config import RunConfig, flag_error


def load_task(config: RunConfig, partition_seed: int) -> tasks.Task:
    """Loads `config.task`.

    Args:
      config: The run's settings.
      partition_seed: Decides which example goes to which client.

    Raises:
      ConfigError: If a flag does not fit the task.
      DataNotFoundError: If its data is missing; says what to get.
    """
    try:
        return tasks.load(
            config.task,
            model=config.model,
            data_dir=config.data_dir,
            num_clients=config.num_clients,
            partition=config.partition,
            dirichlet_alpha=config.dirichlet_alpha,
            seed=partition_seed,
        )
    except ValueError as error:
        raise flag_error(error, config, f"--task is {config.task}") from error
