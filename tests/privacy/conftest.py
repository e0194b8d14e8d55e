"""What the tests of accounts share: how to pick a row."""

import pytest


@pytest.fixture(scope="session")
def row():
    """The only row of an account for an observer and, if given, a kind and a zone."""

    def pick(rows, observer, kind=None, zone=None):
        found = [
            r
            for r in rows
            if r.observer == observer
            and kind in (None, r.client_kind)
            and zone in (None, r.zone)
        ]
        assert len(found) == 1, found
        return found[0]

    return pick
