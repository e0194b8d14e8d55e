"""What the training loop needs of a ledger, whichever account it keeps."""

from collections.abc import Sequence
from typing import Any, Protocol

from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.accountant import Method


class RoundBook(Protocol):
    """The rounds that were run and their account: a `Ledger` or `RoundLedger`."""

    @property
    def rounds(self) -> int:
        """Rounds recorded."""

    @property
    def history(self) -> Sequence[tuple[Any, int]]:
        """Immutable plans in the order they were run, each with its rounds."""

    def account(self, delta: float, methods: Sequence[Method]) -> list[AccountRow]:
        """Epsilon per observer and kind of client."""

    def state_dict(self) -> dict[str, Any]:
        """The content as JSON types; `history` lists plans with their `rounds`."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces the content."""
