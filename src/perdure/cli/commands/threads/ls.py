"""`perdure threads ls`.

`perdure threads search`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import agent_names, owner_names
from perdure.cli.options import EVERYWHERE, Everywhere, Limit, OnlyAgent, Timeline
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import ago, count
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Invalid
from perdure.model.head import MAIN
from perdure.model.names import SERVER_THREAD, near
from perdure.shapes.imported import newest_at
from perdure.shapes.search import FoundMessage, FoundTitle, SearchPage, search_back, words_in
from perdure.shapes.text import inline, now
from perdure.shapes.threads import ThreadPage, ThreadShape
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["ThreadSearch", "ThreadShape", "Threads", "ls", "search"]

_BEGIN = ("threads", "begin", "shopping", "--agent", "helper")

_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("title", gives_way=True),
    Column("agent", gives_way=True, leaves=4),
    Column("owner", gives_way=True, leaves=1),
    Column("turns", right=True),
    Column("lines", right=True, leaves=2),
    Column("last", "when", leaves=3),
    Column("head", "digest"),
)

_BEFORE, _SHOWN = 40, 200  # characters of a text: before the first word, and in all
_FOUND_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("turn", right=True),
    Column("who", leaves=1),
    Column("where", leaves=2),
    Column("text", gives_way=True),
)
_TITLE_COLUMNS = (Column("thread", "name", is_id=True), Column("title", gives_way=True))
_WHERE = {"text": "", "reasoning": "reasoning", "call": "call", "result": "result"}


class Threads(ThreadPage, Answer, frozen=True, kw_only=True):
    """The threads of a store, by id."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if self.near:
            screen.say(f"There is no such thread here. Did you mean {' or '.join(self.near)}?")
            return
        if not self.threads:
            self._say_none(screen)
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    each.id,
                    each.title or "",
                    each.agent,
                    each.owner or "",
                    f"{each.turns:,}",
                    f"{each.timelines:,}",
                    ago(each.said_at or each.last_at, at_now),
                    digest(each.head.commit) if each.head.commit else "",
                )
                for each in self.threads
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.threads), 'thread')}; --limit 0 lists all.", "quiet"))

    def _say_none(self, screen: Screen) -> None:
        screen.suggest("There is no thread here. Begin one: ", *_BEGIN)


ThreadState: TypeAlias = Literal["running", "waiting", "failed", "unknown"]


class ThreadsInState(Threads, frozen=True, kw_only=True):
    """The threads with a run or a call in a state."""

    def _say_none(self, screen: Screen) -> None:
        screen.say("There is no such thread here.")


def ls(
    *,
    agent: OnlyAgent = None,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", completer=in_store, help="Only threads of this owner")
    ] = None,
    state: Annotated[
        ThreadState | None,
        Parameter(
            help="Only threads with a run that is running or waits, whose last run failed, or with a call whose outcome "
            "is unknown",
        ),
    ] = None,
    newest: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="The threads that were written last first; imported ones by what was said last",
        ),
    ] = False,
    limit: Limit = 100,
    everywhere: Everywhere = EVERYWHERE,
) -> Threads:
    """List threads by id

    The thread with the keys and the records of `perdure serve` is listed with `--agent perdure.server`.
    """
    with reading(everywhere) as store:
        wanted = (
            each
            for each in store.threads(owner=owner, agent=agent)
            if each.id != SERVER_THREAD or agent == SERVER_THREAD
        )
        if state is not None:
            wanted = _in_state(store, wanted, state)
        if newest:
            wanted = iter(sorted(wanted, key=_last_at, reverse=True))
        found, more = cut_off(list(islice(wanted, limit + 1 if limit else None)), limit)
        close = [] if found else [*_near(agent, agent_names(store)), *_near(owner, owner_names(store))]
        answer = Threads if state is None else ThreadsInState
        return answer(threads=[ThreadShape.of(thread) for thread in found], more=more, near=close)


def _in_state(store: Store, threads: Iterator[Thread], state: ThreadState) -> Iterator[Thread]:
    """Yield those of the threads with a run, or a call, in a state."""
    if state == "failed":
        for thread in threads:
            if any(run.state == "failed" for run in thread.runs(limit=1)):
                yield thread
        return
    if state == "unknown":
        found = {id for id, _ in store.unclear_calls()}
    else:
        found = {id for id, run in store.open_runs() if run.state == state}
    yield from (each for each in threads if each.id in found)


def _last_at(thread: Thread) -> int:
    seen = thread.at()
    return newest_at(seen, next(iter(seen.log(limit=1)), None), thread.begun_at)


def _near(name: str | None, known: Iterator[str]) -> list[str]:
    """Return names that are close to an unknown one; none if the name exists."""
    if name is None:
        return []
    names = set(known)
    return [] if name in names else near(name, names)


class ThreadSearch(SearchPage, Answer, frozen=True, kw_only=True):
    """The messages that have all the words, thread by thread, the newest first."""

    def show(self, screen: Screen) -> None:
        """Print a table with the place of the first word in each message."""
        if self.titles:
            screen.table(_TITLE_COLUMNS, [(each.thread, each.title) for each in self.titles])
        if not self.found:
            screen.say(f"No message has it; {count(self.scanned, 'message')} were read.")
            return
        if self.titles:
            screen.gap()
        first = words_in(self.query)[0]
        screen.table(
            _FOUND_COLUMNS,
            [
                (each.thread, str(each.turn), each.message.role, _WHERE[each.kind], _around(each.text, first))
                for each in self.found
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.found), 'message')}; --limit 0 lists all.", "quiet"))


def search(
    words: Annotated[
        tuple[str, ...], Parameter(name="WORDS", help="What the messages have, in any order and case")
    ],
    /,
    *,
    thread: Annotated[
        str | None,
        Parameter(name="--thread", metavar="ID", completer=in_store, help="Only messages of this thread"),
    ] = None,
    timeline: Timeline = MAIN,
    agent: OnlyAgent = None,
    owner: Annotated[
        str | None, Parameter(metavar="NAME", completer=in_store, help="Only threads of this owner")
    ] = None,
    limit: Limit = 20,
    everywhere: Everywhere = EVERYWHERE,
) -> ThreadSearch:
    """Search the messages and titles of all threads, or of one, for words

    A message is found if its text, its reasoning, a call with its arguments, or a result has all of the words; a word
    may be a part of another one. Messages are listed thread by thread, the newest first; those of many threads are on
    main. Items of a memory are found by `memory search`.
    """
    if timeline != MAIN and thread is None:
        raise Invalid(
            "--timeline is of one thread; nothing was read.",
            code="options_conflict",
            advice="Name the thread with --thread, or leave --timeline out.",
        )
    query = " ".join(words)
    wanted = words_in(query)
    titles: list[FoundTitle] = []
    found: list[FoundMessage] = []
    scanned = 0
    with reading(everywhere) as store:
        for line in _lines(store, thread, timeline, agent, owner):
            titles += FoundTitle.every(line, wanted)
            for some, read, _ in search_back(line, wanted, None):
                found += some
                scanned += read
                if limit and len(found) > limit:
                    break
            if limit and len(found) > limit:
                break
    kept, more = cut_off(found, limit)
    return ThreadSearch(query=query, titles=titles, found=kept, scanned=scanned, more=more)


def _lines(
    store: Store, thread: str | None, timeline: str, agent: str | None, owner: str | None
) -> Iterator[Thread]:
    """Yield the timelines that are searched."""
    if thread is not None:
        yield store.thread(thread, timeline=timeline)
        return
    for each in store.threads(owner=owner, agent=agent):
        if each.id != SERVER_THREAD:
            yield each


def _around(text: str, word: str) -> str:
    """Return a text on one line, from a little before the word."""
    flat = inline(text)
    start = flat.casefold().find(word) - _BEFORE
    return f"…{flat[start : start + _SHOWN]}" if start > 0 else flat[:_SHOWN]
