"""Random histories with crosswise merges, against a model of what each commit has behind it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import MergeConflict
from perdure.history import ancestry
from perdure.history.ancestry import Point
from perdure.history.space import Space
from perdure.history.verify import verify
from perdure.model.canonical import Json
from tests.history.hand import Hand

LINES = ("main", "one", "two", "three")
RULES = {"/n": "counter", "/log": "append"}

Act = tuple[str, str, str, int]  # what, on which line, with which other line, how much

acts = st.tuples(
    st.sampled_from(["count", "append", "put", "put", "merge", "merge", "cross"]),
    st.sampled_from(LINES),
    st.sampled_from(LINES),
    st.integers(0, 2),
)


class Line(msgspec.Struct, frozen=True):
    """What the history of a line holds, by numbers of acts."""

    counts: dict[int, int] = {}
    items: dict[int, int] = {}
    puts: dict[int, tuple[Json, frozenset[int]]] = {}  # the value, and all puts behind it

    def last(self) -> set[int]:
        """The puts that no other one came after."""
        behind = {number for _, before in self.puts.values() for number in before}
        return set(self.puts) - behind

    def put(self, number: int, value: Json) -> Line:
        """The line with a put after all others."""
        return Line(self.counts, self.items, self.puts | {number: (value, frozenset(self.puts))})

    def with_(self, other: Line) -> Line:
        """Both histories in one."""
        return Line(self.counts | other.counts, self.items | other.items, self.puts | other.puts)


class Model:
    """Four lines beside the store that has them; every merge is compared."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.hand.write({"/n": 0, "/log": [], "/p": -1})
        for line in LINES[1:]:
            self.hand.fork(line, self.hand.head().commit)
        self.lines: dict[str, Line] = dict.fromkeys(LINES, Line().put(-1, -1))
        self.number = 0

    def act(self, what: str, line: str, other: str, amount: int) -> None:
        """Do one thing to the store and to the model."""
        self.number += 1
        match what:
            case "merge":
                self.merge(line, other)
            case "cross":
                before = f"before-{self.number}"
                self.hand.fork(before, self.hand.head(line).commit)
                self.lines[before] = self.lines[line]
                self.merge(line, other)
                self.merge(other, before)
            case _:
                self.write(what, line, amount)

    def write(self, what: str, line: str, amount: int) -> None:
        known, state = self.lines[line], self.hand.state(line)
        total, log = state["/n"], state["/log"]
        assert isinstance(total, int) and isinstance(log, list)  # noqa: PT018
        match what:
            case "count":
                self.hand.write({"/n": total + amount - 1}, timeline=line)
                known = Line(known.counts | {self.number: amount - 1}, known.items, known.puts)
            case "append":
                self.hand.write({"/log": [*log, amount]}, timeline=line)
                known = Line(known.counts, known.items | {self.number: amount}, known.puts)
            case _:
                self.hand.write({"/p": amount}, timeline=line)
                known = known.put(self.number, amount)
        self.lines[line] = known

    def merge(self, line: str, other: str) -> None:
        merged = self.lines[line].with_(self.lines[other])
        before = self.hand.head(line)
        refused = self.refused(line, other)
        if refused:
            assert "/n" not in refused, "what counts never clashes"
            assert self.hand.head(line) == before
            return
        self.check(merged, self.hand.state(line))
        held = self.hand.get("/p", timeline=line)
        assert not isinstance(held, bytes)
        self.lines[line] = merged.put(self.number, held) if len(merged.last()) > 1 else merged

    def refused(self, line: str, other: str) -> list[str]:
        """Merge; the paths in conflict."""
        try:
            self.hand.merge(other, into=line, rules=RULES)
        except MergeConflict as refused:
            return [each.path for each in refused.conflicts]
        return []

    def check(self, merged: Line, state: dict[str, Json | bytes]) -> None:
        """Each step is counted once, each item is there once, and the last word is not lost."""
        log = state["/log"]
        assert isinstance(log, list)
        assert state["/n"] == sum(merged.counts.values())
        assert sorted(map(repr, log)) == sorted(map(repr, merged.items.values()))
        words = [merged.puts[number][0] for number in merged.last()]
        assert state["/p"] in words


def run(history: list[Act]) -> Model:
    """Do everything, comparing as it goes."""
    model = Model()
    for act in history:
        model.act(*act)
    return model


@given(history=st.lists(acts, max_size=25))
def test_no_merge_loses_or_repeats_a_step(history: list[Act]) -> None:
    """Counters and lists hold every step of both histories once, and a last word stands or is a conflict."""
    assert verify(run(history).hand.engine).ok


CROSSED: list[Act] = [
    ("put", "main", "", 0),
    ("merge", "one", "main", 0),
    ("put", "main", "", 1),
    ("count", "main", "", 2),
    ("count", "one", "", 2),
    ("count", "one", "", 2),
    ("cross", "main", "one", 0),
]


@pytest.mark.parametrize("then", [("put", "one", "", 0), ("count", "one", "", 2)])
def test_one_commit_in_common_alone_is_found_out(then: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a merge that looks from one of them only fails the comparison."""
    every: Callable[[Space, Point, Point], list[Point]] = ancestry.commons
    history = [*CROSSED, then, ("merge", "main", "one", 0)]
    run(history)
    monkeypatch.setattr(ancestry, "commons", lambda space, a, b: every(space, a, b)[:1])

    with pytest.raises(AssertionError):
        run(history)
