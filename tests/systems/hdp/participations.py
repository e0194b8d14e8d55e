"""Twenty-four clients in three zones, who take part in rounds without training."""

import json

from tff_hdp.privacy import PoissonSampling, configurations
from tff_hdp.systems.hdp.attendance import Elections, Participation
from tff_hdp.systems.hdp.faults import Faults
from tff_hdp.systems.hdp.seats import write_seats
from tff_hdp.topology import Zoning

IDS = tuple(f"c{i}" for i in range(24))
ZONING = Zoning(IDS, tuple(i % 3 for i in range(24)))
DRAWN = Elections(run_protocol=False, call_size=7)
# Elections held in full, where super-nodes fail.
FULL = {
    "elections": Elections(call_size=5),
    "faults": Faults(supernode_failure_rate=0.5, byzantine=((1, 0.13),)),
}


def participation(*, q=0.4, entropy=11, **options):
    plan = configurations.none(
        zone_sizes=ZONING.zone_sizes, sampling=PoissonSampling((q,) * 3)
    )
    return Participation(plan=plan, zoning=ZONING, entropy=entropy, **options)


def run(parties, rounds, carried=None, first=1):
    """The attendance of every round, each carried over through JSON."""
    carried = carried or {}
    found = []
    for number in range(first, first + rounds):
        present = parties.attend(number, carried)
        carried = json.loads(json.dumps(present.carried))
        found.append(present)
    return found


def hold(path):
    """Three rounds with elections held in full, which are kept in a folder."""
    parties = participation(**FULL)
    rounds = run(parties, 3)
    for number, present in enumerate(rounds, start=1):
        write_seats(path, number, present.seats, parties.registries())
    return rounds


def same(a, b):
    keys = ("zone", "super_node", "failed", "refused", "elections", "transcripts")
    return (
        a.cohort.tolist() == b.cohort.tolist()
        and a.byzantine.tolist() == b.byzantine.tolist()
        and a.carried == b.carried
        and [[getattr(s, k) for k in keys] for s in a.seats]
        == [[getattr(s, k) for k in keys] for s in b.seats]
    )
