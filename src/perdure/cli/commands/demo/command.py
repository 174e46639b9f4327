"""`perdure demo`: a short story on a real store, proved step by step.

It shows payments that are made once (`payments`), a list that is forked, undone, raced for and survives a kill, and a
conversation that moves between vendors (`switching`).
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count as counting
from itertools import islice
from pathlib import Path
from shutil import which
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from perdure.cli.commands.demo import langgraph_story, payments, switching
from perdure.cli.commands.demo.screen import BrokenPromise, Stage
from perdure.cli.errors import FAILED
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Screen, console
from perdure.errors import Conflict, Sealed, StaleHead
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["DemoAnswer", "demo", "look_inside", "tell"]

LIST = "/todos.json"
SHOP = "/shop.json"
WRITER = "perdure.cli.commands.demo.writer"
ACKNOWLEDGED_MIN = 40  # commits, before the kill

_TURNS = (
    ("milk", "We are out of milk.", "Milk is on the list."),
    ("eggs", "And eggs, please.", "Eggs are on the list."),
    ("carrots", "Carrots for the soup.", "Carrots are on the list."),
)


def tell(stage: Stage, store: Store, directory: Path) -> None:
    """Progress the whole story, with a bank in `directory`; raises `Broken` at the first promise that does not hold."""
    stage.opens(
        "Perdure in seventeen steps",
        "It keeps the state of AI agents: nothing happens twice, nothing is lost, and every moment can be visited.",
        f"All of this happens for real, in the store {store.url}.",
    )
    payments.tell(stage, store, directory)
    stage.part("Part two: every moment can be visited")
    thread = store.thread("shopping", agent="helper", owner="ann")
    _grow(stage, thread)
    _fork(stage, thread)
    _promote(stage, thread)
    _undo(stage, thread)
    _past(stage, thread)
    _race(stage, store)
    _kill(stage, store)
    stage.part("Part three: no vendor owns the conversation")
    switching.tell(stage, store, directory)
    _verify(stage, store)


def look_inside(store: str) -> Iterator[str]:
    """Yield commands to go on with, which work in this shell."""
    store = shlex.quote(store)
    perdure = _command()
    yield f"{perdure} calls ls rent --store {store}"
    yield f"{perdure} threads log shopping --store {store}"
    yield f"{perdure} threads diff shopping main main.v3 --store {store}"
    yield f"{perdure} checkpoints ls board --store {store}"
    yield f"{perdure} threads context board --store {store}"
    yield f"{perdure} verify --store {store}"


def look_at_langgraph(store: str) -> Iterator[str]:
    """Yield the same of the story with LangGraph."""
    store = shlex.quote(store)
    perdure = _command()
    yield f"{perdure} calls ls rent-guarded --store {store}"
    yield f"{perdure} threads log race --store {store}"
    yield f"{perdure} verify --store {store}"


def _command() -> str:
    if which("perdure") is not None:
        return "perdure"
    return f"{shlex.quote(os.path.relpath(sys.executable))} -m perdure"


def _grow(stage: Stage, thread: Thread) -> None:
    stage.act("An agent's list grows", "Each turn is one commit: what was said, and what is then true.")
    for item, asked, answered in _TURNS:
        with thread.change(f"add {item}") as change:
            change.say("user", asked)
            change.put(LIST, [*change.get(LIST, default=[]), item])
            change.say("assistant", answered)
        stage.says("user", asked)
        stage.holds("list", thread.get(LIST))
    stage.prove("three turns, and the list holds all three items", _list(thread) == "milk eggs carrots")


def _fork(stage: Stage, thread: Thread) -> None:
    stage.act(
        "Fork at eggs", "What if it were bread? A second timeline begins after turn 2, copying nothing."
    )
    eggs = thread.turns()[1]
    what_if = thread.fork("what-if", at=eggs)
    stage.prove("the fork begins at the very commit of turn 2", what_if.head.commit == eggs.after)
    with what_if.change("add bread") as change:
        change.say("user", "No, bread.")
        change.append(LIST, "bread")
    stage.holds("main", thread.get(LIST))
    stage.holds("what-if", what_if.get(LIST))
    difference = thread.diff(thread.head, what_if.head)
    for changed in difference.state:
        before, after = thread.get(changed.path), what_if.get(changed.path)
        gone, new = [_only(one, other) for one, other in ((before, after), (after, before))]
        stage.tells("diff", f"{changed.path} ", (f"- {gone} ", "removed"), (f"+ {new}", "added"))
    stage.tells("parted", "after turn 2, at ", digest(difference.base))
    own = (_list(thread), _list(what_if)) == ("milk eggs carrots", "milk eggs bread")
    alone = [changed.path for changed in difference.state] == [LIST] and difference.base == eggs.after
    stage.prove("each line has its own list, and they differ in that alone", own and alone)


def _only(one: list[str], other: list[str]) -> str:
    return " ".join(item for item in one if item not in other)


def _promote(stage: Stage, thread: Thread) -> None:
    stage.act("Promote the fork", "Bread it is: what-if becomes main, in one step.")
    old = thread.head
    thread.promote("what-if")
    kept = thread.on(f"main.v{old.version}")
    stage.holds("main", thread.get(LIST))
    stage.holds(kept.timeline, kept.get(LIST))
    stage.prove(
        "main has the bread, and the old main is kept",
        (_list(thread), kept.head.commit) == ("milk eggs bread", old.commit),
    )
    stage.prove("the old main takes no more writes: it is sealed", _is_sealed(kept))


def _undo(stage: Stage, thread: Thread) -> None:
    stage.act(
        "Undo, and redo", "A step back is a move of its own: it is recorded, and the version only grows."
    )
    before = thread.head
    undone = thread.undo()
    stage.holds("undone", thread.get(LIST))
    stage.prove("undo took the bread off the list", _list(thread) == "milk eggs")
    redone = thread.redo()
    stage.holds("redone", thread.get(LIST))
    stage.prove("redo put it back, at the same commit", redone.commit == before.commit)
    versions = before.version < undone.version < redone.version
    stage.prove(f"the version rose each time: {before.version}, {undone.version}, {redone.version}", versions)


def _past(stage: Stage, thread: Thread) -> None:
    stage.act("Read the past", "Any moment can be read whole: by turn, by version, by commit, by message.")
    first = thread.turns()[0]
    message = first.entries[0].id
    stage.holds("turn 1", thread.at("turn:1").get(LIST))
    stage.prove("turn 1 still knows milk alone", _list(thread, "turn:1") == "milk")
    stage.prove(
        "a message leads to the state at that moment", thread.at(message).root == thread.at(first).root
    )


def _race(stage: Stage, store: Store) -> None:
    stage.act(
        "Two writers race",
        "Ann and Bob read the same head, and Bob writes first. Ann has to be told.",
    )
    with open_store(store.url) as other:
        ann, bob = store.thread("shopping"), other.thread("shopping")
        told: StaleHead | None = None
        try:
            with ann.change("ann's shop") as hers:
                hers.put(SHOP, "the market")
                with bob.change("bob's shop") as his:
                    his.put(SHOP, "the corner shop")
        except StaleHead as stale:
            told = stale
    stage.shows(("Ann is told: ", "quiet"), ("StaleHead", "warn"), f": {told}")
    stage.holds("shop", ann.get(SHOP, default=None))
    stage.prove(
        "Ann gets an error, and Bob's write is kept", told is not None and ann.get(SHOP) == "the corner shop"
    )
    ann.put(SHOP, "the market", reason="ann's shop, after reading Bob's")
    stage.prove("after reading again, Ann decides again and succeeds", _bob_then_ann(ann))


def _bob_then_ann(thread: Thread) -> bool:
    """True if both writes are in the history, Bob's first."""
    return thread.at("HEAD~1").get(SHOP) == "the corner shop" and thread.get(SHOP) == "the market"


def _kill(stage: Stage, store: Store) -> None:
    stage.act(
        "Kill a writer in mid-write",
        "Another process writes without end, and is killed (SIGKILL) while it does.",
    )
    thread = store.thread("endurance", agent="helper")
    acknowledged, ended = _killed_writer(store.url, thread.id)
    stage.shows(f"{count(len(acknowledged), 'commit')} acknowledged when it was killed")
    stage.prove("the process was killed, and did not end by itself", ended == -signal.SIGKILL)
    began = time.perf_counter()
    with open_store(store.url) as reopened:
        found = [entry.digest for entry in reversed(reopened.thread("endurance").log())]
    took = time.perf_counter() - began
    stage.prove(
        f"all {len(acknowledged)} acknowledged commits are there, in order",
        found[: len(acknowledged)] == acknowledged,
    )
    stage.prove(
        "at most one more, that was not acknowledged yet; none is half there",
        len(found) - len(acknowledged) in (0, 1),
    )
    stage.prove(f"the store opened again in {took * 1000:.0f} ms, without repair", took < 1)


def _verify(stage: Stage, store: Store) -> None:
    stage.act("Verify", "Every byte is hashed again, and every state is computed again.")
    report = store.verify()
    stage.shows(
        f"{count(sum(report.checked.values()), 'thing')} checked, {count(len(report.faults), 'fault')}"
    )
    stage.prove("the whole store is intact", report.ok)


def _killed_writer(place: str, id: str) -> tuple[list[str], int]:
    """Return the commits that a process acknowledged before it was killed, and how it ended."""
    command = [sys.executable, "-m", WRITER, place, id]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True) as process:
        assert process.stdout is not None
        said = [line.strip() for line in islice(process.stdout, ACKNOWLEDGED_MIN)]
        process.kill()
        said += [line.strip() for line in process.stdout if line.endswith("\n")]
    return said, process.returncode


def _list(thread: Thread, at: str | None = None) -> str:
    seen = thread if at is None else thread.at(at)
    return " ".join(seen.get(LIST, type=list[str]))


def _is_sealed(thread: Thread) -> bool:
    try:
        thread.put(LIST, [])
    except Sealed:
        return True
    return False


_EVERYWHERE = Group("Everywhere", sort_key=9)


class DemoAnswer(Answer, frozen=True, kw_only=True):
    """What the story proved, and where its store is."""

    store: str
    bank: str  # a directory: what was paid, by the ordinary loop and by ours
    ok: bool
    proved: list[str]
    broken: str | None  # the promise that did not hold; null: all did
    look: list[str]  # commands that show what is in the store

    @property
    def exit_code(self) -> int:
        """Return 0 if every promise held."""
        return 0 if self.ok else FAILED

    def show(self, screen: Screen) -> None:
        """Say where the store is, and how to look inside."""
        screen.gap()
        if not self.ok:
            screen.say(("✗ ", "bad"), f"The story ended early: {self.broken}")
            screen.say(("The store is kept for a look: ", "quiet"), self.store)
            return
        screen.say(("✓ ", "good"), f"All {len(self.proved)} promises held.")
        screen.facts([("The store is yours", (self.store, "name")), ("The bank's books", self.bank)])
        screen.gap()
        screen.say("Look inside:")
        for line in self.look:
            screen.say(f"  {line}")
        screen.gap()
        screen.say("See it in the browser, with ", ("perdure[server]", "name"), " installed:")
        screen.say(f"  {_command()} serve --store {shlex.quote(self.store)}")


def demo(
    *,
    with_: Annotated[
        Literal["langgraph"] | None,
        Parameter(
            name="--with",
            help="Tell another story: the framework alone, and with Perdure below it",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        Parameter(
            metavar="PATH",
            group=_EVERYWHERE,
            help="A new file for the store; one in this directory if left out",
        ),
    ] = None,
    json: Annotated[
        bool,
        Parameter(negative=(), group=_EVERYWHERE, show_default=False, help="Print only the results, as JSON"),
    ] = False,
) -> DemoAnswer:
    """Show what Perdure does, in a short story on a store that you keep

    Every step is done for real and proved: if a promise did not hold, the story would stop
    there and exit with 1.

    With --with langgraph, where that is installed, LangGraph is killed after a payment with and without our guard, two runs
    meet on one thread with and without our saver, and the bytes after 200 turns are compared.
    """
    if with_ is not None:
        langgraph_story.check_installed()
    place = _fresh(store)
    stage = Stage(None if json else Screen(console()))
    broken: str | None = None
    try:
        with open_store(place) as opened:
            (tell if with_ is None else langgraph_story.tell_langgraph)(stage, opened, _bank(place))
    except BrokenPromise as promise:
        broken = str(promise)
    return DemoAnswer(
        store=str(place),
        bank=str(_beside(place)),
        ok=broken is None,
        proved=stage.proved,
        broken=broken,
        look=list(look_inside(str(place)) if with_ is None else look_at_langgraph(str(place))),
    )


def _fresh(given: str | None) -> Path:
    """Return a file that does not exist yet; raises `Conflict` if the one that was asked for does."""
    if given is None:
        names = ("perdure-demo.db" if number == 1 else f"perdure-demo-{number}.db" for number in counting(1))
        return next(path for path in map(Path, names) if not path.exists() and not _beside(path).exists())
    for path in (Path(given), _beside(Path(given))):
        if path.exists():
            raise Conflict(
                f"{path} exists already; nothing was done to it.",
                code="file_exists",
                advice="Choose another path for the demo.",
                file=str(path),
            )
    return Path(given)


def _beside(store: Path) -> Path:
    """Return the directory for what the story needs beside its store."""
    return store.with_name(f"{store.stem}-bank")


def _bank(store: Path) -> Path:
    directory = _beside(store)
    directory.mkdir()
    return directory
