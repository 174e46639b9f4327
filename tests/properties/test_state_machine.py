"""Random courses of put, delete, fork, undo, redo, promote, merge, seal, crash and reopening.

The same course runs on the memory engine and on SQLite, with the same clock and ids, and is
followed by a model that is made of dictionaries alone.  Heads, digests, values and refusals
must be the same everywhere, all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import perdure
from perdure import Head, Store, Thread
from perdure.errors import MergeConflict, NotFound, PerdureError, Sealed
from perdure.model.digest import Digest
from perdure.testing.disk import Disk
from tests.crash import day
from tests.crash.campaign import SEED, sized
from tests.crash.on_disk import store_on

ID = "trip-42"
PATHS = ["/a", "/a/b", "/notes/1", "/notes/2", "/z.json"]
LINES = ["main", "one", "two", "three"]
State = dict[str, Any]

_names = count()


@dataclass
class Line:
    """A timeline of the model."""

    version: int
    commit: Digest | None
    sealed: bool = False
    undone: list[Digest | None] = field(
        default_factory=list["Digest | None"]
    )  # where undos that can be redone came from


@dataclass
class Model:
    """The whole thread as dictionaries."""

    states: dict[Digest | None, State] = field(default_factory=lambda: {None: State()})
    parents: dict[Digest, list[Digest | None]] = field(default_factory=dict[Digest, "list[Digest | None]"])
    lines: dict[str, Line] = field(default_factory=lambda: {"main": Line(0, None)})

    def committed(self, name: str, commit: Digest, state: State, *others: Digest) -> None:
        """A commit was made on a line."""
        line = self.lines[name]
        self.parents.setdefault(commit, [line.commit, *others])
        self.states.setdefault(commit, state)
        self.moved(name, commit)
        line.undone.clear()

    def moved(self, name: str, commit: Digest | None) -> None:
        """The head of a line moved."""
        line = self.lines[name]
        line.version, line.commit = line.version + 1, commit

    def state(self, name: str) -> State:
        """What a line holds."""
        return self.states[self.lines[name].commit]

    def history(self, commit: Digest | None) -> set[Digest]:
        """A commit and everything behind it."""
        found: set[Digest] = set()
        left = [commit]
        while left:
            at = left.pop()
            if at is not None and at not in found:
                found.add(at)
                left += self.parents[at]
        return found

    def bases(self, ours: Digest, theirs: Digest) -> list[Digest | None]:
        """The common ancestors that no other common ancestor has behind it; None if there are none."""
        common = self.history(ours) & self.history(theirs)
        behind = {each for at in common for each in self.history(at) - {at}}
        best: list[Digest | None] = list(common - behind)
        return best or [None]


def merged(base: State, ours: State, theirs: State) -> State | None:
    """What a merge makes of three dictionaries; None if that is a conflict."""
    result = dict(ours)
    for path in {*base, *theirs, *ours}:
        was, mine, other = (state.get(path) for state in (base, ours, theirs))
        if other in (was, mine):
            continue
        if mine != was:
            return None
        if other is None:
            del result[path]
        else:
            result[path] = other
    return result


def told(work: Callable[[], object]) -> object:
    """What a call gives, or the kind of error that it raises."""
    try:
        return work()
    except PerdureError as error:
        return type(error)


class Course(RuleBasedStateMachine):
    """One course of events on two stores and a model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self._directory = TemporaryDirectory()
        self._lock = Path(self._directory.name) / "lock"
        self._disk = Disk(seed=SEED)
        self._clocks, self._ids = (day.clock(), day.clock()), (day.ids(), day.ids())
        self._url = f"memory:row-17-{next(_names)}"
        self._open = ExitStack()
        self._reopen()

    def teardown(self) -> None:
        """Close everything."""
        self._open.close()
        self._disk.kill()
        self._directory.cleanup()

    def _reopen(self) -> None:
        self._open.close()
        memory = perdure.open(self._url, clock=self._clocks[0], ids=self._ids[0])
        sqlite = store_on(self._disk, self._lock, clock=self._clocks[1], ids=self._ids[1])
        self.stores: list[Store] = [self._open.enter_context(memory), self._open.enter_context(sqlite)]
        for store in self.stores:
            store.thread(ID, agent="planner")

    def both(self, work: Callable[[Thread], object], name: str = "main") -> Any:
        """What both stores say to the same call, which must be the same."""
        first, second = [
            told(lambda store=store: work(store.thread(ID, timeline=name))) for store in self.stores
        ]
        assert first == second, f"memory says {first}, SQLite says {second}"
        return first

    def line(self, data: st.DataObject) -> str:
        """Any timeline that there is."""
        return data.draw(st.sampled_from(sorted(self.model.lines)))

    # ---- what is done

    @rule(data=st.data(), path=st.sampled_from(PATHS), value=st.integers(0, 3))
    def put(self, data: st.DataObject, path: str, value: int) -> None:
        """Put a value on some line."""
        name = self.line(data)
        answer = self.both(lambda thread: thread.put(path, value), name)

        if self.model.lines[name].sealed:
            assert answer is Sealed
        else:
            self.check_commit(answer, name, {**self.model.state(name), path: value})

    @rule(data=st.data(), path=st.sampled_from(PATHS))
    def delete(self, data: st.DataObject, path: str) -> None:
        """Delete a path on some line, whether it holds anything or not."""
        name = self.line(data)
        state = dict(self.model.state(name))
        answer = self.both(lambda thread: thread.delete(path), name)

        if state.pop(path, None) is None:
            assert answer is NotFound
        elif self.model.lines[name].sealed:
            assert answer is Sealed
        else:
            self.check_commit(answer, name, state)

    @rule(data=st.data(), values=st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3), min_size=1))
    def replace(self, data: st.DataObject, values: State) -> None:
        """Replace the whole state of some line."""
        name = self.line(data)

        def replaced(thread: Thread) -> Head | None:
            with thread.change("replace") as change:
                change.replace(values)
            return change.head

        answer = self.both(replaced, name)

        if self.model.lines[name].sealed:
            assert answer is Sealed
        else:
            self.check_commit(answer, name, values)

    @rule(data=st.data(), name=st.sampled_from(LINES))
    def fork(self, data: st.DataObject, name: str) -> None:
        """Begin a line at any commit that was ever made, or before the first."""
        at = data.draw(st.sampled_from(sorted(self.model.states, key=str)))
        answer = self.both(lambda thread: thread.fork(name, at=at).head)

        if name in self.model.lines:
            assert isinstance(answer, type)
        else:
            assert answer == Head(name, 0, at)
            self.model.lines[name] = Line(0, at)

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """Take back one turn of some line."""
        name = self.line(data)
        line = self.model.lines[name]
        answer = self.both(lambda thread: thread.undo(), name)

        if line.commit is None:
            assert answer is NotFound
        elif line.sealed:
            assert answer is Sealed
        else:
            line.undone.append(line.commit)
            self.check_move(answer, name, self.model.parents[line.commit][0])

    @rule(data=st.data())
    def undo_to(self, data: st.DataObject) -> None:
        """Move some line to any commit."""
        name = self.line(data)
        at = data.draw(st.sampled_from(sorted(self.model.states, key=str)))
        answer = self.both(lambda thread: thread.undo(to=at), name)

        if self.model.lines[name].sealed:
            assert answer is Sealed
        else:
            self.model.lines[name].undone.append(self.model.lines[name].commit)
            self.check_move(answer, name, at)

    @rule(data=st.data())
    def redo(self, data: st.DataObject) -> None:
        """Take back the last undo of some line."""
        name = self.line(data)
        line = self.model.lines[name]
        answer = self.both(lambda thread: thread.redo(), name)

        if line.sealed or not line.undone:
            assert answer in (NotFound, Sealed)
        else:
            self.check_move(answer, name, line.undone.pop())

    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        """Make another line main."""
        name = self.line(data)
        main, other = self.model.lines["main"], self.model.lines[name]
        answer = self.both(lambda thread: thread.promote(name))

        if name == "main":
            assert isinstance(answer, type)
        else:
            self.model.lines[f"main.v{main.version}"] = Line(0, main.commit, sealed=True)
            main.undone.clear()
            self.check_move(answer, "main", other.commit)

    @precondition(lambda self: len(self.model.lines) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        """Merge some line into another."""
        source, name = self.line(data), self.line(data)
        ours, theirs = self.model.lines[name], self.model.lines[source].commit
        answer = self.both(lambda thread: thread.merge(source), name)

        if theirs is None or (ours.commit and theirs in self.model.history(ours.commit)):
            assert answer.commit is None
        elif ours.commit is None:
            assert isinstance(answer, type)
        else:
            self.check_merge(answer, name, ours.commit, theirs)

    @rule(name=st.sampled_from(LINES[1:]))
    def seal(self, name: str) -> None:
        """Seal a line."""
        if name not in self.model.lines:
            return
        line = self.model.lines[name]
        answer = self.both(lambda thread: thread.seal(), name)

        if line.sealed:
            assert answer is Sealed
        else:
            line.sealed = True
            self.check_move(answer, name, line.commit)

    # ---- what happens

    @rule()
    def reopen(self) -> None:
        """Close both stores and open them again."""
        self._reopen()

    @rule()
    def crash(self) -> None:
        """Kill the process that uses SQLite, and open the store again."""
        self._disk.kill()
        self._reopen()

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Go on with one of the disks that a power loss leaves."""
        self._disk.kill()
        left = list(self._disk.after_power_loss(chances=3))
        self._disk = left[data.draw(st.integers(0, len(left) - 1))]
        self._reopen()

    # ---- what must hold

    def check_commit(self, answer: object, name: str, state: State, *others: Digest) -> None:
        """A commit was made, on a head that moved by one."""
        assert isinstance(answer, Head)
        assert answer.version == self.model.lines[name].version + 1
        assert answer.commit is not None
        self.model.committed(name, answer.commit, state, *others)

    def check_move(self, answer: object, name: str, to: Digest | None) -> None:
        """The head moved by one, to a commit that was there."""
        self.model.moved(name, to)
        assert answer == Head(name, self.model.lines[name].version, to)

    def check_merge(self, answer: Any, name: str, ours: Digest, theirs: Digest) -> None:
        """Either the merge of the dictionaries, the same from every base, was committed, or they are in conflict."""
        states = self.model.states
        bases = self.model.bases(ours, theirs)
        first, *others = [merged(states[base], states[ours], states[theirs]) for base in bases]
        agreed = first is not None and all(each == first for each in others)
        if answer is MergeConflict:
            assert not agreed
        elif self.model.lines[name].sealed:
            assert answer is Sealed
        else:
            assert agreed
            assert answer.base in bases
            self.check_commit(answer.head, name, first or {}, theirs)

    @invariant()
    def lines_are_as_modelled(self) -> None:
        """Every timeline stands where the model says, sealed or not, on both stores."""
        wanted = {name: (line.version, line.commit, line.sealed) for name, line in self.model.lines.items()}
        for store in self.stores:
            holds = store.thread(ID).timelines()
            assert {h.head.timeline: (h.head.version, h.head.commit, h.sealed) for h in holds} == wanted

    @invariant()
    def states_are_as_modelled(self) -> None:
        """Main, and one commit of any age, hold what the model says, by the same root on both stores."""
        main = self.model.lines["main"].commit
        some = sorted(self.model.states, key=str)[len(self.model.states) // 2]
        for commit in (main, some):
            views = [store.thread(ID).at(commit) for store in self.stores]
            wanted = self.model.states[commit]
            assert [{path: view.get(path) for path in view.paths()} for view in views] == [wanted, wanted]
            assert views[0].root == views[1].root

    @invariant()
    def logs_are_as_modelled(self) -> None:
        """The log of main is its chain of first parents."""
        chain = list(self.first_parents(self.model.lines["main"].commit))
        for store in self.stores:
            assert [entry.digest for entry in store.thread(ID).log()] == chain

    def first_parents(self, commit: Digest | None) -> Iterator[Digest]:
        """The line that ends at a commit, newest first."""
        while commit is not None:
            yield commit
            commit = self.model.parents[commit][0]


SETTINGS = settings(
    max_examples=sized(6, 1_500), stateful_step_count=sized(30, 60), deadline=None, print_blob=True
)


def test_every_course_is_the_same_on_both_engines_and_in_the_model() -> None:
    """No divergence in heads, digests, values or refusals."""
    run_state_machine_as_test(Course, settings=SETTINGS)


class Careless(Course):
    """A course whose model takes every move of a head but a commit for a step back in its version."""

    def check_move(self, answer: object, name: str, to: Digest | None) -> None:
        """Expect the version to go down."""
        self.model.lines[name].version -= 2
        super().check_move(answer, name, to)


def test_control_a_model_that_counts_otherwise_is_told_apart() -> None:
    """A version that goes down on undo is found at once."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Careless, settings=settings(SETTINGS, max_examples=10, database=None, phases=[Phase.generate])
        )
