"""Examples compared, for tests of what loads them."""


def as_multiset(features, labels):
    """Examples without their order."""
    return sorted((x.tobytes(), int(y)) for x, y in zip(features, labels, strict=True))
