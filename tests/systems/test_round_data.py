"""What a client works on in a round does not depend on who else takes part."""

import numpy as np
import pytest

from tff_hdp.simulation.run_folder import RunFolder
from tff_hdp.systems.fl_top.config import FlTopConfig
from tff_hdp.systems.gfl.config import GflConfig
from tff_hdp.systems.hfl_dp.config import HflDpConfig
from tff_hdp.systems.udp_hypernet.config import UdpHypernetConfig

CONFIGS = {
    "fl_top": lambda out: FlTopConfig(
        task="digits",
        num_clients=20,
        clients_per_round=4,
        scheme="fl_top_dp",
        noise_multiplier=1.0,
        public_data="held_out",
        public_examples=10,
        out=out,
    ),
    "gfl": lambda out: GflConfig(
        task="gfl_logistic",
        num_clients=20,
        servers=2,
        per_round=2,
        repetitions=1,
        out=out,
    ),
    "hfl_dp": lambda out: HflDpConfig(
        task="digits", num_clients=8, edges=2, noise="none", out=out
    ),
    "udp_hypernet": lambda out: UdpHypernetConfig(
        task="digits", num_clients=20, privacy="none", out=out
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_client_in_anothers_place_leaves_the_rest_as_they_were(name, tmp_path):
    """Every client draws by a generator of its own, and by no other."""
    config = CONFIGS[name](str(tmp_path))
    with RunFolder(config) as folder:
        folder.resolve(partition_seed=5)
        system = config.build(folder)
    zones = np.asarray(system.zoning.zone_of)
    each = 4 // system.zoning.num_zones
    members = [np.flatnonzero(zones == z).tolist() for z in range(zones.max() + 1)]
    cohort = [client for zone in members for client in zone[:each]]
    other = [members[0][each], *cohort[1:]]

    def draws(cohort):
        used = {}

        def rng_of(client):
            assert client not in used
            used[client] = np.random.default_rng([9, int(client)])
            return used[client]

        before = np.random.get_state()[1].tolist()
        system.round_data(1, np.array(cohort), rng_of)
        assert np.random.get_state()[1].tolist() == before
        assert sorted(used) == sorted(cohort)
        # How far each has drawn says what was taken of it, the seed what that was.
        return {client: rng.bit_generator.state for client, rng in used.items()}

    first, second = draws(cohort), draws(other)
    for client in cohort[1:]:
        assert first[client] == second[client]
        assert first[client] != np.random.default_rng([9, client]).bit_generator.state
