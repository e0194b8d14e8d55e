"""The CSVs of docs/results/attacks: written from attacks' folders, read over seeds."""

import pathlib
from collections.abc import Sequence

import pandas as pd

from scripts.papers.attacks.job import AttackJob, told_apart
from scripts.papers.result_files import read
from tff_hdp.errors import FileError
from tff_hdp.files import alone_in, write_text

_OF_RUN = ("digest", "git_commit", "seed")
_TEXT = {"digest": str}
# What seeds differ in; all else is a row's own. The last are S where it is the median
# norm, what names it, and the attack that draws better.
_MEASURED = (
    *("psnr_mean", "psnr_low", "psnr_high", "psnr_floor", "ssim_mean", "ms_ssim_mean"),
    *("task_feature_mean", "lpips_mean", "identified", "identified_low"),
    *("identified_high", "identified_others_unknown", "orthogonal_canaries"),
    *("auc", "auc_low", "auc_high", "refuted"),
    *("clip_norm", "assumptions", "reconstruction"),
)


def write(
    name: str, jobs: Sequence[AttackJob], results: pathlib.Path
) -> pathlib.Path | None:
    """Writes the rows of the attacks that have been made.

    Those of other seeds that are there already stay, if they are of the same settings.

    Args:
      name: The CSV's.
      jobs: All attacks of some seeds.
      results: The folder of the papers' folders.

    Returns:
      The CSV's path; None if there is nothing new.

    Raises:
      FileError: If what is there is no such CSV.
    """
    made = [job for job in jobs if job.is_finished]
    if not made:
        return None
    path = results / "attacks" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    order = list(dict.fromkeys(job.digest for job in jobs))
    with alone_in(path.parent):
        frame = pd.concat([_measured(name, made), _rows_before(path, order, made)])
        frame["_line"] = frame["digest"].map(order.index)
        frame = frame.sort_values(["seed", "_line"], kind="stable")
        frame = frame.drop(columns="_line").dropna(axis=1, how="all")
        first = [column for column in frame if column not in _OF_RUN]
        text = frame[[*first, *_OF_RUN]].to_csv(index=False, float_format="%.6g")
        write_text(path, text)
    return path


def over_seeds(path: pathlib.Path) -> pd.DataFrame:
    """A CSV's rows over its seeds: of a measure x the mean, and the spread as `x_sd`.

    Measures that are no numbers are those of any seed.

    Raises:
      FileError: If it is no such CSV, or seeds have other rows.
    """
    frame = _read(path)
    of_row = frame.groupby(frame.groupby("seed").cumcount())
    own = [c for c in frame if c not in (*_MEASURED, "git_commit", "seed")]
    same = of_row[own].nunique(dropna=False) == 1
    if of_row.size().nunique() > 1 or not same.all(axis=None):
        raise FileError(path, "has other rows for one seed than for another")
    measured = frame.columns.intersection(_MEASURED)
    numbers = frame[measured].select_dtypes("number").columns
    found = of_row[own].first()
    for name in measured.difference(numbers):
        found[name] = of_row[name].agg(
            lambda each: "/".join(sorted(set(map(str, each))))
        )
    mean, sd = of_row[list(numbers)].mean(), of_row[list(numbers)].std()
    return found.join(mean).join(sd.add_suffix("_sd"))


def _measured(name: str, made: Sequence[AttackJob]) -> pd.DataFrame:
    """The attacks' rows, with settings that tell them apart and that no row has."""
    rows = [(job, row) for job in made for row in job.rows()]
    lacking = [
        key for key in told_apart(name) if not any(key in row for _, row in rows)
    ]
    return pd.DataFrame(
        [{**{k: getattr(job.config, k) for k in lacking}, **row} for job, row in rows]
    )


def _rows_before(
    path: pathlib.Path, digests: Sequence[str], made: Sequence[AttackJob]
) -> pd.DataFrame:
    """Rows of a CSV, if there is one, that no attack made now replaces."""
    if not path.exists():
        return pd.DataFrame()
    old = _read(path)
    new = {(job.digest, job.config.seed) for job in made}
    keys = zip(old["digest"], old["seed"], strict=True)
    return old[[key not in new and key[0] in digests for key in keys]]


def _read(path: pathlib.Path) -> pd.DataFrame:
    """A CSV's rows.

    Raises:
      FileError: If it is no such CSV.
    """
    frame = read(path, _TEXT)
    if lacking := {*_OF_RUN} - {*frame}:
        raise FileError(path, f"lacks columns {', '.join(sorted(lacking))}")
    return frame
