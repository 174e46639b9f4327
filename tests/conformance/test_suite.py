"""The suite itself: every law says what it is, and none is hidden by another."""

from __future__ import annotations

import inspect

from perdure.testing import EngineSuite


def test_every_law_says_what_it_is_in_a_sentence() -> None:
    """A law is named by its fact and says it again."""
    laws = [each for name, each in inspect.getmembers(EngineSuite) if name.startswith("test_")]

    assert len(laws) > 100
    assert [law.__name__ for law in laws if not (law.__doc__ or "").strip().endswith(".")] == []


def test_no_law_is_lost_when_the_laws_are_put_together() -> None:
    """Two laws of one name in two modules would hide each other."""
    owners = [
        owner for owner in EngineSuite.__mro__ if owner.__module__.startswith("perdure.testing.engines.")
    ]
    names = [name for owner in owners for name in vars(owner) if name.startswith("test_")]

    assert sorted(names) == sorted(set(names))
