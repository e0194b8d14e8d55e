"""FL-TOP-DP: the clients' shares of its noise, its plan, and its two accounts.

Source: FL-TOP paper, Algorithm 3: each of the k chosen clients adds noise of
standard deviation S sigma / sqrt(k), so that the secure sum carries S sigma. Its
Theorem 1 accounts that sum as if cohorts were drawn by Poisson sampling.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tff_hdp.errors import check_count, check_nonnegative
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


def share(*, sigma: float, clients: int) -> float:
    """Each client's noise standard deviation, in units of S.

    Args:
      sigma: Noise multiplier that the sum must carry.
      clients: k, clients chosen for a round. Where d of them drop out, the sum is
        left with sigma sqrt(1 - d/k).

    Returns:
      sigma / sqrt(k).

    Raises:
      ArgumentError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return sigma / math.sqrt(check_count("clients", clients, 1))


def plan(
    *, clients: int, per_round: int, sigma: float, clipping: Clipping = Clipping()
) -> NoisePlan:
    """FL-TOP-DP as a noise plan: one zone behind a secure sum.

    Exactly `per_round` clients are drawn, so the account is for replacing one
    client, not the paper's Poisson one; what is assumed of the parties is `THREAT`.

    Args:
      clients: N.
      per_round: Clients chosen for a round.
      sigma: Noise multiplier of the sum without drop-outs.
      clipping: The bound S on a client's compressed update.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        client_noise_multiplier=share(sigma=sigma, clients=per_round),
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


def paper_epsilon(
    *, clients: int, per_round: int, sigma: float, rounds: int, delta: float
) -> float:
    """Epsilon as Theorem 1 has it: Poisson sampling with C = per_round / clients.

    No bound for what is run, which draws a fixed number and knows the cohort.

    Args:
      clients: N.
      per_round: Clients chosen for a round.
      sigma: Noise multiplier of the sum.
      rounds: T.
      delta: In (0, 1).

    Raises:
      ArgumentError: If an argument is out of range.
    """
    return accountant_epsilon(per_round / clients, sigma, rounds, delta)


class FlTopLedger(Ledger):
    """A ledger under `THREAT` whose `epsilon_paper` is Theorem 1's."""

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
        epsilon = paper_epsilon(
            clients=clients,
            per_round=per_round,
            sigma=plan.client_noise_multiplier * math.sqrt(per_round),
            rounds=self.rounds,
            delta=delta,
        )
        return [dataclasses.replace(row, epsilon_paper=epsilon) for row in rows]
