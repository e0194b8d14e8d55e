"""A run under a plan's file: its noise, and that it keeps what was promised."""

import dataclasses
import hashlib
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.files import write_text
from tff_hdp.privacy import FixedSizeSampling, NoisePlan, ThreatModel
from tff_hdp.privacy.accountant import History, account
from tff_hdp.privacy.coalitions import sum_hides, sums_hold
from tff_hdp.privacy.planned import read_plan
from tff_hdp.privacy.threat import AccountedRound
from tff_hdp.reading import read_text
from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.hdp.config import HdpConfig
from tff_hdp.topology import Zoning


def with_own_plan(config: HdpConfig, folder: RunFolder) -> HdpConfig:
    """The settings with the run folder's copy of the plan, where there is one already.

    Refusals at the first start name the file that was given.

    Raises:
      ArgumentError: If the run began without the copy's like.
      FileError: If the file or its copy has changed since then, or holds no plan.
      FileNotFoundError: If there is neither.
    """
    if config.plan is None:
        return config
    given, copy = pathlib.Path(config.plan), folder.path / "plan.json"
    if "plan" in folder.resolved and copy.exists():
        for file in (copy, *([given] if given.exists() else ())):
            _of_run(file, folder)
        return dataclasses.replace(config, plan=str(copy))
    text = _of_run(given, folder)
    read_plan(given)
    folder.resolve(plan=_digest(text))
    return config


def with_plan_copied(config: HdpConfig, folder: RunFolder) -> HdpConfig:
    """The settings with the run folder's copy of the plan, made if there is none.

    The promises are read again after the last round, when the file given may be gone.

    Args:
      config: Of `with_own_plan`.
      folder: The run's.

    Raises:
      FileError: If the file has changed since `with_own_plan` read it.
    """
    if config.plan is None:
        return config
    copy = folder.path / "plan.json"
    text = _of_run(pathlib.Path(config.plan), folder)
    # Who tests a finished run's model may only read its folder.
    if not copy.exists() or copy.read_bytes() != text.encode():
        write_text(copy, text, durable=True)
    return dataclasses.replace(config, plan=str(copy))


def _of_run(file: pathlib.Path, folder: RunFolder) -> str:
    """A plan's text; refused if the run began with another."""
    text = read_text(file)
    if _digest(text) != folder.resolved.get("plan", _digest(text)):
        raise FileError(file, f"is not the plan that the run in {folder.path} has")
    return text


def with_plans_levels(config: HdpConfig, zoning: Zoning) -> Zoning:
    """The zones under the levels of a plan's file, where --levels has as many nodes.

    Which node a zone is beneath would else be dealt at random, and not as the plan's.

    Raises:
      FileError: If the file holds no plan.
    """
    if config.plan is None or not config.levels:
        return zoning
    plan = read_plan(config.plan).plan
    parents = _parents(plan)
    planned = plan.num_zones, *(max(level) + 1 for level in parents)
    if planned != zoning.level_sizes[1:]:
        return zoning
    return dataclasses.replace(zoning, parents=parents)


def noise_of_plan(
    config: HdpConfig, zoning: Zoning, options: Mapping[str, Any]
) -> NoisePlan:
    """The noise of a plan's file, for the run's zones.

    Args:
      config: The run's settings, with a plan.
      zoning: Its clients' zones.
      options: The run's fields of `NoisePlan` but for noise.

    Raises:
      ArgumentError: If the plan is for another federation.
      FileError: If the file holds none.
    """
    made = read_plan(config.plan).plan
    needed = {
        "zone_sizes": ("zones", options["zone_sizes"]),
        "sampling": ("clients_per_round", options["sampling"]),
        "mixing": ("mixing", options["mixing"]),
        "estimator": ("estimator", options.get("estimator", "fixed")),
        "secure_aggregation": ("secure_aggregation", config.zones_are_secure),
        "secure_server": ("secure_aggregation", config.server_is_secure),
        "min_zone_clients": ("min_zone_clients", options["min_zone_clients"]),
    }
    given = {field: getattr(made, field) for field in needed}
    needed["parents"] = ("levels", zoning.parents)
    given["parents"] = _parents(made)
    for field, (setting, here) in needed.items():
        if given[field] != here:
            there = f"its {field}: {given[field]}"
            allowed = f"a plan for this run's {setting}, {here}; {there}"
            raise ArgumentError("plan", config.plan, allowed)
    return dataclasses.replace(made, **options, encoding=None, top_up=False)


def _parents(plan: NoisePlan) -> tuple[tuple[int, ...], ...]:
    """Which node every node beneath a level is under, by level."""
    return tuple(level.parents for level in plan.upper_levels)


def noising(config: HdpConfig, plan: NoisePlan, zoning: Zoning) -> list[int]:
    """Indices of the clients that a plan's file names as noising, if it names any.

    Raises:
      ArgumentError: If one is no client of this run, or a zone has other than so many.
    """
    if config.plan is None or not plan.clients_carry_noise:
        return []
    ids = read_plan(config.plan).noising
    place = {client: i for i, client in enumerate(zoning.client_ids)}
    strangers = [client for client in ids if client not in place]
    chosen = [place[client] for client in ids if client in place]
    zones = np.asarray(zoning.zone_of)[np.asarray(chosen, int)]
    counts = np.bincount(zones, minlength=zoning.num_zones)
    if strangers or (ids and tuple(counts) != plan.noising_clients):
        why = f"none is called {strangers[0]!r}" if strangers else "zones differ"
        allowed = f"a plan whose noising clients are this run's; {why}"
        raise ArgumentError("plan", config.plan, allowed)
    return chosen


def check_promises(config: HdpConfig, plan: NoisePlan, threat: ThreatModel) -> None:
    """Refuses a run that would break what its plan promises.

    Fewer rounds, a larger delta and parties that do less harm than the plan assumes
    are fine: promises are accounted with the plan's delta and what it assumes.

    Raises:
      ArgumentError: If it would.
    """
    made = read_plan(config.plan)
    cohort_is_known = made.threat.cohort_known or made.threat.participation_revealed
    # Whose zone is left out for want of a super-node, the plan does not account for.
    skipping_costs_noise = plan.clients_carry_noise or plan.secure_server
    elected = made.threat.elected_super_nodes
    colluding = made.threat.colluding_clients
    in_zone = made.threat.colluders_in_zone
    # Otherwise those who carry no noise know and do nothing that the account is about.
    size_matters = threat.peers_known or isinstance(plan.sampling, FixedSizeSampling)
    size_matters = size_matters or plan.min_zone_clients > 1
    for name, ok, allowed in (
        ("rounds", config.rounds <= made.rounds, f"at most {made.rounds}"),
        ("delta", config.delta >= made.delta, f"at least {made.delta}"),
        ("cohort_known", cohort_is_known or not threat.cohort_known, "False"),
        (
            "secure_aggregation_protocol",
            made.threat.peers_known or not threat.peers_known,
            "intrinsic",
        ),
        (
            "secure_aggregation_protocol",
            _bears_colluders(config, plan, made.threat),
            "one whose sums the colluders that the plan assumes cannot unmask",
        ),
        (
            "drop_rate",
            config.drop_rate <= made.threat.dropout_rate,
            f"at most {made.threat.dropout_rate}",
        ),
        (
            "online_rate",
            # 1 - .95 is not .05 in floating point.
            threat.dropout_rate <= made.threat.dropout_rate + 1e-12,
            f"what with drop_rate loses at most {made.threat.dropout_rate:g} of those "
            "drawn",
        ),
        ("elect_super_nodes", elected or not threat.elected_super_nodes, "none"),
        (
            "elect_super_nodes",
            not (skipping_costs_noise and threat.elected_super_nodes),
            "none, as a zone may go without and then lacks its noise",
        ),
        (
            "supernode_failure_rate",
            not (skipping_costs_noise and config.may_skip),
            "0, as a zone may go without and then lacks its noise",
        ),
        (
            "byzantine",
            threat.secure_sums_hold or not made.threat.secure_sums_hold,
            "a share that cannot unmask secure sums",
        ),
        (
            "byzantine",
            threat.colluding_clients <= colluding
            and (threat.colluders_in_zone <= in_zone or not size_matters),
            f"a share of at most {colluding} noising clients and {in_zone} of a zone",
        ),
    ):
        if not ok:
            found = getattr(config, name)
            allowed = f"{allowed}, which the promises of {config.plan} are for"
            raise ArgumentError(name, found, allowed)
    # A file may say that it keeps what it does not, and a sum on a grid, with weights
    # of its own or beside the count of adaptive clipping is not the one planned for.
    run = AccountedRound(plan, made.threat)
    for promise, epsilon in made.reached([(run, config.rounds)]):
        if epsilon > promise.epsilon:
            allowed = f"a plan whose {promise} this run keeps; it would reach "
            raise ArgumentError("plan", config.plan, f"{allowed}{epsilon:.5g}")


def _bears_colluders(config: HdpConfig, plan: NoisePlan, assumed: ThreatModel) -> bool:
    """Whether every secure sum that the account relies on hides its parties.

    The account knows of majorities (`sum_hides`, `ThreatModel.sums_over`), and not that
    the run's protocol may bear fewer.
    """
    allies = np.asarray(assumed.colluding_super_nodes)
    total_is_relied_on = config.server_is_secure and assumed.sums_over(plan.num_zones)
    there = plan.num_zones - assumed.skipped_zones
    if total_is_relied_on and there <= config.most_unmasked(allies):
        return False
    relied_on = [
        min(assumed.colluders_in_zone, size - 1) * sum_hides(plan, assumed, zone)
        for zone, size in enumerate(plan.zone_sizes)
    ]
    return not config.zones_are_secure or sums_hold(
        plan,
        relied_on,
        assumed.dropout_rate,
        config.most_unmasked,
        elected=assumed.elected_super_nodes,
    )


def kept_promises(config: HdpConfig, history: History) -> list[dict[str, Any]]:
    """What a run's promises came to, for privacy.json; none without a plan."""
    if config.plan is None:
        return []
    made = read_plan(config.plan)
    # What epsilons rest on is of any rounds what it is of one.
    rows = account(made.plan, 1, made.delta, ("rdp",), threat=made.threat)
    return [
        {
            "promise": str(promise),
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": made.delta,
            "method": made.method,
            "rests_on": list(
                dict.fromkeys(
                    f"{row.neighbours} neighbours; {row.sampling}"
                    for row in rows
                    if row.observer == promise.observer
                )
            ),
            "kept": epsilon <= promise.epsilon,
        }
        for promise, epsilon in made.reached(history)
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
