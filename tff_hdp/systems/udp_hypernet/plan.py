"""UDP-Alg (HyperNetFL): the noise multiplier behind its sigma, plan and account.

Source: UDP-Alg paper, Algorithm 1 and Theorem 3.2: noise of standard deviation
sigma = z S / (q W) on the sum divided by q W.
"""

import dataclasses
from collections.abc import Sequence

from tff_hdp.errors import check_positive, check_probability, check_word
from tff_hdp.privacy.accountant import METHODS, AccountRow, Method
from tff_hdp.privacy.ledger import Ledger
from tff_hdp.privacy.parts import Clipping, PoissonSampling
from tff_hdp.privacy.plan import NoisePlan

_STEPPED = (
    "no guarantee to whoever sees a user's own descriptor, or a model made from it: it "
    "is stepped with that user's un-noised update; private toward the other users "
    "only, who see phi and their own (joint DP)"
)
_AS_DRAWN = "descriptors are as they were drawn, and tell no more of a user than phi"


def plan(
    *, users: int, q: float, sigma: float, S: float, W: float | None = None
) -> NoisePlan:
    """UDP-Alg as a noise plan: one zone, server noise.

    It accounts for the hypernetwork phi and what follows from it alone; for the
    descriptors see `UdpLedger`.

    Args:
      users: n.
      q: Sampling probability in (0, 1].
      sigma: Standard deviation of the noise on the average; the noise multiplier is
        z = sigma q W / S.
      S: Clip norm.
      W: Sum of all users' weights, public; None for weights of 1. The largest
        weight is taken as 1, whatever users have, so that z does not depend on
        anybody's data.

    Raises:
      ArgumentError: If an argument is out of range.
    """
    W = float(users) if W is None else W
    check_probability("q", q)
    for name, value in (("sigma", sigma), ("W", W), ("S", S)):
        check_positive(name, value)
    return NoisePlan(
        zone_sizes=(users,),
        sampling=PoissonSampling((q,)),
        server_noise_multiplier=sigma * q * W / S,
        clipping=Clipping(clip_norm=S),
        zone_weights=(W,),
    )


class UdpLedger(Ledger):
    """A ledger whose account also says what the descriptors are worth.

    A descriptor v_u is stepped with an un-noised function of user u's data (Algorithm
    1, line 16), so it is no post-processing of phi, as section 3 of the paper has
    it. What another user sees, phi and its own descriptor, depends on u's data
    through phi only: that is joint differential privacy, and phi's epsilon is its
    epsilon. Whoever sees v_u, or weights made from it, is promised nothing; the
    paper's epsilon stands on that row because the paper claims it. Of the server,
    which it trusts, the paper claims nothing.

    Descriptors that are never stepped have nothing of a user's data: phi's epsilon is
    theirs then, for neighbours that keep the user, whom its descriptor names.

    Args:
      descriptors_stepped: Whether zeta > 0.
    """

    def __init__(self, *, descriptors_stepped: bool = True) -> None:
        super().__init__()
        self._descriptors_stepped = descriptors_stepped

    def account(
        self,
        delta: float,
        methods: Sequence[Method] = METHODS,
        observer: str | None = None,
    ) -> list[AccountRow]:
        """Rows for the server, for the descriptors and for the released phi.

        Raises:
          ArgumentError: If `delta` is out of range, or `observer` none of these.
          ValueError: If nothing is recorded.
        """
        if observer is not None:
            allowed = ("aggregator", "descriptors", "released_model")
            check_word("observer", observer, allowed)
        rows = super().account(delta, methods)
        server, phi = (
            next(row for row in rows if row.observer == who)
            for who in ("aggregator", "released_model")
        )
        descriptors = dataclasses.replace(phi, observer="descriptors")
        if self._descriptors_stepped:
            descriptors = dataclasses.replace(
                descriptors,
                noise_multiplier=None,
                epsilon_rdp=None,
                epsilon_pld=None,
                assumptions=_STEPPED,
            )
        elif phi.is_guaranteed:
            descriptors = dataclasses.replace(
                descriptors,
                neighbours="zero_out",
                assumptions=f"{_AS_DRAWN}; {phi.assumptions}",
            )
        found = dataclasses.replace(server, epsilon_paper=None), descriptors, phi
        return [row for row in found if observer in (None, row.observer)]
