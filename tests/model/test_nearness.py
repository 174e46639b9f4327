"""Near names: what a mistyped one may have meant, at a cost that does not grow with the store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from perdure.model.names import COMPARED_MAX, did_you_mean, near


def endless(seen: list[str]) -> Iterator[str]:
    """Names without end, each noted when it is looked at."""
    for number in count():
        seen.append(f"thread-{number}")
        yield seen[-1]


def test_the_closest_name_comes_first() -> None:
    """At most three are told, in the order of their likeness, whatever their case."""
    known = ["shop", "shopping", "Shoppings", "shopper", "house"]

    assert near("shoping", known)[0] == "shopping"
    assert near("SHOPPING", known)[0] == "shopping"
    assert len(near("shoppin", known)) == 3
    assert did_you_mean("shoping", ["shopping", "house"]) == "Did you mean 'shopping'? "


@pytest.mark.parametrize("name", ["zebra", "", "x" * 100_000])
def test_where_nothing_is_near_nothing_is_asked(name: str) -> None:
    """No question is better than a wrong one."""
    assert near(name, ["shopping", "house", ""]) == []
    assert did_you_mean(name, ["shopping", "house"]) == ""


def test_the_beginning_of_a_longer_name_is_near_it() -> None:
    """After the names that are alike; two characters begin too many."""
    known = ["shopping-list-of-the-whole-house", "shoo", "house"]

    assert near("shop", known) == ["shoo", "shopping-list-of-the-whole-house"]
    assert near("sh", known[:1]) == []


def test_only_so_many_names_are_looked_at() -> None:
    """A list without end is left after `COMPARED_MAX`."""
    seen: list[str] = []

    assert near("thread-7x", endless(seen))

    assert len(seen) == COMPARED_MAX


def test_the_name_itself_is_no_guess() -> None:
    """The name itself is no suggestion; one that differs in case is."""
    assert near("HEAD~99", ["HEAD~99", "HEAD~9"]) == ["HEAD~9"]
    assert near("ann", ["ann"]) == []
    assert near("ann", ["Ann"]) == ["Ann"]


@pytest.mark.parametrize(
    ("name", "known"),
    [("version", "verify"), ("--before", "--store"), ("metrics", "artifacts"), ("edit", "redo")],
)
def test_a_name_that_many_edits_make_of_another_is_not_near_it(name: str, known: str) -> None:
    """Some letters in common are no reason to ask; control: a few wrong ones are."""
    assert near(name, [known], likeness=0.3) == []
    assert near(f"{known[:-1]}x", [known]) == [known]
