"""Sums of clients' real vectors, encoded in fixed point and noised under the mask."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tff_hdp.errors import ArgumentError, check_count, check_nonnegative, require
from tff_hdp.protocols.meter import Meter
from tff_hdp.protocols.secagg.client import Phase
from tff_hdp.protocols.secagg.fixed_point import FixedPoint, from_ring, to_ring
from tff_hdp.protocols.secagg.graphs import MaskingGraph
from tff_hdp.protocols.secagg.messages import Round
from tff_hdp.protocols.secagg.noise import discrete_gaussian
from tff_hdp.protocols.secagg.rounds import run_round


@dataclasses.dataclass(frozen=True)
class SecureSum:
    """What a round gave.

    Attributes:
      total: [d] float64, the sum of the survivors' updates (and noise).
      survivors: Whose updates are in it.
    """

    total: np.ndarray
    survivors: tuple[str, ...]


def secure_sum(
    updates: Mapping[str, np.ndarray],
    *,
    encoding: FixedPoint,
    graph: MaskingGraph,
    round_number: int = 0,
    session: str = "",
    drops: Mapping[str, Phase] | None = None,
    min_survivors: int | None = None,
    stddev: float = 0.0,
    signed: bool = False,
    attempt: int = 0,
    unmasked: Mapping[str, set[tuple[int, str]]] | None = None,
    meter: Meter | None = None,
) -> SecureSum:
    """Sums clients' real vectors so that the super-node sees only the sum.

    Args:
      updates: For every client its [d] update, clipped by the caller.
      encoding: Fixed point for at least so many clients, and for the noise that is
        there if all of them survive: sqrt(k / the fewest survivors) times `stddev`.
      graph: Who of so many clients masks with whom, and the threshold.
      round_number: Binds keys and messages to this round.
      session: Likewise to this sum; see `Round.session`.
      drops: Clients that go silent, with the first phase they miss.
      min_survivors: The fewest updates worth a sum; at least the graph's `fewest`.
      stddev: Standard deviation of the discrete Gaussian noise of the sum
        when the fewest survivors are left, in the updates' units; more survivors
        leave more. Each client adds its share under the mask, at least a step of the
        encoding: of less a discrete Gaussian has less than it is asked for.
      signed: As in `run_round`; `graph` is then of `masking_graph(signed=True)`.
      attempt: Which at this sum, from 0.
      unmasked: As in `run_round`; to be kept where a sum may be tried again.
      meter: Counts time, messages and bytes of every party, if given.

    Returns:
      A `SecureSum`, within `encoding.max_error` of the survivors' plain sum if
      there is no noise.

    Raises:
      BelowThresholdError: If too few clients are left; nothing is revealed.
      ArgumentError: If an argument is out of range, the graph is for another number
        of clients, or the encoding has no room for the noise or too coarse a step.
      BadInputError: If an update is no vector of the others' length.
    """
    if not 1 <= len(updates) <= encoding.max_clients:
        raise ArgumentError(
            "updates", f"of {len(updates)} clients", f"1..{encoding.max_clients}"
        )
    if graph.num_clients != len(updates):
        found, allowed = f"for {graph.num_clients} clients", f"one for {len(updates)}"
        raise ArgumentError("graph", found, allowed)
    size = np.size(next(iter(updates.values())))
    if min_survivors is not None:
        check_count("min_survivors", min_survivors, 1)
    fewest = max(min_survivors or 0, graph.fewest)
    share = share_std(stddev, fewest)
    enough = f"0, or at least {encoding.step * math.sqrt(fewest):.3g}; use more bits"
    require(share == 0 or share >= encoding.step, "stddev", stddev, enough)
    encoding.check_room(len(updates), share * math.sqrt(len(updates)), size)
    sigma = share / encoding.step
    terms = Round(
        round_number,
        size,
        encoding.bits,
        graph.threshold,
        session,
        attempt=attempt,
        min_survivors=fewest,
    )
    total, survivors = run_round(
        updates,
        terms,
        encode=lambda update: _encode(update, encoding, sigma),
        degree=graph.degree,
        drops=drops,
        signed=signed,
        unmasked=unmasked,
        meter=meter,
    )
    return SecureSum(encoding.decode(total), survivors)


def share_std(stddev: float, min_clients: int) -> float:
    """Each client's share of noise whose sum must carry `stddev`.

    With drop-outs the sum is over fewer clients: shares are sized for the
    fewest that a round accepts, so the total is never less than asked for.

    Args:
      stddev: Standard deviation of the sum's noise.
      min_clients: The fewest survivors of a round that is not refused.

    Raises:
      ArgumentError: If `min_clients` is below 1 or `stddev` negative.
    """
    require(min_clients >= 1, "min_clients", min_clients, ">= 1")
    check_nonnegative("stddev", stddev)
    return stddev / math.sqrt(min_clients)


def _encode(update: np.ndarray, encoding: FixedPoint, sigma: float) -> np.ndarray:
    values = encoding.encode(update)
    if sigma:
        integers = from_ring(values, encoding.bits)
        integers += discrete_gaussian(sigma, len(values))
        values = to_ring(integers, encoding.bits)
    return values
