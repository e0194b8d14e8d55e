r"""Finds the plan with the least noise that keeps some promises.

python scripts/plan.py --trust_nobody=0.3 \
    --promises="super_node<=30,aggregator<=8,released_model<=2"
python scripts/plan.py --promises="aggregator<=8,released_model<=2" \
    --zoning_file=zones.csv --trust_file=trust.csv --out=plan.json

--out writes the plan for --plan of scripts/train.py and scripts/account.py.
docs/planner.md explains what comes out.
"""

import csv
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tff_hdp import cli
from tff_hdp.errors import ArgumentError, FileError, require
from tff_hdp.privacy.config import FederationConfig
from tff_hdp.privacy.configurations import largest_remainder
from tff_hdp.privacy.plan import NoisePlan

if TYPE_CHECKING:
    from tff_hdp.privacy.planner import Planned, Promise

TRUST = ("nobody", "super_node", "server")


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

    Raises:
      ArgumentError: If a field is out of range or two contradict each other.
      FileError: If a file is not as it should be.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **FederationConfig.choices,
        "format": ("table", "json"),
        "method": ("rdp", "pld"),
    }

    promises: tuple[str, ...] = ()
    trust_nobody: float = 0.0
    trust_server: float = 0.0
    trust_file: str | None = None
    method: str = "pld"
    relax: bool = True
    out: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "promises", tuple(self.promises))
        nobody, server = self.trust_nobody, self.trust_server
        require(0.0 <= nobody <= 1.0, "trust_nobody", nobody, "[0, 1]")
        allowed = f"[0, {1.0 - nobody:g}]"
        require(0.0 <= server <= 1.0 - nobody, "trust_server", server, allowed)
        if self.trust_file is not None:
            has = self.zoning_file is not None
            require(has, "trust_file", self.trust_file, "a file with zoning_file only")
            shares = nobody or server
            require(not shares, "trust_file", self.trust_file, "none beside shares")

    def planned(self) -> "Planned":
        """The plan.

        Raises:
          ArgumentError: If no noise keeps a promise.
        """
        from tff_hdp.privacy import planner

        noising, trusting = self._trust()
        options = self.options()
        if self.secure_aggregation:
            # As training has it: the sum of one client would be its update.
            options["min_zone_clients"] = max(2, self.min_zone_clients)
        federation = NoisePlan(noising_clients=noising, **options)
        return planner.plan(
            federation,
            [_promise(words) for words in self.promises],
            rounds=self.rounds,
            delta=self.delta,
            trusting=trusting,
            threat=self.threat,
            method=self.method,
            relax=self.relax,
        )

    def train_flags(self) -> list[str]:
        """The flags of scripts/train.py that the plan's federation needs."""
        flags = ["--sampling=fixed"] if self.sampling == "fixed" else []
        flags.append(f"--clients_per_round={self.clients_per_round!r}")
        if self.zoning_file is not None:
            flags += ["--zoning=file", f"--zoning_file={self.zoning_file}"]
        else:
            flags.append(f"--zone_sizes={','.join(map(str, self.sizes))}")
        if self.levels:
            flags.append(f"--levels={','.join(map(str, self.levels))}")
        secure = {(True, True): "both", (True, False): "zone", (False, True): "server"}
        sums = secure.get((self.secure_aggregation, self.secure_server))
        flags += [f"--secure_aggregation={sums}"] if sums else []
        if self.secure_aggregation and self.min_zone_clients > 2:
            flags.append(f"--min_zone_clients={self.min_zone_clients}")
        flags += ["--mixing=equal"] if self.mixing == "equal" else []
        flags += ["--cohort_known"] if self.cohort_known else []
        flags += [f"--drop_rate={self.dropout_rate:g}"] if self.dropout_rate else []
        return [*flags, f"--rounds={self.rounds}", f"--delta={self.delta:g}"]

    def _trust(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Per zone, how many clients trust nobody, and how many the server."""
        if self.trust_file is None:
            nobody = largest_remainder([self.trust_nobody * n for n in self.sizes])
            rest = [
                min(self.trust_server * n, n - a)
                for n, a in zip(self.sizes, nobody, strict=True)
            ]
            return nobody, largest_remainder(rest)
        zoning = self.zoning
        zone_of = dict(zip(zoning.client_ids, zoning.zone_of, strict=True))
        counts = {word: [0] * len(self.sizes) for word in TRUST}
        with open(self.trust_file, newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                client, word = row.get("client"), row.get("trust")
                if client not in zone_of or word not in TRUST:
                    raise FileError(
                        self.trust_file,
                        f"line {rows.line_num}: needs a client of zoning_file, once, "
                        f"and one of {', '.join(TRUST)}; found {client}, {word}",
                    )
                counts[word][zone_of.pop(client)] += 1
        if zone_of:
            raise FileError(self.trust_file, f"lacks client {next(iter(zone_of))!r}")
        return tuple(counts["nobody"]), tuple(counts["server"])


def define_flags() -> None:
    """Defines the flags, those of `PlanConfig`."""
    cli.define_flags(PlanConfig)


def main(argv: list[str]) -> int:
    """Prints the plan that the flags ask for."""
    cli.refuse_arguments(argv)
    config = cli.config_from_flags(PlanConfig)
    if config.out and not pathlib.Path(config.out).resolve().parent.is_dir():
        raise ArgumentError("out", config.out, "a file in a folder there is")
    found = config.planned()
    if config.out:
        found.write(config.out)
    print(_as_json(found) if config.format == "json" else _as_text(config, found))
    return 0


def _promise(words: str) -> "Promise":
    from tff_hdp.privacy.planner import Promise

    observer, _, epsilon = words.strip().partition("<=")
    name, colon, level = observer.partition(":")
    try:
        return Promise(name, float(epsilon), int(level) if colon else 1)
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError("promises", words, "OBSERVER<=EPSILON,...") from error


def _as_json(found: "Planned") -> str:
    fields = dataclasses.asdict(found)
    return json.dumps(fields, indent=2)


def _as_text(config: PlanConfig, found: "Planned") -> str:
    plan = found.plan
    zones = sorted(set(plan.zone_noise_multipliers))
    lines = [
        f"client noise multiplier  {plan.client_noise_multiplier:.6g}",
        f"zone noise multiplier    {_range(zones)}",
        *(
            f"level {number} multiplier       {_range(sorted(set(each)))}"
            for number, each in enumerate(
                (level.noise_multipliers for level in plan.upper_levels), start=2
            )
        ),
        f"server noise multiplier  {plan.server_noise_multiplier:.6g}",
        f"noise in the model       {found.noise:.6g} clip norms",
        "",
        f"{'promise':28}{'epsilon':>10}{'its noise':>12}{'10 % more saves':>18}",
    ]
    for kept in found.kept:
        noise = f"{kept.noise:.4g}" if kept.noise else "none"
        saved = "" if kept.saved is None else f"{100 * kept.saved:.3g} %"
        lines.append(f"{kept.promise!s:28}{kept.epsilon:>10.6g}{noise:>12}{saved:>18}")
    lines += [
        "",
        f"By {found.method.upper()}, {found.rounds} rounds, delta {found.delta:g}. A "
        "promise without noise of its own is kept by that of others. What each rests "
        "on: scripts/account.py --plan.",
    ]
    if config.out:
        flags = " ".join([f"--plan={config.out}", *config.train_flags()])
        lines += ["", f"python scripts/train.py {flags}"]
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    low, high = f"{values[0]:.6g}", f"{values[-1]:.6g}"
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    define_flags()
    sys.exit(cli.run(main))
