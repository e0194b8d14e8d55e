"""GFL as the training loop runs it."""

import collections
import functools
import math
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import gfl_logistic
from tff_hdp.aggregators.vectors import join, split
from tff_hdp.clients.batches import dataset_of_one
from tff_hdp.privacy import FixedSizeSampling, NoisePlan
from tff_hdp.protocols.secagg.pairwise_masks import PairwiseMasks
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, RngOf, for_the_operator
from tff_hdp.systems.gfl.config import LOGISTIC, GflConfig
from tff_hdp.systems.gfl.plan import GflPlan
from tff_hdp.systems.gfl.process import build_gfl, cohort_type
from tff_hdp.systems.gfl.setup import build_graph, build_servers, load, side_by_side
from tff_hdp.systems.zone_models import ZoneModelSystem, check_all_took_part
from tff_hdp.topology.mixing import metropolis, spectral_gap

OPERATOR_METRICS = for_the_operator(
    "train_loss, train_accuracy, clipped, rejected, disagreement, msd and msd_servers"
)
# Tests of a centroid in which the servers' noise cancels.
TESTS_WITHOUT_NOISE = for_the_operator("accuracy and loss")


class Gfl(ZoneModelSystem):
    """Servers in a graph, and `repetitions` such networks side by side.

    Args:
      config: The run's settings.
      folder: Knows the partition seed, which also decides servers and graph.
    """

    def __init__(self, config: GflConfig, folder: RunFolder) -> None:
        seed = folder.resolved["partition_seed"]
        self.config, self.task = config, load(config, seed)
        servers = build_servers(config, self.task, seed)
        self.mixing = metropolis(build_graph(config, seed))
        weights = self.task.model.trainable_weights
        self._shapes = [tuple(weight.shape) for weight in weights]
        self.plan = GflPlan(
            scheme=config.scheme,
            mu=config.mu,
            B=config.gradient_bound,
            sigma_g=config.sigma_g,
            dimension=sum(map(math.prod, self._shapes)),
            clients=min(servers.zone_sizes),
            per_round=config.per_round,
        )
        self.zoning = side_by_side(servers, config.repetitions)
        self.sampling = NoisePlan(
            zone_sizes=self.zoning.zone_sizes,
            sampling=FixedSizeSampling((config.per_round,) * self.zoning.num_zones),
        )
        self.plan.check_start(float(np.linalg.norm(join(weights))))
        server_of = np.asarray(self.zoning.zone_of)
        self.masks = [
            PairwiseMasks([str(i) for i in np.flatnonzero(server_of == zone)])
            for zone in range(self.zoning.num_zones if self.plan.masked else 0)
        ]
        self.optimum = None
        if config.task == LOGISTIC:
            self.optimum = gfl_logistic.optimum(
                self.task.train, config.ridge, servers.zone_of
            )
            self.headline, self.headline_falls = "msd", True
        gap = spectral_gap(self.mixing)
        began_with = folder.resolved.get("spectral_gap", gap)
        # Another kind of CPU, or number of cores, rounds the same graph's otherwise.
        same = math.isclose(gap, began_with, abs_tol=1e-9)
        folder.resolve(
            task=self.task.description, spectral_gap=began_with if same else gap
        )

    @functools.cached_property
    def process(self) -> Process:
        """See base class."""
        config = self.config
        return build_gfl(
            build_model=config.training_model(self.task),
            data_type=cohort_type(
                *self.task.train.feature_spec,
                plan=self.plan,
                servers=config.repetitions,
            ),
            plan=self.plan,
            # Repetitions are networks without a link between them.
            mixing=np.kron(np.eye(config.repetitions), self.mixing),
            ridge=config.ridge,
        )

    def round_data(
        self, number: int, cohort: np.ndarray, rng_of: RngOf
    ) -> list[tf.data.Dataset]:
        """One TFF client is one server's cohort, in all networks at once.

        Masks are drawn from the operating system, not from the run's secret: they
        cancel exactly, so a round that was not released gives the same sums again.
        """
        train, config = self.task.train, self.config
        cohorts = cohort.reshape(self.zoning.num_zones, config.per_round)
        rows = np.stack(
            [
                train.offsets[c]
                + rng_of(i).choice(train.sizes[c], config.batch_size, replace=False)
                for i, c in zip(cohort, cohort % len(train.client_ids), strict=True)
            ]
        ).reshape(*cohorts.shape, config.batch_size)
        data = []
        for server in range(config.servers):
            zones = np.arange(server, len(cohorts), config.servers, dtype=np.int32)
            fields = collections.OrderedDict(
                features=train.features[rows[zones]],
                labels=train.labels[rows[zones]],
                zone=zones,
            )
            if self.plan.masked:
                own = (
                    self.masks[z].draw(
                        list(map(str, cohorts[z])), number, self.plan.dimension
                    )
                    for z in zones
                )
                fields["masks"] = np.stack(list(own)).astype(np.int64)
            data.append(dataset_of_one(fields))
        return data

    def evaluate(self, state: Any) -> dict[str, float]:
        """Test metrics of the first network's centroid; distances over all."""
        models = self._models(state)
        centroids = models.mean(1)
        metrics = self.test(self.released(state))
        spread = ((models - centroids[:, np.newaxis]) ** 2).sum(-1)
        metrics["disagreement"] = float(spread.mean())
        if self.optimum is not None:
            metrics["msd"] = self._msd(centroids)
            metrics["msd_servers"] = self._msd(models)
        return metrics

    def released(self, state: Any) -> tff.learning.models.ModelWeights:
        """The first network's centroid, the mean of its servers' models."""
        centroid = self._models(state)[0].mean(0).astype(np.float32)
        weights = [weight.numpy() for weight in split(centroid, self._shapes)]
        return tff.learning.models.ModelWeights(weights, [])

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """See base class. Every iteration is alike."""
        check_all_took_part(metrics, self.plan.per_round)
        return {"plan": self.plan}

    @property
    def published(self) -> tuple[str, ...]:
        """See base class: none where servers' noise cancels in what is tested."""
        return () if self.plan.scheme == "hybrid" else super().published

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        centroid = (
            "carries no noise: whoever gets all servers' models gets what training "
            "without privacy gives."
            if self.plan.scheme == "hybrid"
            else "carries the clients' noise."
        )
        notes = [
            OPERATOR_METRICS,
            f"The servers' common average (the centroid) {centroid}",
        ]
        if self.plan.scheme == "hybrid":
            notes.append(TESTS_WITHOUT_NOISE)
        if self.config.repetitions > 1:
            notes.append(
                f"{self.config.repetitions} repetitions ran on the same data; the "
                "account is that of one, and holds if no more than one is released."
            )
        return tuple(notes)

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """The network, and how far from the optimum it came."""
        del path
        text = (
            f"{self.config.servers} servers, {self.config.graph} graph, spectral gap "
            f"{spectral_gap(self.mixing):.4f}"
        )
        if self.optimum is None:
            return text
        msd = self._msd(self._models(state).mean(1))
        return (
            f"{text}\noptimum {np.array2string(self.optimum, precision=6)}; MSD of the "
            f"centroid {msd:.3e} ({10 * math.log10(msd):.1f} dB), over "
            f"{self.config.repetitions} repetitions"
        )

    def _msd(self, models: np.ndarray) -> float:
        """Mean squared distance of models [..., d] from the optimum."""
        return float(((models - self.optimum) ** 2).sum(-1).mean())

    def _models(self, state: Any) -> np.ndarray:
        """[repetitions, servers, d] float64."""
        models = np.asarray(state.global_model_weights, np.float64)
        return models.reshape(self.config.repetitions, self.config.servers, -1)
