"""What an attack is asked. Imports nothing heavy before it is run."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

import tasks
from tff_hdp.attacks.vantage import Level, Vantage, most_exposed, parse_level
from tff_hdp.errors import (
    ArgumentError,
    check_count,
    check_delta,
    check_fields,
    check_left,
    check_positive,
    check_probability,
    check_seed,
    require,
)
from tff_hdp.privacy.configurations import CONFIGURATIONS, even_sizes, plan_of
from tff_hdp.privacy.parts import (
    Clipping,
    FullParticipation,
    PoissonSampling,
    check_rate,
)
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.planned import read_plan
from tff_hdp.privacy.planned_noise import check_multiplier
from tff_hdp.privacy.secure import SECURE_SUMS, secure_fields

RECONSTRUCTIONS = ("analytic", "dlg", "ig", "feature_ig")
# What looks for, or measures, an image.
OF_IMAGES = (*RECONSTRUCTIONS, "table4")
# What takes an update alone.
_OF_ONE = ("analytic", "feature_ig")
# What leaves something to draw.
DRAWN = (*OF_IMAGES, "membership", "observers", "lira", "rotation")
ATTACKS = (
    *RECONSTRUCTIONS,
    *("membership", "identification", "lira", "property", "update_difference"),
    *("rotation", "observers", "table4"),
)
# What a plan's file says in their place.
_OF_PLAN = (
    *("privacy", "alpha", "beta", "noise_multiplier"),
    *("zones", "clients", "secure_aggregation", "sampling_probability", "system"),
)
SYSTEMS = ("hdp", "fl_top", "udp_hypernet", "gfl", "hfl_dp")
# Zhu, Liu and Han's network, in place of the task's models.
ZHU = "zhu"
# What takes rounds in which not everybody takes part.
_SAMPLED = ("membership", "observers", "lira")
# What goes through modes and levels itself.
_OF_ALL = ("observers", "table4")
_OF_EACH = tuple(attack for attack in ATTACKS if attack not in _OF_ALL)
# What is bounded as finding one of so many candidates.
OF_CANDIDATES = (*OF_IMAGES, "identification", "rotation")
_TRIED = ("membership", "observers", "identification", "property", "rotation", "table4")
# Attacks that take a field; with others it is what it is by default.
_TAKEN_BY = {
    "restarts": ("dlg", "ig", "table4"),
    "evaluations": ("dlg", "ig", "feature_ig", "table4"),
    "trials": _TRIED,
    "others_known": _TRIED,
    "elected": _OF_EACH,
    "privacy": _OF_EACH,
    "level": _OF_EACH,
    "candidates": OF_CANDIDATES,
    "lpips_weights": OF_IMAGES,
}
# What attacks one victim after the other, or runs several rounds or models.
_OF_VICTIMS = (*OF_IMAGES, "lira", "update_difference")
# What a neighbour system has of its own.
_OF_SYSTEM = (
    *("privacy", "alpha", "beta", "plan", "level", "elected", "secure_aggregation"),
    *("sampling_probability", "rounds", "trials", "others_known"),
)
# The two of them that have neither zones nor servers.
_WITHOUT_ZONES = ("fl_top", "udp_hypernet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackConfig:
    """An attacker, its victims and where it stands; field names are flag names.

    The victim is the client whom least noise hides from the observer.

    Attributes:
      attack: What it does; `observers` is membership of every observer under every
        mode, `table4` the HDP paper's table over modes and levels.
      system: What is attacked: hdp, or by identification one of its neighbours, whose
        observers are those of its own account.
      task: Whose test examples are the victims.
      model: One of the task's models, or `zhu`, that of the DLG paper.
      weights: `init` for fresh ones, a run folder, or an .npz of them in Keras' order.
      privacy: Who adds noise (Table I); `observers` and `table4` go through modes and
        levels themselves.
      alpha: Share alpha of Table I, for c5, c7 and ldp_hdp.
      beta: Share beta of Table I, for c3, c6 and c7.
      noise_multiplier: z of every party that adds noise.
      plan: A file that scripts/plan.py wrote: its zones and noise in place of those
        here, with as many clients in each zone as its rounds expect, all there. Epsilon
        and bound are of that, the plan's own are scripts/account.py's.
      clip_norm: S; auto is the median norm of updates, of single examples or, with
        property and update_difference, of writers.
      zones: s zones of as many clients, give or take one; GFL's servers and HFL-DP's
        edges.
      clients: In all.
      sampling_probability: Of a client's taking part in a round (Poisson).
      level: Where the attacker is: 0 another client, 1 the victim's super-node, 2 the
        server, or outside, with the released model.
      secure_aggregation: Whose sums are secure: every `zone`'s, that over several
        zones which the `server` sees, `both` or `none`.
      elected: Whether the super-node is a client of the zone, and subtracts its part.
      learning_rate: Of the clients' SGD.
      local_steps: Each client's, on its one example.
      ratio: Share of weights that fl_top sends.
      victims: How many images to find, one after the other or in batches; of other
        systems than hdp, rounds to run; of lira, shadow models; of update_difference,
        runs. Other attacks draw theirs anew in every trial.
      restarts: Of a search; the best one counts.
      evaluations: Of a search's objective, or steps of Adam; None takes the attack's.
      candidates: M, of identification and its bound.
      trials: Of membership, identification, property and rotation.
      rounds: T, whose observations add up.
      others_known: Whether the attacker can subtract the other clients' records; else
        it knows how those of examples of its own vary.
      lpips_weights: An .npz of AlexNet's and LPIPS' weights; without it there is no
        LPIPS.
      delta: Of (epsilon, delta).
      figure: Draw to this file.
      out: Folder for the rows and the settings.
      seed: Fixes weights, victims, starts and trials. The noise of rounds that are run
        is never seeded; that of trials, which nobody is protected by, is.
      format: How to print.
      data_dir: Where local data packs lie; None reads $TFF_HDP_DATA.

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "attack": ATTACKS,
        "system": SYSTEMS,
        "task": tuple(tasks.TASKS),
        "privacy": tuple(CONFIGURATIONS),
        "secure_aggregation": SECURE_SUMS,
        "format": ("table", "csv", "json"),
    }

    attack: str = "identification"
    system: str = "hdp"
    task: str = "digits"
    model: str | None = None
    weights: str = "init"
    privacy: str = "hdp"
    alpha: float | None = None
    beta: float | None = None
    noise_multiplier: float = 1.0
    plan: str | None = None
    clip_norm: str = "auto"
    zones: int = 2
    clients: int = 4
    sampling_probability: float = 1.0
    level: str = "0"
    secure_aggregation: str = "none"
    elected: bool = False
    learning_rate: float = 0.02
    local_steps: int = 1
    ratio: float = 0.1
    victims: int = 8
    restarts: int = 1
    evaluations: int | None = None
    candidates: int = 10
    trials: int = 20_000
    rounds: int = 1
    others_known: bool = True
    lpips_weights: str | None = None
    delta: float = 1e-5
    figure: str | None = None
    out: str | None = None
    seed: int = 0
    format: str = "table"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in self.choices.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(name, getattr(self, name), ", ".join(allowed))
        self._check_ranges()
        self._check_system()
        self._check_fields_taken()
        # Refuses levels and observers that are not there.
        vantage = self.vantage(1.0)
        if self.attack in _OF_ONE and vantage.unknown_clients > 1:
            raise self._of_several(vantage)

    def _check_ranges(self) -> None:
        counts = ("zones", "clients", "local_steps", "victims", "restarts", "rounds")
        for name in counts:
            check_count(name, getattr(self, name), 1)
        # A curve needs some of either kind.
        of_curves = self.attack in ("membership", "observers", "property")
        check_count("trials", self.trials, 100 if of_curves else 1)
        if secure_fields(self.secure_aggregation)["secure_server"]:
            allowed = f"at least 2 with secure_aggregation={self.secure_aggregation}"
            require(self.zones > 1, "zones", self.zones, allowed)
        check_count("candidates", self.candidates, 2)
        check_seed("seed", self.seed)
        if self.evaluations is not None:
            check_count("evaluations", self.evaluations, 1)
        check_positive("learning_rate", self.learning_rate)
        check_multiplier(self.noise_multiplier)
        check_delta("delta", self.delta)
        if self.given_clip_norm is not None:
            check_positive("clip_norm", self.given_clip_norm)
        if self.zones > self.clients:
            raise ArgumentError("zones", self.zones, f"1..{self.clients}, the clients")
        if self.attack in OF_IMAGES and self.rounds > 1:
            allowed = "1 for a reconstruction, which is of one round"
            raise ArgumentError("rounds", self.rounds, allowed)

    def _check_system(self) -> None:
        if self.plan is not None:
            of_one = self.attack not in _OF_ALL
            require(of_one, "plan", self.plan, f"none with {self.attack}")
            check_left(self, _OF_PLAN, "nothing beside plan")
        if self.system == "hdp":
            check_left(self, ("ratio",), "nothing but with system=fl_top")
            if self.attack not in _OF_VICTIMS:
                check_left(self, ("victims",), f"nothing with {self.attack}")
        else:
            allowed = f"identification of {self.system}"
            require(self.attack == "identification", "attack", self.attack, allowed)
            check_left(self, _OF_SYSTEM, f"nothing with system={self.system}")
            if self.system in _WITHOUT_ZONES:
                check_left(self, ("zones",), f"nothing with system={self.system}")

    def _check_fields_taken(self) -> None:
        for name, attacks in _TAKEN_BY.items():
            if self.attack not in attacks:
                check_left(self, (name,), f"nothing with {self.attack}")
        if self.figure is not None and self.attack not in DRAWN:
            allowed = f"none with {self.attack}, whose results are a table"
            raise ArgumentError("figure", self.figure, allowed)
        # Of what is not taken no range is told.
        check_probability("ratio", self.ratio)
        check_rate("sampling_probability", self.sampling_probability)
        if self.sampling_probability < 1 and self.attack not in _SAMPLED:
            given, allowed = self.sampling_probability, f"1 with {self.attack}"
            raise ArgumentError("sampling_probability", given, allowed)
        if self.sampling_probability < 1:
            check_left(self, ("others_known",), "True where cohorts are drawn")

    @property
    def given_clip_norm(self) -> float | None:
        """S as a number, above 0; None where it is auto.

        Raises:
          ArgumentError: If it is neither.
        """
        if self.clip_norm == "auto":
            return None
        try:
            return float(self.clip_norm)
        except ValueError:
            allowed = "auto, or a number > 0"
            raise ArgumentError("clip_norm", self.clip_norm, allowed) from None

    def _of_several(self, vantage: Vantage) -> ArgumentError:
        """That a level leaves several clients unknown, and which would leave one."""
        levels: list[Level] = [*range(vantage.plan.server_level + 1), "outside"]
        at = functools.partial(most_exposed, vantage.plan)
        alone = [str(each) for each in levels if at(each).unknown_clients == 1]
        allowed = (
            f"{', '.join(alone) or 'none here'}, as {self.attack} is of one unknown "
            f"client, and there are {vantage.unknown_clients}"
        )
        return ArgumentError("level", self.level, allowed)

    def noise_plan(self, clip_norm: float, privacy: str | None = None) -> NoisePlan:
        """The noise plan of a round; of another privacy, as if that were asked for."""
        if self.plan is not None:
            return _cohort_of(read_plan(self.plan).plan, clip_norm)
        q = self.sampling_probability
        return plan_of(
            privacy or self.privacy,
            self.noise_multiplier,
            alpha=self.alpha,
            beta=self.beta,
            zone_sizes=even_sizes(self.clients, self.zones),
            sampling=(
                FullParticipation() if q == 1 else PoissonSampling((q,) * self.zones)
            ),
            clipping=Clipping(clip_norm=clip_norm),
            **secure_fields(self.secure_aggregation),
        )

    def vantage(
        self, clip_norm: float, *, privacy: str | None = None, level: str | None = None
    ) -> Vantage:
        """Where the attacker stands, S being known; its victim is the most exposed.

        Args:
          clip_norm: S.
          privacy: Of an attack that goes through modes itself; None is the config's.
          level: Likewise.

        Raises:
          ArgumentError: If the plan has no such observer.
        """
        return most_exposed(
            self.noise_plan(clip_norm, privacy),
            parse_level(level or self.level),
            elected=self.elected,
        )


def _cohort_of(plan: NoisePlan, clip_norm: float) -> NoisePlan:
    """A round of a plan as an attacker meets it: its cohort is all there is.

    Each zone has the clients that are expected in a round. Where all of a zone noise,
    all of them do; else the whole number below what is expected of those that noise.

    Raises:
      ArgumentError: If the plan has what such a round would not have.
    """
    for name, value, plain in (
        ("top_up", plan.top_up, False),
        ("estimator", plan.estimator, "fixed"),
        ("clipping", plan.clipping.kind, "flat"),
        ("zone_weights", plan.zone_weights, None),
    ):
        allowed = f"one with {name} {plain}, for an attack on its expected cohort"
        require(value == plain, "plan", f"one with {name} {value}", allowed)
    rates = plan.participation
    expected = map(float.__mul__, rates, map(float, plan.zone_sizes))
    sizes = tuple(max(1, round(n)) for n in expected)
    noising = tuple(
        # As floats, .29 of 100 are less than 29.
        size if m == n else min(size, int(q * m + 1e-9))
        for size, q, m, n in zip(
            sizes, rates, plan.noising_clients, plan.zone_sizes, strict=True
        )
    )
    return dataclasses.replace(
        plan,
        zone_sizes=sizes,
        sampling=FullParticipation(),
        clipping=Clipping(clip_norm=clip_norm),
        noising_clients=noising,
        encoding=None,
        min_zone_clients=1,
        size=NoisePlan.size,
    )
