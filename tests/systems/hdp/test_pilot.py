"""The clip norm that a pilot measures, of rounds whose norms are made up."""

import math
import types

import numpy as np
import pytest

from tff_hdp.errors import ArgumentError
from tff_hdp.privacy import Clipping, PoissonSampling, account, configurations
from tff_hdp.privacy.table import account_text
from tff_hdp.simulation.system import RoundInput
from tff_hdp.systems.hdp.pilot import find_clipping

# Of each round: clients by zone, how many of them were rejected, the mean norm of all
# and that of each tensor.
ROUNDS = [
    ([2, 1], [0, 0], 3.0, [1.0, 2.5]),
    ([0, 0], [0, 0], 0.0, [0.0, 0.0]),
    ([0, 5], [0, 0], 1.0, [0.5, 1]),
]


class Folder:
    """What a pilot needs of a run's folder."""

    def __init__(self):
        self.resolved = {"partition_seed": 0}

    def resolve(self, **found):
        self.resolved |= found


class Pilot:
    """Rounds as scripted, each of which must follow the one before."""

    def __init__(self, rounds, config, federation):
        assert config.privacy == "none" and not federation.plan.is_noisy
        self._rounds, self.process = rounds, self

    def prepare(self, entropy, number, carried):
        assert entropy == 5
        assert carried == ({"after": number - 1} if number > 1 else {})
        return RoundInput(number, {"after": number}, {})

    def initial_state(self, seed):
        assert seed == 5  # the same weights, too, whenever a run is begun anew
        return 0

    def next(self, state, number):
        assert state == number - 1
        clients, rejected, norm, tensors = self._rounds[number - 1]
        measured = {
            "clients": np.array(clients),
            "rejected": np.array(rejected),
            "update_norm": np.float32(norm),
            "tensor_norms": np.array(tensors, np.float32),
        }
        return types.SimpleNamespace(state=number, metrics={"aggregator": measured})


@pytest.fixture
def found(hdp_config, tmp_path):
    """The clipping of a pilot of such rounds, twice of one folder."""

    def find(rounds, **changes):
        config = hdp_config(
            tmp_path, clip_norm="auto", pilot_rounds=len(rounds), **changes
        )
        task, folder = config.load_task(0), Folder()

        def build(*given):
            assert "pilot_norms" not in folder.resolved
            return Pilot(rounds, *given)

        first, again = (find_clipping(config, task, folder, build) for _ in range(2))
        assert first == again
        return first

    return find


def test_the_clip_norm_is_the_mean_over_all_updates(found):
    clipping = found(ROUNDS)
    assert clipping.clip_norm == pytest.approx((3 * 3.0 + 5 * 1.0) / 8)
    assert clipping.kind == "flat"
    assert "not private" in clipping.source


@pytest.mark.parametrize("maker", [configurations.c1, configurations.c2])
def test_accounts_say_that_it_is_taken_as_public(found, maker):
    federation = {"zone_sizes": (4, 4), "sampling": PoissonSampling((0.5, 0.5))}
    words = "the clip norm, measured without noise, is taken as public"
    for clipping, is_said in ((found(ROUNDS), True), (Clipping(clip_norm=2.0), False)):
        plan = maker(**federation, noise_multiplier=1.0, clipping=clipping)
        rows = [row for row in account(plan, 5, 1e-5) if row.epsilon_rdp is not None]
        assert rows
        for row in rows:
            assert (words in row.assumptions.split("; ")) == is_said
        assert ("Cp " in account_text([row.to_dict() for row in rows])) == is_said


def test_layers_have_means_of_their_own(found):
    clipping = found(ROUNDS, clipping="per_layer")
    means = ((3 * 1.0 + 5 * 0.5) / 8, (3 * 2.5 + 5 * 1.0) / 8)
    assert clipping.layer_norms == pytest.approx(means)
    assert clipping.clip_norm == pytest.approx(math.hypot(*means))


@pytest.mark.parametrize("norm", [0.0, math.nan, math.inf])
def test_a_pilot_that_measures_no_norm_is_refused(found, norm):
    with pytest.raises(ArgumentError, match="clip_norm is auto; allowed: a number"):
        found([([1, 2], [0, 0], norm, [norm, norm])])


def test_a_rejected_update_has_no_norm_to_count(found):
    # Of four updates one was rejected: the mean of all four counts it as 0.
    rounds = [([2, 2], [0, 1], 3.0, [1.5, 2.25])]
    assert found(rounds).clip_norm == pytest.approx(4.0)
    assert found(rounds, clipping="per_layer").layer_norms == pytest.approx((2.0, 3.0))


def test_a_pilot_of_which_all_is_rejected_is_refused(found):
    with pytest.raises(ArgumentError, match="0 updates that were not rejected"):
        found([([1, 2], [1, 2], 0.0, [0.0, 0.0])])
