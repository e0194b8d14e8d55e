"""What a plan holds, as all who must know all of it know it."""

import dataclasses

from tff_hdp.privacy import NoisePlan

KNOWN = {
    *("zone_sizes", "sampling", "clipping", "estimator", "zone_weights", "mixing"),
    *("client_noise_multiplier", "noising_clients", "zone_noise_multipliers"),
    *("server_noise_multiplier", "upper_levels"),
    *("secure_aggregation", "secure_server", "encoding", "min_zone_clients"),
    *("top_up", "size"),
}


def test_a_new_field_is_made_known_to_whoever_reads_all_of_them():
    """A field that one of these does not know is accounted as if it were not there.

    They are `accountant.like_zones` (which zones are taken for one), `events` (what a
    round must have shown), `levels`, `mixing` and `queries` (what is drawn),
    `noise` and `views` (what is left of it), and the plan's own `is_noisy`,
    `drawn_numbers`, `node_stddevs`, `without_noise` and `with_node_noise`.
    """
    assert {field.name for field in dataclasses.fields(NoisePlan)} == KNOWN
