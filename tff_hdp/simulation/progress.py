"""What is said of a run while it goes on, with the epsilon so far."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import tqdm

from tff_hdp.privacy import RoundLedger
from tff_hdp.privacy.accountant import Method
from tff_hdp.simulation.config import RunConfig
from tff_hdp.simulation.plain_words import epsilon_against

_LOG = logging.getLogger(__name__)
_BOTH: tuple[Method, ...] = ("rdp", "pld")
# An account by PLD takes as long as some twenty rounds on small data.
_ACCOUNT_EVERY = 100
# An account is made only after so many times the seconds that the last one took; of
# the first it is assumed how many it takes.
_SHARE, _FIRST_ACCOUNT = 50, 0.2


class Progress:
    """Says how far a run is: a bar on a terminal, else a line now and then.

    Its epsilon is by RDP after every round, and by the method of the final table as
    often as that costs at most a fiftieth of the time. What both hold for is said once,
    before the first.

    Args:
      config: The run's settings.
      headline: What the system is judged by, a column of metrics.csv.
      ledger: The run's, which holds the rounds up to the one that is shown.
      done: Rounds before the first that is shown.
    """

    def __init__(
        self, config: RunConfig, headline: str, ledger: RoundLedger[Any], *, done: int
    ) -> None:
        self._config, self._headline, self._ledger = config, headline, ledger
        plain = config.quiet or config.log_every is not None
        self._bar = tqdm.tqdm(
            total=config.rounds,
            initial=done,
            unit="round",
            desc=config.label,
            disable=True if plain else None,
        )
        self._every = config.log_every or math.ceil(config.rounds / 20)
        self._shown: dict[str, str] = {}
        self._warned = self._said = False
        self._next_account = time.monotonic() + _SHARE * _FIRST_ACCOUNT

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, number: int, metrics: dict[str, float]) -> None:
        """Shows a round, and says once that training gives nothing to add up."""
        clients, rejected = metrics.get("clients", 0), metrics.get("rejected", 0)
        if rejected > clients / 2 and not self._warned:
            self._warned = True
            _LOG.warning(
                "round %d: most updates were rejected, as they are where training "
                "makes them infinite; lower the learning rates",
                number,
            )
        due = number % self._every == 0 or number == self._config.rounds
        seen = not self._bar.disable or (due and not self._config.quiet)
        if seen and not self._said and self._ledger.rounds:
            self._said = True
            if terms := _terms(self._config, self._ledger):
                _LOG.info("%s", terms)
        shown = metrics | (self._account(metrics) if seen else {})
        names = (self._headline, "epsilon_rdp", "epsilon")
        self._shown |= {k: _number(shown[k]) for k in names if k in shown}
        if "epsilon" not in shown:
            self._shown.pop("epsilon", None)
        self._bar.update()
        self._bar.set_postfix(self._shown)
        if self._bar.disable and seen:
            values = ", ".join(f"{name} {text}" for name, text in self._shown.items())
            _LOG.info("round %d of %d: %s", number, self._config.rounds, values)

    def _account(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Epsilon by both methods, where the row has none and it is time for one."""
        began = time.monotonic()
        if (
            "epsilon" in metrics
            or began < self._next_account
            or not self._ledger.rounds
        ):
            return {}
        epsilon = _epsilon(self._config, self._ledger, _BOTH)
        now = time.monotonic()
        self._next_account = now + _SHARE * (now - began)
        return {"epsilon": epsilon}


def epsilons(
    config: RunConfig, ledger: RoundLedger[Any], number: int
) -> dict[str, float]:
    """The worst client's epsilon against those who only get the model, by column.

    By RDP every round; by the tighter of RDP and PLD, as reports have it, now and then
    and after the last.
    """
    if not ledger.rounds:
        return {"epsilon_rdp": math.inf, "epsilon": math.inf}
    found = {"epsilon_rdp": _epsilon(config, ledger, ("rdp",))}
    if number % _ACCOUNT_EVERY == 0 or number == config.rounds:
        found["epsilon"] = _epsilon(config, ledger, _BOTH)
    return found


def _epsilon(
    config: RunConfig, ledger: RoundLedger[Any], methods: Sequence[Method]
) -> float:
    # Accounts against the others take time, and this is asked every round.
    rows = ledger.account(config.delta, methods, "released_model")
    return epsilon_against(rows, "released_model")


def _terms(config: RunConfig, ledger: RoundLedger[Any]) -> str:
    """What must be known of the epsilons that follow; "" where there are none."""
    released = ledger.account(config.delta, ("rdp",), "released_model")
    sound = [row for row in released if row.epsilon_rdp is not None]
    if not sound or len(sound) < len(released):
        return ""
    # Who is worst off may change as rounds add up, and with it what that rests on.
    kinds = (f"{row.neighbours} neighbours; {row.sampling}" for row in sound)
    return (
        "epsilons below are the worst client's against who gets the models and no more "
        f"[released_model], at delta {sound[0].delta:g}, for "
        f"{', or of other clients '.join(dict.fromkeys(kinds))}; epsilon_rdp by RDP, "
        "epsilon by RDP or PLD"
    )


def _number(value: float) -> str:
    """To three digits; tables too say `none` where nothing is guaranteed."""
    return "none" if value == math.inf else f"{value:.3g}"
