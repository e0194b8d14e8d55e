"""What leading a zone teaches: once, several times or always, alone or together.

The HDP paper leaves open how much is leaked by "exposing a super-node only once to
aggregate gradient information multiple times". Every time a client leads its zone it
holds one more sum of it, with fresh noise; while others lead it gets the models, as
every client does. Everybody takes part in every round with the same record, so what
others add to the sum hides the client after many as after one.
"""

import dataclasses
from typing import Any

from tff_hdp.attacks.attacker import Attacker, Outcome
from tff_hdp.attacks.trials import Records
from tff_hdp.attacks.vantage import Held, Vantage, most_exposed


def rotation(attacker: Attacker, vantage: Vantage) -> Outcome:
    """Identification against the number of aggregates that were seen.

    Of a super-node (level 1) that leads for 1, 2, 5, ... of `rounds` rounds, with
    the other clients of the sum known and not; where it is elected, also of several
    that lead once each and tell one another what they saw and sent; of whoever gets
    the model (outside) with 0, 1, ... other super-nodes that tell their zones' outputs.

    Whoever is elected holds the models of all other rounds too, and stands beside one
    who never leads. Who knows the other clients makes use of these; who does not, of
    the aggregates alone, to which nothing is added where they have no noise. A
    super-node that is no client gets no models.
    """
    records = {known: attacker.records(vantage, known) for known in (True, False)}
    rounds = attacker.config.rounds
    allies = range(vantage.plan.num_zones if vantage.level == "outside" else 1)
    rows = [
        _row(attacker, standing, records, count)
        for standing in (
            most_exposed(
                vantage.plan,
                vantage.level,
                elected=vantage.elected,
                colluding_super_nodes=colluding,
            )
            for colluding in allies
        )
        for count in (*[0] * vantage.elected, *_counts(rounds))
    ]
    most = min(vantage.plan.zone_sizes[vantage.zone] - 1, rounds)
    for leaders in _counts(most) if vantage.elected else ():
        standing = dataclasses.replace(vantage, fellow_leaders=leaders - 1)
        row = _row(attacker, standing, records, leaders)
        rows.append(row | {"observer": "elected super-nodes together, each once"})
    return Outcome(rows)


def _row(
    attacker: Attacker,
    standing: Vantage,
    records: dict[bool, Records],
    seen: int,
) -> dict[str, Any]:
    config = attacker.config
    held = Held.of(standing, seen)
    if standing.elected:
        held = Held.by_leading(standing, seen, config.rounds)
    first, *models = held.parts
    if not seen:
        standing, models = first[0], [first]
    # To whoever knows the others all rounds are one with less noise.
    as_one = {"stddev": held.noise_multiplier * attacker.clip_norm, "rounds": 1}
    found = {}
    for known, rounds in ((True, as_one), (False, {"rounds": first[1]})):
        trials = attacker.trials(standing, records[known])
        trials = dataclasses.replace(trials, others_known=known, **rounds)
        found[known] = float(trials.identification(config.candidates).mean())
    return attacker.row(standing, held) | {
        "aggregates": seen,
        "models": sum(count for _, count in models),
        "models_noise_multiplier": models[0][0].noise_multiplier if models else None,
        "identified": found[True],
        "identified_others_unknown": found[False],
    }


def _counts(rounds: int) -> list[int]:
    """1, 2, 5, 10, ... up to `rounds`, which comes last."""
    steps = [k * 10**e for e in range(6) for k in (1, 2, 5)]
    return sorted({count for count in steps if count < rounds} | {rounds})
