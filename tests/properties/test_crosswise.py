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
RULES = {"/n": "counter", "/log": "append", "/doc": "keys"}
REGISTERS = ("p", "a", "b")  # what holds the last word that was put there: a path, and two keys of a document

Act = tuple[str, str, str, int]  # what, on which line, with which other line, how much

acts = st.tuples(
    st.sampled_from(["count", "append", "p", "p", "a", "b", "merge", "merge", "cross"]),
    st.sampled_from(LINES),
    st.sampled_from(LINES),
    st.integers(0, 2),
)


class Line(msgspec.Struct, frozen=True):
    """What the history of a line holds, by numbers of acts."""

    counts: dict[int, int] = {}
    items: dict[int, int] = {}
    puts: dict[int, tuple[str, Json, frozenset[int]]] = {}  # the register, the value, and all puts behind it

    def last(self, register: str) -> set[int]:
        """The puts of a register that no other one came after."""
        behind = {number for _, _, before in self.puts.values() for number in before}
        return {number for number in self.puts if self.puts[number][0] == register} - behind

    def put(self, register: str, number: int, value: Json) -> Line:
        """The line with a put after all others of the register."""
        before = frozenset(each for each in self.puts if self.puts[each][0] == register)
        return Line(self.counts, self.items, self.puts | {number: (register, value, before)})

    def with_(self, other: Line) -> Line:
        """Both histories in one."""
        return Line(self.counts | other.counts, self.items | other.items, self.puts | other.puts)


def registers(state: dict[str, Json | bytes]) -> dict[str, Json]:
    """What the registers hold."""
    word, document = state["/p"], state["/doc"]
    assert not isinstance(word, bytes) and isinstance(document, dict)  # noqa: PT018
    return {"p": word, **document}


class Model:
    """Four lines beside the store that has them; every merge is compared."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.hand.write({"/n": 0, "/log": [], "/p": -1, "/doc": {"a": -1, "b": -1}})
        for line in LINES[1:]:
            self.hand.fork(line, self.hand.head().commit)
        begun = Line()
        for number, register in enumerate(REGISTERS):
            begun = begun.put(register, number - len(REGISTERS), -1)
        self.lines: dict[str, Line] = dict.fromkeys(LINES, begun)
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
            case "p":
                self.hand.write({"/p": amount}, timeline=line)
                known = known.put("p", self.number, amount)
            case key:
                document = state["/doc"]
                assert isinstance(document, dict)
                self.hand.write({"/doc": {**document, key: amount}}, timeline=line)
                known = known.put(key, self.number, amount)
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
        for register, held in registers(self.hand.state(line)).items():
            if len(merged.last(register)) > 1:
                self.number += 1
                merged = merged.put(register, self.number, held)
        self.lines[line] = merged

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
        for register, held in registers(state).items():
            assert held in [merged.puts[number][1] for number in merged.last(register)]


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
    ("p", "main", "", 0),
    ("a", "main", "", 0),
    ("merge", "one", "main", 0),
    ("p", "main", "", 1),
    ("a", "main", "", 1),
    ("count", "main", "", 2),
    ("count", "one", "", 2),
    ("count", "one", "", 2),
    ("cross", "main", "one", 0),
]


@pytest.mark.parametrize("then", [("p", "one", "", 0), ("a", "one", "", 0), ("count", "one", "", 2)])
def test_one_commit_in_common_alone_is_found_out(then: Act, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a merge that looks from one of them only fails the comparison."""
    every: Callable[[Space, Point, Point], list[Point]] = ancestry.commons
    history = [*CROSSED, then, ("merge", "main", "one", 0)]
    run(history)
    monkeypatch.setattr(ancestry, "commons", lambda space, a, b: every(space, a, b)[:1])

    with pytest.raises(AssertionError):
        run(history)
