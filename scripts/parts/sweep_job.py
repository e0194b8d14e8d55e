"""One run of a sweep: what it is, and whether it is there. Imports no TensorFlow."""

import csv
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence

from tff_hdp.errors import FileError
from tff_hdp.simulation import report
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.record import as_json, defaults_of

# What makes no other setting of it: where and how it runs, what it prints, its seed.
_NOWHERE = ("out", "runtime", "workers", "data_dir", "log_every", "quiet", "seed")
# Newer than runs whose digests are kept; at its default each changes nothing of them.
_NEWER = (
    *("compute_dtype", "online_rate", "sign_messages"),
    *("secure_aggregation_protocol", "secure_bits"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One run of a sweep.

    Attributes:
      settings: What sets it apart, as given: flag to value, with `seed` if it has one.
      config: All its settings; `out` is its folder.
      command: What runs it; run again, it resumes.
    """

    settings: Mapping[str, str]
    config: RunConfig
    command: Sequence[str]

    @property
    def path(self) -> pathlib.Path:
        """The run folder."""
        return pathlib.Path(self.config.out)

    @property
    def log(self) -> pathlib.Path:
        """What the run prints, one attempt after the other."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def digest(self) -> str:
        """Tells settings apart, whatever the seed and wherever they are run.

        A setting that a later version adds leaves digests as they were, if it is named
        in `_NEWER`. Of numbers five digits count: noise that is calibrated has more.
        """
        settings = self.config.to_dict()
        default = defaults_of(self.config)
        kept = {
            k: float(f"{v:.5g}") if isinstance(v, float) else v
            for k, v in settings.items()
            if k not in _NOWHERE and not (k in _NEWER and v == default[k])
        }
        text = json.dumps([self.config.system, kept], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds this very run, with all its rounds and its model.

        What its files say of privacy must be whole, as a run that goes on makes it.
        A run that went on with another `evaluate_every`, or was extended, is another
        one where it tested its model after other rounds.
        """
        try:
            card = json.loads((self.path / "model/last/card.json").read_text())
            record = json.loads((self.path / "config.json").read_text())
            begun, trained = dict(record["flags"]), card["round"]
            tested = self._tested(card["metric"])
            report.read_run(self.path)
        except (OSError, ValueError, KeyError, TypeError, FileError, csv.Error):
            return False  # A run begins or goes on, and says what is damaged.
        newer = defaults_of(self.config)
        same = all(
            begun.get(name, newer.get(name)) == value
            for name, value in as_json(self.config.to_dict()).items()
            if name not in _NOWHERE or name == "seed"
        )
        rounds, every = self.config.rounds, self.config.evaluate_every
        asked = sorted({*range(every, rounds + 1, every), rounds})
        return same and trained == rounds and tested == asked

    @property
    def is_accounted(self) -> bool:
        """Whether a finished run's files state what the rounds released are worth.

        By its journal: an editor can change config.json and privacy.json, which a run
        that goes on writes anew.
        """
        try:
            report.accounted(report.read_run(self.path), self.config)
        except (OSError, ValueError, KeyError, TypeError, FileError):
            return False
        return True

    def _tested(self, metric: str) -> list[int]:
        """The rounds after which a metric was measured."""
        with (self.path / "metrics.csv").open(newline="") as file:
            rows = csv.DictReader(file)
            return [int(row["round"]) for row in rows if row[metric]]

    @property
    def last_words(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    @property
    def rounds(self) -> int:
        """How many it has, which say how long it takes."""
        return self.config.rounds

    @property
    def rounds_done(self) -> int:
        """The last round in metrics.csv; 0 before the first."""
        try:
            lines = (self.path / "metrics.csv").read_text().splitlines()
            at = lines[0].split(",").index("round")
            return int(lines[-1].split(",")[at])
        except (FileNotFoundError, IndexError, ValueError):
            return 0
