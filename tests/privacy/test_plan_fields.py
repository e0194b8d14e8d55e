"""What a plan holds, as all who must know all of it know it."""

import dataclasses

from tff_hdp.privacy import Clipping, FixedSizeSampling, NoisePlan
from tff_hdp.privacy.plan import plan_from_dict, plan_to_dict

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
    `drawn_numbers`, `node_noise`, `without_noise` and `with_node_noise`.
    """
    assert {field.name for field in dataclasses.fields(NoisePlan)} == KNOWN


def test_what_a_plan_is_written_as_is_its_readers_own():
    """One that changes its copy changes no other's, as of a plan that was seen."""
    plan = NoisePlan(
        zone_sizes=(4, 6),
        sampling=FixedSizeSampling((2, 3)),
        clipping=Clipping(clip_norm=0.5),
    )
    fields = plan_to_dict(plan)
    fields["zone_sizes"].append(5)
    fields["sampling"]["sizes"][0] = 4
    fields["clipping"].clear()
    assert plan_from_dict(plan_to_dict(plan)) == plan
