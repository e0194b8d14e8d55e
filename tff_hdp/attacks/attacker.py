"""A model and its victims, what observers see of them, and what attacks reach."""

import dataclasses
import functools
import logging
import math
from typing import Any

import numpy as np

import tasks
from tff_hdp.attacks import analytic, distances, inversion
from tff_hdp.attacks.config import OF_CANDIDATES, OF_IMAGES, ZHU, AttackConfig
from tff_hdp.attacks.forward import Forward
from tff_hdp.attacks.observation import Federation
from tff_hdp.attacks.roc import Roc
from tff_hdp.attacks.trials import Records, Trials, clipped
from tff_hdp.attacks.vantage import Held, Vantage
from tff_hdp.attacks.victims import Target, load_target
from tff_hdp.errors import ArgumentError, require
from tff_hdp.privacy.tradeoff import orthogonal_identification

_LOG = logging.getLogger(__name__)
# Examples whose records stand for clients in trials, those of the attacker's own that
# show how records vary, and those that show the prior.
_POOL, _OWN, _PRIOR = 200, 600, 2000
# Columns of every row; what an attack does not measure stays empty.
_MEASURED = (
    *("psnr_mean", "psnr_low", "psnr_high", "psnr_floor", "ssim_mean", "ms_ssim_mean"),
    *("task_feature_mean", "lpips_mean", "identified", "bound"),
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an attack left behind.

    Attributes:
      rows: What to print.
      originals: [V, H, W, c] victims' images, for the figure; None without any.
      found: Of each row as many reconstructions.
      curves: Of a membership attack a row's ROC, and from where.
    """

    rows: list[dict[str, Any]]
    originals: np.ndarray | None = None
    found: list[np.ndarray] = dataclasses.field(default_factory=list)
    curves: list[tuple[Roc, Vantage]] = dataclasses.field(default_factory=list)


class Attacker:
    """The model, the clip norm and the victims of a config, shared by its attacks.

    Raises:
      ArgumentError: If the config does not fit the task.
      DataNotFoundError: If the task's data is missing.
      FileError: If weights are not of the model.
    """

    def __init__(self, config: AttackConfig) -> None:
        self.config = config
        zhu = config.model == ZHU
        task = tasks.load(
            config.task,
            model=None if zhu else config.model,
            data_dir=config.data_dir,
            seed=config.seed,
        )
        self.model_name = ZHU if zhu else task.model_name
        self.target: Target = load_target(
            task,
            learning_rate=config.learning_rate,
            local_steps=config.local_steps,
            weights=config.weights,
            zhu=zhu,
            seed=config.seed,
        )
        if config.attack in OF_IMAGES:
            of_images, most = self.target.features.ndim == 4, len(self.target.labels)
            require(of_images, "task", config.task, f"one of images: {config.attack}")
            allowed = f"1..{most - 1}, as the other examples show the prior"
            require(config.victims < most, "victims", config.victims, allowed)
        self.clip_norm = self._clip_norm()
        self.lpips = config.lpips_weights and distances.Lpips.read(config.lpips_weights)

    def _clip_norm(self) -> float:
        """The norm given, or the median of what the model's clients send.

        Raises:
          ArgumentError: If that median is 0, or is to be taken and is not finite.
        """
        given, found = self.config.given_clip_norm, self.target.median_norm()
        allowed = f"one at which updates have a median norm > 0; it is {found:g}"
        is_one = found != 0.0 if given else 0.0 < found < math.inf
        require(is_one, "learning_rate", self.config.learning_rate, allowed)
        return given or found

    @functools.cached_property
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of every pixel, over examples that are no victims."""
        others = self.target.features[self.config.victims :]
        images = others[-_PRIOR:] / self.target.max_value
        return images.mean(0), images.var(0)

    # What observers see ---------------------------------------------------------

    def observe(self, vantage: Vantage) -> tuple[np.ndarray, np.ndarray]:
        """Rounds as the observer sees them, each with a victim of its own.

        Victims whose updates are not finite are reported and left out.

        Returns:
          Victims' images [V, H, W, c] in [0, 1], and what is seen [V, d].
        """
        plan, target = vantage.plan, self.target
        most = len(target.labels)
        allowed = f"at most {most}, the examples, as each has one"
        require(plan.num_clients <= most, "clients", plan.num_clients, allowed)
        federation = Federation(plan, target.shapes)
        place = vantage.place(vantage.victim)
        rng = np.random.default_rng(self.config.seed)
        originals, seen = [], []
        for victim in range(self.config.victims):
            others = rng.choice(len(target.labels) - 1, plan.num_clients - 1, False)
            rows = np.insert(others + (others >= victim), place, victim)
            updates = target.updates(
                target.features[rows, np.newaxis], target.labels[rows, np.newaxis]
            )
            if not np.isfinite(np.linalg.norm(updates[place])):
                _LOG.warning("victim %d is left out: no finite update", victim)
                continue
            zones = np.split(updates, np.cumsum(plan.zone_sizes)[:-1])
            seen.append(federation.round([list(z) for z in zones]).seen_by(vantage))
            originals.append(target.features[victim] / target.max_value)
        if not seen:
            raise ArgumentError("victims", self.config.victims, "some of finite update")
        return np.array(originals), np.array(seen)

    # Attacks --------------------------------------------------------------------

    def reconstruct(
        self, attack: str, vantage: Vantage, seen: np.ndarray
    ) -> np.ndarray:
        """Images [V, m, H, W, c] that the attack finds in what is seen."""
        config, target, m = self.config, self.target, vantage.unknown_clients
        if attack == "analytic":
            require(m == 1, "unknown_clients", m, "1 for an attack by one layer")
            return self._by_layer(seen, vantage.stddev)[:, np.newaxis]
        common = {
            "seed": config.seed,
            "progress": inversion.bar(f"{attack}, {vantage.name}"),
        }
        if config.evaluations is not None:
            budget = "evaluations" if attack == "dlg" else "steps"
            common[budget] = config.evaluations
        if attack == "feature_ig":
            require(m == 1, "unknown_clients", m, "1 for an attack by features")
            return inversion.feature_guided(target, seen, **common)
        labels = analytic.infer_labels(target, seen, m)
        forward = Forward(target, vantage.clip_norm)
        is_dlg = attack == "dlg"
        search = inversion.deep_leakage if is_dlg else inversion.inverting_gradients
        return search(forward, seen, labels, restarts=config.restarts, **common)

    def _by_layer(self, seen: np.ndarray, stddev: float) -> np.ndarray:
        if analytic.first_dense(self.target) != 0:
            allowed = "one whose first layer is dense; feature_ig is for convolutions"
            raise ArgumentError("model", self.model_name, allowed)
        mean, variance = self.prior
        found = analytic.dense_inputs(
            self.target,
            seen,
            stddev=stddev,
            mean=mean.ravel(),
            variance=variance.ravel(),
        )
        return np.clip(found.reshape(-1, *self.target.features.shape[1:]), 0, 1)

    # Rows -----------------------------------------------------------------------

    def row(
        self,
        vantage: Vantage,
        held: Held | None = None,
        *,
        privacy: str | None = None,
    ) -> dict[str, Any]:
        """Who attacks what, and what theory says of it.

        Args:
          vantage: Where the attacker stands.
          held: What it holds of a run; None takes the config's rounds from there.
          privacy: Of an attack that goes through modes itself; None is the config's.
        """
        config = self.config
        held = held or Held.of(vantage, config.rounds)
        row = {
            "attack": config.attack,
            "task": config.task,
            "model": self.model_name,
            "privacy": privacy or ("plan" if config.plan else config.privacy),
            "level": str(vantage.level),
            "observer": vantage.name,
            "zone": vantage.zone,
            "client_kind": vantage.client_kind,
            "noise_multiplier": vantage.noise_multiplier,
            "unknown_clients": vantage.unknown_clients,
            **dict.fromkeys(_MEASURED),
            "rounds": held.rounds,
            "epsilon": held.epsilon(config.delta),
            "delta": config.delta,
            "neighbours": held.neighbours,
            "sampling": vantage.view.sampling,
        }
        if config.attack in OF_CANDIDATES:
            row["bound"] = held.bound.identification(config.candidates)
        return row

    def distances(
        self, originals: np.ndarray, images: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray]:
        """A row's columns on reconstructions, and the best of m for each victim."""
        reached = np.array(
            [distances.psnr(originals, each) for each in images.swapaxes(0, 1)]
        )
        found = images[np.arange(len(images)), reached.argmax(0)]
        mean, *ends = distances.interval(reached.max(0))
        # One victim has no interval, and NaN is no JSON.
        low, high = ends if len(found) > 1 else (None, None)
        guess = np.broadcast_to(self.prior[0], originals.shape)
        columns = {
            "psnr_mean": mean,
            "psnr_low": low,
            "psnr_high": high,
            "psnr_floor": float(distances.psnr(originals, guess).mean()),
            "ssim_mean": float(distances.ssim(originals, found).mean()),
            "lpips_mean": "no weights",
        }
        if min(originals.shape[1:3]) >= distances.LEAST_HALVED_TWICE:
            ms_ssim = distances.ms_ssim(originals, found)
            columns["ms_ssim_mean"] = float(ms_ssim.mean())
        if self.config.weights != "init":
            apart = distances.task_feature_distance(self.target, originals, found)
            columns["task_feature_mean"] = float(apart.mean())
        if self.lpips is not None:
            columns["lpips_mean"] = float(self.lpips(originals, found).mean())
        return columns, found

    def records(self, vantage: Vantage, others_known: bool | None = None) -> Records:
        """What clients of single examples would send, clipped where the plan clips.

        Args:
          vantage: Of the plan.
          others_known: Whether others can be subtracted; else the attacker's own
            records are among them. None: as the config says.

        Raises:
          ArgumentError: If no client's is finite.
        """
        known = self.config.others_known if others_known is None else others_known
        used = slice(_POOL if known else _POOL + _OWN)
        batch = self.target.features[used], self.target.labels[used]
        updates = self.target.updates(*(part[:, np.newaxis] for part in batch))
        sent = clipped(updates, vantage.clip_norm)
        found = Records.of(sent[:_POOL], sent[_POOL:])
        allowed = "one at which some updates are finite"
        require(len(found) > 0, "learning_rate", self.config.learning_rate, allowed)
        return found

    def trials(self, vantage: Vantage, records: Records) -> Trials:
        """Trials from a vantage, as many as the config says.

        Args:
          vantage: Where the attacker stands.
          records: Of possible clients.
        """
        config = self.config
        return Trials(
            vantage=vantage,
            records=records,
            stddev=vantage.stddev,
            trials=config.trials,
            rounds=config.rounds,
            others_known=config.others_known,
            rng=np.random.default_rng(config.seed),
        )

    def identified(self, vantage: Vantage) -> dict[str, Any]:
        """A row's columns on identification from a vantage."""
        trials = self.trials(vantage, self.records(vantage))
        hits = trials.identification(self.config.candidates)
        mean, low, high = distances.proportion(hits)
        bound = vantage.bound(self.config.rounds)
        canaries = None
        if bound.mu is not None:
            canaries = orthogonal_identification(bound.mu, self.config.candidates)
        return {
            "identified": mean,
            "identified_low": low,
            "identified_high": high,
            "orthogonal_canaries": canaries,
        }
