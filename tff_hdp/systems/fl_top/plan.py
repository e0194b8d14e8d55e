"""FL-TOP-DP: the clients' shares of its noise, its plan, and its two accounts.

Source: FL-TOP paper, Algorithm 3: each of the K chosen clients adds noise of
standard deviation S sigma / sqrt(K), so that the secure sum carries S sigma. Its
Theorem 1 accounts that sum as if cohorts were drawn by Poisson sampling.
"""

import dataclasses
import math
from collections.abc import Sequence

from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.checks import check_nonnegative, check_positive
from tff_hdp.privacy.clipping import Clipping
from tff_hdp.privacy.ledger import Ledger
from tff_hdp.privacy.paper import accountant_epsilon
from tff_hdp.privacy.plan import NoisePlan
from tff_hdp.privacy.sampling import FixedSizeSampling


def share(*, sigma: float, clients: int, expected_dropouts: int = 0) -> float:
    """Each client's noise standard deviation, in units of S.

    Args:
      sigma: Noise multiplier that the sum must carry.
      clients: Clients chosen for a round.
      expected_dropouts: Drop-outs to provide for; 0 as in the paper.

    Returns:
      sigma / sqrt(clients - expected_dropouts).

    Raises:
      ValueError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return sigma / math.sqrt(_left(clients, expected_dropouts))


def remaining_sigma(*, sigma: float, clients: int, dropouts: int) -> float:
    """What the sum carries after drop-outs: sigma sqrt(1 - d/K).

    Args:
      sigma: Noise multiplier without drop-outs.
      clients: K, clients chosen for a round.
      dropouts: d of them that did not deliver.

    Returns:
      The noise multiplier left; the paper's account still takes sigma.

    Raises:
      ValueError: If an argument is out of range.
    """
    check_nonnegative("sigma", sigma)
    return sigma * math.sqrt(_left(clients, dropouts) / clients)


def plan(
    *,
    clients: int,
    per_round: int,
    sigma: float,
    clipping: Clipping | None = None,
    dropout_rate: float = 0.0,
) -> NoisePlan:
    """FL-TOP-DP as a noise plan: one zone behind a secure sum.

    Exactly `per_round` clients are drawn, so the account is for replacing one
    client, not the paper's Poisson one. The server draws them (Algorithm 3, line
    5), so it knows who took part and sampling does not amplify against it.

    Args:
      clients: N.
      per_round: Clients chosen for a round.
      sigma: Noise multiplier of the sum without drop-outs.
      clipping: The bound S on a client's compressed update; S = 1 if None.
      dropout_rate: Probability that a chosen client does not deliver.

    Returns:
      The plan.

    Raises:
      ValueError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        client_noise_multiplier=share(sigma=sigma, clients=per_round),
        noising_clients=(clients,),
        clipping=clipping or Clipping(),
        cohort_hidden=False,
        secure_aggregation=True,
        dropout_rate=dropout_rate,
    )


def plan_without_noise(*, clients: int, per_round: int) -> NoisePlan:
    """The schemes without privacy: the mean of `per_round` clients' updates.

    Args:
      clients: N.
      per_round: Clients chosen for a round.

    Raises:
      ValueError: If an argument is out of range.
    """
    return NoisePlan(
        zone_sizes=(clients,),
        sampling=FixedSizeSampling((per_round,)),
        clipping=Clipping(source="no clipping"),
        estimator="realised",
        cohort_hidden=False,
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
      ValueError: If an argument is out of range.
    """
    return accountant_epsilon(per_round / clients, sigma, rounds, delta)


class FlTopLedger(Ledger):
    """A ledger whose `epsilon_paper` is Theorem 1's, not the HDP paper's."""

    def account(
        self, delta: float, methods: Sequence[Method] = METHODS
    ) -> list[AccountRow]:
        """See base class. Rounds under several plans have no paper's epsilon."""
        sound = [method for method in methods if method != "paper"]
        rows = super().account(delta, sound)
        if "paper" not in methods or len(self.history) != 1:
            return rows
        (run, rounds), *_ = self.history
        (clients,), (per_round,) = run.zone_sizes, run.sampling.sizes
        epsilon = paper_epsilon(
            clients=clients,
            per_round=per_round,
            sigma=run.client_noise_multiplier * math.sqrt(per_round),
            rounds=rounds,
            delta=delta,
        )
        return [dataclasses.replace(row, epsilon_paper=epsilon) for row in rows]


def _left(clients: int, dropouts: int) -> int:
    check_positive("clients", clients)
    if not 0 <= dropouts < clients:
        raise ValueError(f"dropouts is {dropouts}; allowed is 0..{clients - 1}")
    return clients - dropouts
