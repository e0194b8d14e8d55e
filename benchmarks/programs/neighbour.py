"""A neighbour system's rounds: as its script runs them, client by client, in a loop.

All take their clients' data, models and settings from the system that the config
builds. Alone, every client is a TFF client of its own; where it is so by default, a
loop over the users without TFF takes its place. In the loop every round draws its
cohort, and the next one's data is prepared beside it.
"""

import collections
import concurrent.futures
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import neighbour_works
import numpy as np
import tensorflow as tf
from programs.user_loop import UserLoop
from serving import Federation, read_spec, serve

from tff_hdp import runtime
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.simulation.system import Process, System
from tff_hdp.systems.gfl.process import build_gfl, cohort_type


class SystemFederation:
    """A system's process over one cohort's data.

    Args:
      system: Gives the initial state and tells its weights.
      process: What runs a round.
      data: The clients' data, the same every round.
    """

    def __init__(self, system: System, process: Process, data: Sequence[Any]) -> None:
        self._system, self._process, self._data = system, process, data
        self._state = system.initial_state(neighbour_works.SEED)

    def round(self) -> None:
        """Runs one round."""
        self._state = self._process.next(self._state, self._data).state

    def weights(self) -> list[np.ndarray]:
        """All parameters of the state's models."""
        return [np.asarray(w) for w in self._system.weights_of(self._state)]


class LoopFederation(SystemFederation):
    """A system's rounds with the data of the next one prepared meanwhile.

    A round ends when both are done, so that nothing is prepared in others' turns.

    Args:
      system: As the training loop takes it.
    """

    def __init__(self, system: System) -> None:
        super().__init__(system, system.process, ())
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._number = 0
        self._data = self._prepared()

    def round(self) -> None:
        """Runs one round, and prepares another."""
        coming = self._thread.submit(self._prepared)
        super().round()
        self._data = coming.result()

    def _prepared(self) -> Sequence[Any]:
        self._number += 1
        return self._system.prepare(neighbour_works.SEED, self._number, {}).data


def builder(spec: dict[str, Any]) -> Callable[..., Federation]:
    """Installs the runtime; returns how to build the spec's program.

    Args:
      spec: `work` and `program`: `stacked`, `alone` or `loop`.
    """
    work = spec["work"]
    neighbour_works.use_made_up_examples()
    runtime.set_context("in_process")
    makers = {"stacked": _stacked, "loop": _loop, "alone": _ALONE[work.system]}
    make = makers[spec["program"]]
    return lambda *, noisy: make(work, noisy)


def _stacked(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    system = _system(work, noisy)
    return SystemFederation(system, system.process, _round_data(system))


def _loop(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    return LoopFederation(_system(work, noisy))


def _gfl_alone(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    system = _system(work, noisy)
    process = build_gfl(
        build_model=system.task.build_model,
        data_type=cohort_type(
            *system.task.train.feature_spec, plan=system.plan, servers=1
        ),
        plan=system.plan,
        mixing=np.kron(np.eye(system.config.repetitions), system.mixing),
        ridge=system.config.ridge,
    )
    return SystemFederation(system, process, list(_cohort_apart(_round_data(system))))


def _cohort_apart(data: Sequence[tf.data.Dataset]) -> Iterator[tf.data.Dataset]:
    """A data set for each client of each server, of those of cohorts."""
    for cohort in data:
        fields = cohort.get_single_element()
        servers, clients = fields["labels"].shape[:2]
        for server in range(servers):
            own = slice(server, server + 1)
            for client in range(clients):
                yield tf.data.Dataset.from_tensors(
                    collections.OrderedDict(
                        (
                            name,
                            value[own]
                            if name == "zone"
                            else value[own, client : client + 1],
                        )
                        for name, value in fields.items()
                    )
                )


def _hfl_dp_alone(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    system = _system(work, noisy)
    data = list(_chunks_apart(_round_data(system)))
    return SystemFederation(system, system.process, data)


def _chunks_apart(data: Sequence[tf.data.Dataset]) -> Iterator[tf.data.Dataset]:
    """A data set for each client, of those of chunks."""
    for chunk in data:
        fields = chunk.get_single_element()
        for client in range(fields["labels"].shape[0]):
            yield tf.data.Dataset.from_tensors(
                collections.OrderedDict(
                    (name, value if name == "zone" else value[client : client + 1])
                    for name, value in fields.items()
                )
            )


def _fl_top_alone(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    system = _system(work, noisy, cohort_chunk=1)
    return SystemFederation(system, system.process, _round_data(system))


def _udp_alone(work: neighbour_works.Neighbour, noisy: bool) -> Federation:
    system = _system(work, noisy)
    data = list(_chunks_apart(_round_data(system)))
    return UserLoop(system, data, neighbour_works.SEED)


_ALONE = {
    "gfl": _gfl_alone,
    "hfl_dp": _hfl_dp_alone,
    "fl_top": _fl_top_alone,
    "udp_hypernet": _udp_alone,
}


def _system(work: neighbour_works.Neighbour, noisy: bool, **changes: Any) -> System:
    with tempfile.TemporaryDirectory() as parent:
        out = str(pathlib.Path(parent) / "run")
        config = work.config(noisy=noisy, out=out, **changes)
        with RunFolder(config) as folder:
            folder.resolve(partition_seed=neighbour_works.SEED)
            return config.build(folder)


def _round_data(system: System) -> list[tf.data.Dataset]:
    """Round 1 of the first clients of every zone, as many as are expected."""
    zones = zip(system.zoning.members, system.sampling.participation, strict=True)
    cohort = np.concatenate([zone[: round(q * len(zone))] for zone, q in zones])
    sampler = CohortSampler(
        plan=system.sampling, zoning=system.zoning, entropy=neighbour_works.SEED
    )
    return system.round_data(1, cohort, sampler.batch_generators(1))


if __name__ == "__main__":
    options = read_spec(neighbour_works.Neighbour)
    serve(builder(options), options["replies"])
