"""Agents that remember: tools that write to memory, and threads that call them once."""

from __future__ import annotations

import perdure
from perdure import Agent, Call, Store, Thread, testing

__all__ = ["LETTERS", "by_letters", "drop", "forgetting", "look", "note", "remembering", "texts", "tidying"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@perdure.tool(effect="local_write")
def note(name: str, text: str, call: Call) -> str:
    """Remember something."""
    return call.memory.add(text, id=name, trust="model")


@perdure.tool(effect="local_write")
def drop(name: str, call: Call) -> str:
    """Forget something."""
    call.memory.forget(name)
    return "forgotten"


@perdure.tool(effect="read_only")
def look(query: str, call: Call) -> str:
    """Look something up."""
    return "; ".join(found.text for found in call.memory.search(query))


def remembering(
    store: Store,
    thread: str,
    text: str,
    *,
    name: str = "n",
    owner: str | None = "ann",
    agent: str = "planner",
) -> Thread:
    """A thread whose one run has remembered `text`."""
    script = testing.Script(testing.use("note", name=name, text=text), testing.say("Noted."))
    opened = store.thread(thread, agent=Agent(agent, backend=script, tools=[note]), owner=owner)
    opened.run("Remember it")
    return opened


def forgetting(store: Store, thread: str, name: str = "n", *, owner: str = "ann") -> Thread:
    """A thread whose last run has forgotten the item."""
    script = testing.Script(testing.use("drop", name=name), testing.say("Gone."))
    opened = store.thread(thread, agent=Agent("planner", backend=script, tools=[drop]), owner=owner)
    opened.run("Forget it")
    return opened


def tidying(store: Store, thread: str = "t1") -> Thread:
    """A thread whose one call adds two items, forgets `old` and edits `older`."""

    @perdure.tool(effect="local_write")
    def tidy(call: Call) -> str:
        """Tidy the memory up."""
        call.memory.add("likes lakes", id="two")
        call.memory.add("likes seas", id="one")
        call.memory.forget("old")
        call.memory.edit("older", "likes cocoa")
        return "tidied"

    backend = testing.Script(testing.use("tidy"), testing.say("Done."))
    opened = store.thread(thread, agent=Agent("planner", backend=backend, tools=[tidy]), owner="ann")
    opened.run("Tidy up")
    return opened


def texts(store: Store, query: str, owner: str = "ann") -> list[str]:
    """What a search finds."""
    return [found.text for found in store.memory(owner).search(query)]


def by_letters(given: list[str]) -> list[list[float]]:
    """Vectors that count letters: near means spelled with the same ones."""
    return [[float(text.lower().count(letter)) for letter in LETTERS] for text in given]
