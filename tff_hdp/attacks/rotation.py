"""What leading a zone teaches: once, several times or always, alone or together.

The HDP paper leaves open how much is leaked by "exposing a super-node only once to
aggregate gradient information multiple times". Every time a client leads its zone it
holds one more sum of it, with fresh noise. Everybody takes part in every round with the
same record, so what others add to the sum hides the client after many as after one.
"""

import dataclasses
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome, identified
from tff_hdp.attacks.membership import Records
from tff_hdp.attacks.vantage import Vantage


def rotation(attacker: Attacker, vantage: Vantage) -> Outcome:
    """Identification against the number of aggregates that were seen.

    Of a super-node (level 1) that leads for 1, 2, 5, ... of `rounds` rounds, with
    the other clients of the sum known and not; where it is elected, also of several
    that lead once each and tell one another what they saw and sent; of whoever gets
    the model (outside) with 0, 1, ... other super-nodes that tell their zones' outputs.

    Args:
      attacker: Its level is that of the observer.
      vantage: Where it stands.
    """
    records = {known: attacker.records(vantage, known) for known in (True, False)}
    seen = _counts(attacker.config.rounds)
    allies = range(vantage.plan.num_zones if vantage.level == "outside" else 1)
    rows = [
        _row(attacker, standing, records, count)
        for standing in (
            dataclasses.replace(vantage, colluding_super_nodes=colluding)
            for colluding in allies
        )
        for count in seen
    ]
    most = vantage.plan.zone_sizes[vantage.zone] - 1
    for leaders in _counts(most) if vantage.elected else ():
        standing = dataclasses.replace(vantage, fellow_leaders=leaders - 1)
        row = _row(attacker, standing, records, leaders)
        rows.append(row | {"observer": "elected super-nodes together, each once"})
    return Outcome(rows)


def _row(
    attacker: Attacker, standing: Vantage, records: dict[bool, Records], seen: int
) -> dict[str, Any]:
    found = {}
    for known in (True, False):
        own = dataclasses.replace(attacker.config, rounds=seen, others_known=known)
        columns = identified(own, standing, records[known], attacker.clip_norm)
        found[known] = columns["identified"]
    return attacker.row(standing, rounds=seen) | {
        "aggregates": seen,
        "identified": found[True],
        "identified_others_unknown": found[False],
    }


def _counts(rounds: int) -> list[int]:
    """1, 2, 5, 10, ... up to `rounds`, which comes last."""
    steps = [k * 10**e for e in range(6) for k in (1, 2, 5)]
    return sorted({count for count in steps if count < rounds} | {rounds})
