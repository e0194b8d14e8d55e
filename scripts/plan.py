r"""Finds the plan with the least noise that keeps some promises.

python scripts/plan.py --trust_nobody=0.3 \
    --promises="super_node<=30,aggregator<=8,released_model<=2"
python scripts/plan.py --promises="aggregator<=8,released_model<=2" \
    --zoning_file=zones.csv --trust_file=trust.csv --out=plan.json
python scripts/plan.py --promises="aggregator<=8,released_model<=2" --task=digits \
    -- --client_learning_rate=0.1 --clip_norm=0.5

--out writes the plan for --plan of the programs that train and account. --task says
what each promise costs in accuracy; what follows -- goes to those trainings.
docs/planner.md explains what comes out.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import tqdm

import tasks
from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError, check_count, check_left, require
from tff_hdp.privacy.config import FederationConfig
from tff_hdp.privacy.configurations import largest_remainder, share_of_clients
from tff_hdp.privacy.parts import PoissonSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.secure import secure_fields

if TYPE_CHECKING:
    from scripts.parts.plan_costs import Reached
    from tff_hdp.privacy.planned import Planned
    from tff_hdp.privacy.promises import Promise

TRUST = ("nobody", "super_node", "server")
OF_TASK = ("task_rounds", "task_out", "seeds", "jobs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanConfig(FederationConfig):
    """A federation, whom its clients trust, and what they are promised.

    Attributes:
      promises: OBSERVER<=EPSILON,...: super_node (super_node:2 for one of level 2),
        aggregator, released_model, fellow_super_node, fellow_client.
      trust_nobody: Share of every zone's clients that noise their own updates.
      trust_server: Share that trusts the server; the rest trusts its super-node.
      trust_file: client,trust as CSV, with nobody, super_node or server, in place of
        shares; needs zoning_file.
      method: The account that keeps the promises.
      relax: Whether to tell what 10 % more epsilon would save of each.
      out: Where to write the plan.
      task: Also train on it, to say what each promise costs in accuracy: without
        noise, then with the promises one after the other. It stands in for the
        federation's own data.
      task_rounds: Of those trainings, at most --rounds.
      task_out: Their folder; the same command resumes them.
      seeds: A training of each for each.
      jobs: Trainings at a time.

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
      FileError: If a file is not as it should be.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **FederationConfig.choices,
        "format": ("table", "json"),
        "method": ("rdp", "pld"),
        "task": tuple(tasks.TASKS),
    }

    promises: tuple[str, ...] = ()
    trust_nobody: float = 0.0
    trust_server: float = 0.0
    trust_file: str | None = None
    method: str = "pld"
    relax: bool = True
    out: str | None = None
    task: str | None = None
    task_rounds: int = 30
    task_out: str = "runs/plan"
    seeds: tuple[str, ...] = ("0", "1", "2")
    jobs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "promises", tuple(self.promises))
        nobody, server = self.trust_nobody, self.trust_server
        require(0.0 <= nobody <= 1.0, "trust_nobody", nobody, "[0, 1]")
        allowed = f"[0, {1.0 - nobody:g}]"
        # 0.9 and 0.1 are 1 and no more.
        ok = 0.0 <= server <= 1.0 - nobody + 1e-9
        require(ok, "trust_server", server, allowed)
        if self.trust_file is not None:
            has = self.zoning_file is not None
            require(has, "trust_file", self.trust_file, "a file with zoning_file only")
            shares = nobody or server
            require(not shares, "trust_file", self.trust_file, "none beside shares")
        check_count("task_rounds", self.task_rounds, 1)
        check_count("jobs", self.jobs, 1)
        cli.check_seeds(self.seeds)
        if self.task is None:
            check_left(self, OF_TASK, "only with task")

    def planned(
        self, first: int | None = None, say: Callable[[str], None] = lambda words: None
    ) -> "Planned":
        """The plan.

        Args:
          first: For so many of the promises only, from the clients up; for all if None.
          say: Told in words what is being done.

        Raises:
          ArgumentError: If no noise keeps a promise.
        """
        from tff_hdp.privacy import planner
        from tff_hdp.privacy.promises import from_clients_up

        promises = sorted(map(_promise, self.promises), key=from_clients_up)
        noising, trusting = self._trust()
        options = self.options()
        if self._zones_are_secure:
            # As training has it: the sum of one client would be its update.
            options["min_zone_clients"] = max(2, self.min_zone_clients)
        if self.sampling == "full":
            # As training has it; accounts are the same.
            options["sampling"] = PoissonSampling((1.0,) * len(self.sizes))
        federation = NoisePlan(noising_clients=noising, **options)
        found = planner.plan(
            federation,
            promises[:first],
            rounds=self.rounds,
            delta=self.delta,
            trusting=trusting,
            threat=self.threat,
            method=self.method,
            relax=self.relax and first is None,
            say=say,
        )
        named = (c for c, trusts in self._named.items() if trusts == "nobody")
        return dataclasses.replace(found, noising=tuple(named))

    def train_flags(self, *, stand_in: bool = False) -> list[str]:
        """The flags of scripts/train.py that the plan's federation needs.

        Args:
          stand_in: Whether its clients are others, in zones of the same sizes.
        """
        flags = [f"--num_clients={sum(self.sizes)}"]
        flags += ["--sampling=fixed"] if self.sampling == "fixed" else []
        flags.append(f"--clients_per_round={str(self.cohort).removesuffix('.0')}")
        if self.zoning_file is not None and not stand_in:
            flags += ["--zoning=file", f"--zoning_file={self.zoning_file}"]
        else:
            flags.append(f"--zone_sizes={','.join(map(str, self.sizes))}")
        if self.levels:
            flags.append(f"--levels={','.join(map(str, self.levels))}")
        if self.secure_aggregation != "none":
            flags.append(f"--secure_aggregation={self.secure_aggregation}")
        if self._zones_are_secure and self.peers_known:
            flags.append("--secure_aggregation_protocol=bonawitz")
        if self._zones_are_secure and self.min_zone_clients > 2:
            flags.append(f"--min_zone_clients={self.min_zone_clients}")
        flags += ["--mixing=equal"] if self.mixing == "equal" else []
        flags += ["--cohort_known"] if self.cohort_known else []
        flags += [f"--drop_rate={self.dropout_rate}"] if self.dropout_rate else []
        elects = self.elected_super_nodes and not self._unelected
        flags += ["--elect_super_nodes=rotate"] if elects else []
        return [*flags, f"--rounds={self.rounds}", f"--delta={self.delta}"]

    @property
    def _unelected(self) -> bool:
        """Whether no training with elections keeps what is planned.

        A zone that elects nobody is left out, and lacks its clients' noise.
        """
        noised = self.trust_nobody > 0 or self.trust_file is not None
        server = secure_fields(self.secure_aggregation)["secure_server"]
        return noised or server

    @property
    def _zones_are_secure(self) -> bool:
        return secure_fields(self.secure_aggregation)["secure_aggregation"]

    def untold(self) -> list[str]:
        """Flags of the plan that scripts/train.py cannot be given."""
        names = ["colluding_super_nodes", "colluding_clients", "neighbours"]
        names += ["elected_super_nodes"] if self._unelected else []
        names += [] if self._zones_are_secure else ["peers_known"]
        given = [f"--{name}" for name in names if getattr(self, name)]
        revealed = ["--sampling=revealed"] if self.sampling == "revealed" else []
        return given + revealed

    def _trust(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Per zone, how many clients trust nobody, and how many the server."""
        if self.trust_file is None:
            nobody = share_of_clients("trust_nobody", self.trust_nobody, self.sizes)
            rest = [
                min(self.trust_server * n, n - a)
                for n, a in zip(self.sizes, nobody, strict=True)
            ]
            return nobody, largest_remainder(rest)
        zone_of = dict(zip(self.zoning.client_ids, self.zoning.zone_of, strict=True))
        counts = {word: [0] * len(self.sizes) for word in TRUST}
        for client, word in self._named.items():
            counts[word][zone_of[client]] += 1
        return tuple(counts["nobody"]), tuple(counts["server"])

    @functools.cached_property
    def _named(self) -> dict[str, str]:
        """Whom each client trusts, by trust_file; nobody is named without one."""
        if self.trust_file is None:
            return {}
        from tff_hdp.topology.attributes import load_attribute

        ids = self.zoning.client_ids
        found = load_attribute(self.trust_file, "trust", client_ids=ids)
        for client, word in found.items():
            if word not in TRUST:
                allowed = ", ".join(TRUST)
                why = f"client {client!r} trusts {word!r}; allowed: {allowed}"
                raise FileError(self.trust_file, why)
        return found


def define_flags() -> None:
    """Defines the flags, those of `PlanConfig`."""
    cli.define_flags(PlanConfig)


def main(words: list[str]) -> int:
    """Prints the plan that the flags ask for."""
    from scripts.parts import plan_text

    config = cli.config_from_flags(PlanConfig)
    if config.task is None:
        cli.refuse_words(words)
    if config.out and not pathlib.Path(config.out).resolve().parent.is_dir():
        raise ArgumentError("out", config.out, "a file in a folder there is")
    with _said() as say:
        found = config.planned(say=say)
    if config.out:
        found.write(config.out)
    reached: list[Reached] = []
    if config.task is not None:
        from scripts.parts import plan_costs

        reached = plan_costs.train(config, words)
    if config.format == "json":
        print(plan_text.as_json(config, found, reached))
    else:
        print(plan_text.as_text(config, found, reached, words))
    return 0


@contextlib.contextmanager
def _said() -> Iterator[Callable[[str], None]]:
    """Says on a terminal what is being done, in a line that goes when it is done."""
    with tqdm.tqdm(bar_format="{desc} [{elapsed}]", leave=False, disable=None) as line:
        yield line.set_description_str


def _promise(words: str) -> "Promise":
    from tff_hdp.privacy.promises import Promise

    observer, _, epsilon = (part.strip() for part in words.partition("<="))
    name, colon, level = (part.strip() for part in observer.partition(":"))
    try:
        return Promise(name, float(epsilon), int(level) if colon else 1)
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError("promises", words, "OBSERVER<=EPSILON,...") from error


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags, takes_words=True))
