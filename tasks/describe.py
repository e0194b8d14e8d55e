"""Prints the table of tasks in docs/data.md: `python -m tasks.describe`.

Sizes are counted on the data; a set that is not in the folder, whose path is
the one argument (default: TFF_HDP_DATA), is listed as not found.
"""

import pathlib
import sys

import numpy as np

import tasks
from tff_hdp import cli
from tff_hdp.errors import require

HEADER = ("task", "training / test", "clients", "examples per client", "models")


def row(name: str, data_dir: str | None) -> tuple[str, ...]:
    """The cells of a task's row, with its default partition.

    Args:
      name: One of `tasks.TASKS`.
      data_dir: Folder of the data sets; None for TFF_HDP_DATA.

    Returns:
      One cell for each of `HEADER`.
    """
    dataset = tasks.TASKS[name]
    models = ", ".join(
        f"{model} ({architecture.num_parameters(**dataset.model_shape):,})"
        for model, architecture in dataset.models.items()
    )
    try:
        task = tasks.load(name, data_dir=data_dir)
    except tasks.DataNotFoundError:
        return name, "not found", "", "", models
    train = task.train
    sizes = train.sizes
    examples = str(sizes.min())
    if sizes.min() < sizes.max():
        examples = f"{sizes.min()} to {sizes.max()}, median {np.median(sizes):g}"
    return (
        name,
        f"{len(train.labels):,} / {len(task.test_labels):,}",
        f"{len(train.client_ids):,}, {dataset.partitions[0]}",
        examples,
        models,
    )


def table(data_dir: str | None) -> str:
    """The Markdown table of all tasks."""
    rows = [HEADER, ("---",) * len(HEADER)]
    rows += [row(name, data_dir) for name in tasks.TASKS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def main(words: list[str]) -> int:
    """Prints the table for the folder that is the one argument, if there is one."""
    data_dir = words[0] if words else None
    is_folder = data_dir is None or pathlib.Path(data_dir).is_dir()
    require(is_folder, "folder", data_dir, "one that is there")
    require(len(words) < 2, "argument", words[-1:], "one folder and no more")
    print(table(data_dir))
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main, takes_words=True))
