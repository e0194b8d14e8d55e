"""HFL-DP as the training loop runs it."""

import collections
import dataclasses
import functools
import logging
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_federated as tff

from tff_hdp.clients.batches import (
    Participant,
    chunks,
    dataset_of_one,
    most_examples,
    order_of_steps,
)
from tff_hdp.clients.stacked_model import StackedModel, is_supported
from tff_hdp.clients.training import chunk_size
from tff_hdp.errors import ArgumentError
from tff_hdp.files import write_text
from tff_hdp.privacy import FullParticipation, NoisePlan
from tff_hdp.simulation.journal import Journal
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, RngOf, for_the_operator
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.hfl_dp.noise import (
    Setting,
    exact_noise,
    setting_of,
    theorem_1,
)
from tff_hdp.systems.hfl_dp.plan import HflDpNoise, HflDpRound, rounds_of
from tff_hdp.systems.hfl_dp.process import CHUNK_FIELDS, build_hfl_dp, chunk_type
from tff_hdp.systems.hfl_dp.worth import READING, noise_table, warnings
from tff_hdp.systems.zone_models import ZoneModelSystem, check_all_took_part
from tff_hdp.topology import equal_zones

_LOG = logging.getLogger(__name__)
_NOISES = {
    "theorem_1": theorem_1,
    "exact": exact_noise,
    "none": lambda setting: HflDpNoise(),
}
OPERATOR_METRICS = (
    for_the_operator("train_loss, train_accuracy, clipped, rejected and disagreement")
    + " accuracy is that of the average of the edges' models, which between two rounds "
    "of the cloud nobody forms."
)
OF_THE_SMALLEST = (
    "m, in config.json and behind noise.csv's epsilon_example, is how many examples "
    "the smallest client has, which no epsilon covers; min_examples sets it."
)


class HflDp(ZoneModelSystem):
    """Edges under a cloud; everybody takes part in every round.

    Args:
      config: The run's settings.
      folder: Remembers the noise of the first start.
    """

    def __init__(self, config: HflDpConfig, folder: RunFolder) -> None:
        seed = folder.resolved["partition_seed"]
        self.config, self.task = config, config.load_task(seed)
        if not is_supported(self.task.model):
            allowed = "one whose layers can be stacked"
            raise ArgumentError("model", self.task.model_name, allowed)
        clients = self.task.train.client_ids
        setting = setting_of(
            config, clients=len(clients), smallest=int(self.task.train.sizes.min())
        )
        rng = np.random.default_rng(seed)
        self.zoning = equal_zones(clients, config.edges, rng=rng)
        self.sampling = NoisePlan(
            zone_sizes=self.zoning.zone_sizes, sampling=FullParticipation()
        )
        if "noise" not in folder.resolved:
            noise = _NOISES[config.noise](setting)
            folder.resolve(
                noise=dataclasses.asdict(noise), setting=dataclasses.asdict(setting)
            )
        folder.resolve(task=self.task.description)
        noise = HflDpNoise(**folder.resolved["noise"])
        by_paper = config.noise == "theorem_1"
        self.plan, self.cloud_plan = rounds_of(
            noise,
            n=setting.n,
            N=setting.N,
            C=config.clip_norm,
            paper_epsilons=(config.eps1, config.eps2) if by_paper else (None, None),
        )
        self._model = StackedModel(self.task.model)
        self.noise, self.chosen_for = noise, Setting(**folder.resolved["setting"])
        self.warnings = []
        if by_paper:
            worth = noise_table(noise, self.chosen_for, config.rounds_by_kind)
            self.warnings = warnings(worth, m=setting.m)
        for warning in self.warnings:
            _LOG.warning("%s", warning)

    @functools.cached_property
    def process(self) -> Process:
        """See base class."""
        config = self.config
        return build_hfl_dp(
            build_model=config.training_model(self.task),
            data_type=chunk_type(*self.task.train.feature_spec),
            edge_round=self.plan,
            cloud_round=self.cloud_plan,
            k2=config.k2,
            local_steps=config.local_steps,
            learning_rate=config.learning_rate,
            proximal=config.proximal,
        )

    def round_data(
        self, number: int, cohort: np.ndarray, rng_of: RngOf
    ) -> list[tf.data.Dataset]:
        """Every client's batches, in chunks of one edge's clients."""
        del number
        train, zone_of, config = self.task.train, self.zoning.zone_of, self.config
        order = functools.partial(
            order_of_steps,
            steps=config.k1 * config.local_steps,
            batch_size=min(config.batch_size, int(train.sizes.max())),
        )
        participants = [
            Participant(
                train.examples(client),
                order(int(train.sizes[client]), rng=rng_of(client)),
                zone=zone_of[client],
            )
            for client in cohort
        ]
        size = chunk_size(self._model, len(cohort), most_examples(participants))
        data = []
        for chunk in chunks(participants, size):
            chunk["zone"] = chunk["zone"][:1]
            fields = collections.OrderedDict((k, chunk[k]) for k in CHUNK_FIELDS)
            data.append(dataset_of_one(fields))
        return data

    def evaluate(self, state: Any) -> dict[str, float]:
        """Test metrics of the edges' average, and how far they are apart."""
        models = np.asarray(state.global_model_weights)
        spread = ((models - models.mean(0)) ** 2).sum(-1)
        return super().evaluate(state) | {"disagreement": float(spread.mean())}

    def released(self, state: Any) -> tff.learning.models.ModelWeights:
        """The edges' average."""
        return self.process.get_model_weights(state)

    def plan_of(self, number: int) -> HflDpRound:
        """What a round is, counted from 1: of edges alone, or of the cloud too."""
        return self.plan if number % self.config.k2 else self.cloud_plan

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """See base class. It is an edge or a cloud round."""
        check_all_took_part(metrics, self.plan.n)
        return {"plan": self.plan_of(int(metrics["round"]))}

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        own = (OF_THE_SMALLEST,) if self.config.min_examples is None else ()
        return (OPERATOR_METRICS, *own, *self.warnings)

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Writes what every noise is worth as noise.csv; returns it, explained."""
        del state
        if not self.plan.is_noisy:
            return ""
        # A round that was run again was sent again.
        sent = collections.Counter()
        for number, times in Journal(path / "journal.jsonl").releases_by_round.items():
            sent[self.plan_of(number)] += times
        rounds = sent[self.plan], sent[self.cloud_plan]
        worth = noise_table(self.noise, self.chosen_for, rounds)
        frame = pd.DataFrame([dataclasses.asdict(row) for row in worth])
        write_text(path / "noise.csv", frame.to_csv(index=False))
        table = frame.to_string(index=False, float_format=lambda x: f"{x:.4g}")
        return f"{table}\n{READING}"
