"""Winners by the law of the elections, without holding them."""

import hashlib
from collections.abc import Collection, Mapping

from tff_hdp.protocols.elections.election_round import PHASES, Phase
from tff_hdp.protocols.elections.setup import Setup


def draw_winner(
    setup: Setup,
    stops: Mapping[str, Phase],
    unsound: Collection[str],
    *,
    secret: bytes,
) -> str:
    """The winner as the protocol would have it, or as it would refuse.

    Args:
      setup: What the election is about.
      stops: Clients that go silent, with the first phase they miss.
      unsound: Clients whose proofs do not hold.
      secret: Decides, with the election's name.

    Raises:
      BeyondThresholdError: If more clients are faulty than tolerated.
    """

    def acting(phase: Phase) -> list[str]:
        last = PHASES.index(phase)
        return [
            client
            for client in setup.present
            if client not in stops or PHASES.index(stops[client]) > last
        ]

    def sound(phase: Phase) -> int:
        return sum(client not in unsound for client in acting(phase))

    setup.check_quorum("dealt", sound("deal"))
    setup.check_quorum("confirmed", len(acting("confirm")))
    setup.check_threshold("revealed", sound("reveal"))
    digest = hashlib.sha256(secret + setup.name.encode()).digest()
    number = int.from_bytes(digest, "little") % len(setup.candidates)
    return setup.candidates[number]
