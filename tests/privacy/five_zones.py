"""Plans of five zones of ten clients, and what they promise after twenty rounds."""

from tff_hdp.privacy import (
    PoissonSampling,
    ThreatModel,
    account,
    configurations,
    worst,
)

SIZES = (10,) * 5
SAMPLING = PoissonSampling((0.3,) * 5)
DELTA = 1e-5


def epsilon(plan, observer, rounds=20, kind=None, **assumed):
    rows = account(plan, rounds, DELTA, ("rdp",), threat=ThreatModel(**assumed))
    return worst(rows, observer, kind).epsilon_rdp


def plan_of(config, z=1.0, **options):
    options = {"zone_sizes": SIZES, "sampling": SAMPLING} | options
    return configurations.CONFIGURATIONS[config](noise_multiplier=z, **options)
