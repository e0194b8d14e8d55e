"""What can go wrong in secure aggregation, each by its name.

Whoever raises one of these is in the state it was in before the call.
"""

from tff_hdp.errors import ShortError


class SecureAggregationError(ShortError):
    """A round that cannot go on, or a message that is refused."""


class BelowThresholdError(SecureAggregationError):
    """Too few clients are left; nothing is revealed."""


class WrongRoundError(SecureAggregationError):
    """A message of another round."""


class WrongPhaseError(SecureAggregationError):
    """A message or a step before or after its time."""


class ReplayError(SecureAggregationError):
    """What was done already: a client's message, or the sum a client is called for."""


class UnknownClientError(SecureAggregationError):
    """A message of, or about, somebody who does not take part."""


class BadKeyError(SecureAggregationError):
    """Bytes that are not a public key, or a key that another client uses too."""


class BadShareError(SecureAggregationError):
    """A share that cannot be opened or is not the one that was dealt."""


class MalformedMessageError(SecureAggregationError):
    """Bytes that are no message of the kind awaited."""


class BadSignatureError(SecureAggregationError):
    """A message that its sender did not sign."""


class BadInputError(SecureAggregationError):
    """Values of the wrong shape, type or range."""
