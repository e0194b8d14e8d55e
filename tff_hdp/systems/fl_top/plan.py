"""FL-TOP-DP: the clients' shares of its noise, its plan, and its two accounts.

Source: FL-TOP paper, Algorithm 3: each of the k chosen clients adds noise of
standard deviation S sigma / sqrt(k), so that the secure sum carries S sigma. Its
Theorem 1 accounts that sum as if cohorts were drawn by Poisson sampling.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tff_hdp.errors import check_nonnegative
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.ledger import Ledger
from tff_hdp.privacy.paper import accountant_epsilon
from tff_hdp.privacy.parts import Clipping, FixedSizeSampling
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.threat import ThreatModel

# The server draws the clients (Algorithm 3, line 5), so it knows who took part and
# sampling does not amplify against it. One relation for every cohort: left to the plan,
# where all clients take part it would be another, of half the epsilon.
THREAT = ThreatModel(cohort_known=True, neighbours="replace_one")


def plan(
    *, clients: int, per_round: int, sigma: float, clipping: Clipping = Clipping()
) -> NoisePlan:
    """FL-TOP-DP as a noise plan: one zone behind a secure sum.

    Exactly `per_round` clients are drawn, so the account is for replacing one
    client, not the paper's Poisson one; what is assumed of the parties is `THREAT`.

    Args:
      clients: N.
      per_round: Clients chosen for a round.
      sigma: Noise multiplier of the sum. Where d of the k chosen drop out, it is left
        with sigma sqrt(1 - d/k).
      clipping: The bound S on a client's compressed update.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        client_noise_multiplier=sigma / math.sqrt(per_round),
        noising_clients=(clients,),
        clipping=clipping,
        secure_aggregation=True,
    )


def plan_without_noise(*, clients: int, per_round: int) -> NoisePlan:
    """The schemes without privacy: the mean of `per_round` clients' updates.

    Args:
      clients: N.
      per_round: Clients chosen for a round.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        clipping=Clipping(source="no clipping"),
        estimator="realised",
    )


class FlTopLedger(Ledger):
    """A ledger under `THREAT` whose `epsilon_paper` is Theorem 1's.

    That is no bound for what is run, which draws a fixed number of clients and knows
    the cohort: the theorem has Poisson sampling with C = per_round / clients.
    """

    def record(
        self,
        plan: NoisePlan,
        count: int = 1,
        *,
        threat: ThreatModel = THREAT,
        events: Mapping[str, Any] | None = None,
    ) -> None:
        """See base class."""
        super().record(plan, count, threat=threat, events=events)

    def account(
        self,
        delta: float,
        methods: Sequence[Method] = METHODS,
        observer: str | None = None,
    ) -> list[AccountRow]:
        """See base class. Rounds of several plans have no paper's epsilon."""
        sound = [method for method in methods if method != "paper"]
        rows = super().account(delta, sound, observer)
        plans = {run.plan for run, _ in self.history}
        if "paper" not in methods or len(plans) != 1:
            return rows
        (plan,) = plans
        (clients,), (per_round,) = plan.zone_sizes, plan.sampling.sizes
        sigma = plan.client_noise.noise_multiplier * math.sqrt(per_round)
        epsilon = accountant_epsilon(per_round / clients, sigma, self.rounds, delta)
        return [dataclasses.replace(row, epsilon_paper=epsilon) for row in rows]
