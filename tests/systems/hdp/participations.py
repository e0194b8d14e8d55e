"""Twenty-four clients in three zones, who take part in rounds without training."""

import json

from tff_hdp.privacy import PoissonSampling, configurations
from tff_hdp.systems.hdp.attendance import Elections, Participation
from tff_hdp.topology import Zoning

IDS = tuple(f"c{i}" for i in range(24))
ZONING = Zoning(IDS, tuple(i % 3 for i in range(24)))
DRAWN = Elections(run_protocol=False, call_size=7)


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


def same(a, b):
    keys = ("zone", "super_node", "failed", "refused", "elections", "transcripts")
    return (
        a.cohort.tolist() == b.cohort.tolist()
        and a.byzantine.tolist() == b.byzantine.tolist()
        and a.carried == b.carried
        and [[s[k] for k in keys] for s in a.seats]
        == [[s[k] for k in keys] for s in b.seats]
    )
