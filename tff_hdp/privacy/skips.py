"""What it costs that a zone with too few participants is left out of a round."""

import math

from scipy import stats

from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.spectrum import Spectrum


def skips_reveal(plan: NoisePlan, zone: int) -> bool:
    """Whether leaving out the zone is only accounted with participation revealed.

    It is known then whether the zone is in, whatever the client's data. Hidden
    participation is accounted for clients that come or go and carry no noise.
    """
    carried = plan.client_noise_multiplier > 0 and plan.noising_clients[zone] > 0
    return plan.neighbours == "zero_out" or (carried and not plan.top_up)


def with_skips(plan: NoisePlan, zone: int, spectrum: Spectrum) -> Spectrum:
    """Noise variances with those rounds in which the client tips the balance.

    A zone with fewer than m participants is left out. With m - 1 others there,
    the client's coming decides whether the zone's sum, of norm up to m S, is in
    the output: the noise is worth 1/m^2 of its variance. With more others, its
    coming moves the output by S; with fewer, not at all. How many others there
    are does not depend on the client.

    Args:
      plan: Whose clients come and go independently of each other.
      zone: The client's zone.
      spectrum: Variances in units of the squared sensitivity if it is not left out.
    """
    m = plan.min_zone_clients
    rate = plan.participation[zone] * (1.0 - plan.dropout_rate)
    log_tips = float(stats.binom.logpmf(m - 1, plan.zone_sizes[zone] - 1, rate))
    log_rest = math.log(-math.expm1(log_tips)) if log_tips < 0.0 else -math.inf
    parts = sorted(
        (variance * scale, log_p + log_weight)
        for scale, log_weight in ((1.0, log_rest), (m**-2, log_tips))
        for variance, log_p in zip(
            spectrum.variances, spectrum.log_probabilities, strict=True
        )
        if log_weight > -math.inf
    )
    variances, log_probabilities = zip(*parts, strict=True)
    return Spectrum(variances, log_probabilities)
