"""What one client works on does not hang on who else is there."""

import numpy as np

from tff_hdp.privacy import Clipping
from tff_hdp.simulation.cohorts import CohortSampler
from tff_hdp.systems.hdp.attendance import Attendance
from tff_hdp.systems.hdp.federation import build_federation
from tff_hdp.systems.hdp.round_data import Chunking, round_data


def test_removing_a_client_leaves_the_others_batches(hdp_config, tmp_path):
    config = hdp_config(tmp_path)
    task = config.load_task(0)
    federation = build_federation(
        config,
        task,
        partition_seed=0,
        clipping=Clipping(clip_norm=0.5),
    )
    sampler = CohortSampler(plan=federation.plan, zoning=federation.zoning, entropy=9)

    def batches(cohort):
        present = Attendance(
            cohort=np.array(cohort),
            byzantine=np.zeros(len(cohort), bool),
            dropped=(0,) * federation.zoning.num_zones,
            skipped=0,
            seats=[],
            carried={},
            metrics={},
        )
        data = round_data(
            config,
            federation,
            present,
            chunking=Chunking(0),
            rng_of=sampler.batch_generators(4),
        )
        return {
            client: np.concatenate(
                [y for _, y in entry["examples"].as_numpy_iterator()]
            )
            for client, entry in zip(cohort, data, strict=True)
        }

    everybody, without = batches([3, 8, 21, 30]), batches([3, 21, 30])
    for client, labels in without.items():
        np.testing.assert_array_equal(labels, everybody[client])
