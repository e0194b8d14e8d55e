"""HDP as the training loop runs it."""

import errno
import functools
import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tff_hdp.aggregators import round_events
from tff_hdp.clients.batches import chunk_type
from tff_hdp.clients.client_work import (
    SGD_MOMENTUM,
    build_optimizer,
    model_fn_from_keras,
)
from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Ledger
from tff_hdp.privacy.planned import read_plan
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, RoundInput, System, for_the_operator
from tff_hdp.systems import secure_notes
from tff_hdp.systems.hdp.attendance import Participation
from tff_hdp.systems.hdp.clients import single_clients, stacked_clients
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.systems.hdp.exposure import report_exposure
from tff_hdp.systems.hdp.faults import CountingSkips
from tff_hdp.systems.hdp.federation import (
    Federation,
    build_federation,
    resolved_noise,
    threat_of_round,
)
from tff_hdp.systems.hdp.pilot import find_clipping
from tff_hdp.systems.hdp.planned import (
    kept_promises,
    with_own_plan,
    with_plan_copied,
)
from tff_hdp.systems.hdp.process import build_hdp
from tff_hdp.systems.hdp.round_data import chunking, round_data
from tff_hdp.systems.hdp.seats import (
    check_complete,
    check_readable,
    write_seats,
)
from tff_hdp.systems.hdp.zones import build_elections
from tff_hdp.systems.secure_sums import ProtocolData, SecureSums

OPERATOR_METRICS = for_the_operator(
    "clients, offline, dropped, byzantine, empty_zones, left_out_zones, "
    "failed_super_nodes, saturated, rejected, update_norm, train_loss and "
    "train_accuracy"
)
COHORT_HIDDEN = (
    "Zones draw their cohorts and do not show them to the aggregator. One process "
    "plays all parties here, so this is assumed, not enforced; an aggregator that TFF "
    "deploys sees who takes part: cohort_known accounts for that."
)
COHORT_KNOWN = (
    "The aggregator knows who takes part in a round (cohort_known), so that sampling "
    "does not amplify against it."
)
SKIPPED_ZONES = (
    "A zone without super-node is skipped for the round, whoever was drawn; its parent "
    "adds its noise in its place. What its clients would have added is not counted."
)
OF_EXAMPLES = (
    "Clients' labels, or how many examples they hold, decide who is in a zone or may "
    "be elected (zoning, min_capability): that is public, and no epsilon covers it."
)
UNMASKED = (
    "So many of a zone's clients may be Byzantine, or so few take part beside an "
    "elected super-node, that its sums could be unmasked: all secure sums are "
    "accounted as if every part of them were seen."
)
BYZANTINE = (
    "Byzantine clients are taken to know and to leave out their own noise, and to tell "
    "the observer when they take part and, where clients mask with each other, who "
    "else does; super-nodes that deliver are trusted to have added theirs."
)


def build(config: HdpConfig, folder: RunFolder) -> "Hdp":
    """Builds HDP for the training loop.

    Raises:
      ArgumentError: If a setting does not fit the task.
      DataNotFoundError: If the task's data is missing.
      FileError: If an earlier round's elections cannot be read back.
      FileNotFoundError: If a file of the zones is missing.
    """
    check_readable(folder.path / "elections")
    if "zones" in folder.resolved:
        _check_there(config)
    config = with_own_plan(config, folder)
    seed = folder.resolved["partition_seed"]
    task = config.load_task(seed)
    federation = build_federation(
        config,
        task,
        partition_seed=seed,
        clipping=find_clipping(config, task, folder, Hdp),
        resolved=folder.resolved,
    )
    config = with_plan_copied(config, folder)
    zoning = federation.zoning
    named = "capability_file" if config.zoning == "capability" else "zoning_file"
    # Names go into reports, of zones that have any.
    zones = zoning.zone_of, zoning.parents, *filter(None, [zoning.zone_names])
    _remember("zones", zones, named, config, folder)
    folder.resolve(**resolved_noise(federation.plan), task=task.description)
    system = Hdp(config, federation, seats_path=folder.path / "elections")
    if system.elections is not None and system.elections.capability is not None:
        # In whatever order the file has them.
        read = sorted(system.elections.capability.items())
        _remember("capabilities", read, "capability_file", config, folder)
    return system


class Hdp(System):
    """Zones under a server, for a federation whose plan is known.

    Args:
      config: The run's settings.
      federation: Who takes part.
      seats_path: Where to keep who led which zone; None keeps nothing.
    """

    def __init__(
        self,
        config: HdpConfig,
        federation: Federation,
        *,
        seats_path: pathlib.Path | None = None,
    ) -> None:
        self.config, self.federation, self.seats_path = config, federation, seats_path
        self.task, self.plan = federation.task, federation.plan
        self.zoning, self.sampling = federation.zoning, federation.plan
        self.chunking = chunking(config, federation)
        self.secure_sums = None
        if self.plan.encoding is not None and config.runs_protocol:
            self.secure_sums = SecureSums(
                config.secure_aggregation_protocol, signed=config.parties_sign
            )
        self.elections = build_elections(config, self.task, self.zoning)
        # Made once a run, which has one secret.
        self.participation = functools.lru_cache(maxsize=1)(self._participation)

    @property
    def most_rounds(self) -> float:
        """See base class; as many as a plan's promises are for."""
        plan = self.config.plan
        return super().most_rounds if plan is None else read_plan(plan).rounds

    @functools.cached_property
    def process(self) -> Process:
        """See base class; a TFF client is a client, or a chunk of them."""
        config, task = self.config, self.task
        # One step on the whole data at rate 1 makes the update the gradient.
        rate = 1.0 if config.algorithm == "fedsgd" else config.client_learning_rate
        if self.chunking.clients != 0:
            clients = stacked_clients(
                build_model=config.training_model(task),
                data_type=chunk_type(*task.train.feature_spec),
                client_learning_rate=rate,
                client_momentum=SGD_MOMENTUM[config.client_optimizer],
            )
        else:
            shape, dtype = task.train.feature_spec
            spec = (
                tf.TensorSpec([None, *shape], dtype),
                tf.TensorSpec([None], tf.int32),
            )
            clients = single_clients(
                model_fn=model_fn_from_keras(config.training_model(task), spec),
                client_optimizer=build_optimizer(config.client_optimizer, rate),
            )
        return CountingSkips(
            build_hdp(
                clients=clients,
                plan=self.plan,
                server_optimizer=build_optimizer(
                    config.server_optimizer, config.server_learning_rate
                ),
                secure_sums=self.secure_sums,
            )
        )

    def prepare(
        self, entropy: int, number: int, carried: dict[str, Any], *, earlier: int = 0
    ) -> RoundInput:
        """See base class. Here drop-outs, elections and faults decide too."""
        parties = self.participation(entropy)
        present = parties.attend(number, carried, earlier=earlier)
        if self.elections is not None and self.seats_path is not None:
            write_seats(self.seats_path, number, present.seats, parties.registries())
        data: Any = round_data(
            self.config,
            self.federation,
            present,
            chunking=self.chunking,
            rng_of=parties.sampler.batch_generators(number),
        )
        if self.secure_sums is not None:
            data = ProtocolData(data, present.dropped)
        return RoundInput((data, present.skipped), present.carried, present.metrics)

    def measure(self, metrics: Any) -> dict[str, float]:
        """See base class."""
        clients = np.asarray(metrics["aggregator"]["clients"])
        return {
            **super().measure(metrics),
            "empty_zones": int(np.sum(clients == 0)),
            **secure_notes.measured(metrics),
        }

    def accounted(self, metrics: Any) -> dict[str, Any]:
        """See base class. The noise of skipped zones is not counted."""
        threat = self.federation.threat
        if self.config.may_skip:
            threat = threat_of_round(threat, self.plan, metrics["skipped_zones"])
        events = round_events(metrics["aggregator"])
        return {"plan": self.plan, "threat": threat, "events": events}

    def notes_on_noise(self) -> tuple[str, ...]:
        """See base class."""
        notes = [
            OPERATOR_METRICS,
            str(self.plan.clipping),
            COHORT_KNOWN if self.config.cohort_known else COHORT_HIDDEN,
        ]
        if self.config.reads_examples:
            notes.append(OF_EXAMPLES)
        if self.config.may_skip:
            notes.append(SKIPPED_ZONES)
        if self.config.byzantine:
            notes.append(BYZANTINE)
        if not self.federation.threat.secure_sums_hold:
            notes.append(UNMASKED)
        return tuple(notes)

    def other_notes(self) -> tuple[str, ...]:
        """See base class."""
        config = self.config
        return secure_notes.notes(
            self.plan, config.secure_aggregation_protocol, signed=config.parties_sign
        )

    def promises(self, ledger: Ledger) -> list[dict[str, Any]]:
        """See base class: those of the plan's file."""
        return kept_promises(self.config, ledger.history)

    def finish(self, path: pathlib.Path, state: Any) -> str:
        """Writes who saw how many zone aggregates, where super-nodes are elected."""
        del state
        if self.elections is None:
            return ""
        return report_exposure(path)

    def _participation(self, entropy: int) -> Participation:
        if self.elections is not None and self.seats_path is not None:
            # Not in `build`: a model can be tested without them.
            check_complete(self.seats_path)
        return Participation(
            plan=self.plan,
            zoning=self.zoning,
            entropy=entropy,
            faults=self.config.faults,
            elections=self.elections,
        )


def _check_there(config: HdpConfig) -> None:
    """Says of a file that a run began with, and that is gone, how to go on."""
    for name in sorted(config.files):
        path = getattr(config, name)
        if path is not None and not pathlib.Path(path).exists():
            words = f"not there; give the run's command its new {name}, which "
            words += "config.json then names"
            raise FileNotFoundError(errno.ENOENT, words, path)


def _remember(
    name: str, value: Any, setting: str, config: HdpConfig, folder: RunFolder
) -> None:
    """Refuses to go on with other zones or capabilities than the run began with."""
    digest = hashlib.sha256(repr(value).encode()).hexdigest()
    if folder.resolved.get(name, digest) != digest:
        allowed = f"the {name} with which the run in out={folder.path} began"
        if getattr(config, setting) is None:
            # No file was read: the task's clients are others.
            setting, allowed = "task", f"clients as in {allowed}"
        raise ArgumentError(setting, getattr(config, setting), allowed)
    folder.resolve(**{name: digest})
