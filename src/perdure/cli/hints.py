"""Advice of the library, for somebody who types commands.

The library speaks to programs and names the method that helps; at a terminal the same help is a command.
One table says which, with the thread, the agent and the store that the command was about filled in, so
that what is told can be typed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perdure.cli.usage import named_store

__all__ = [
    "ADVICE",
    "Subject",
    "command",
    "in_words_of_the_shell",
    "with_store",
]


_COMMAND = re.compile(r"<([^<>]+)>")
_SPELLED = re.compile(r"`(perdure [^`]+)`")
_HOLE = re.escape("{}")


class Subject(NamedTuple):
    """What a command was about, as far as its words said."""

    thread: str | None = None
    agent: str | None = None  # whose own map it was about, in the place of a thread
    store: str | None = None  # None: the one that is found without being named

    @classmethod
    def of(cls, words: Sequence[str], given: Mapping[str, Any]) -> Subject:
        """From the words of a command, and what they were read as."""
        agent = given.get("agent") if words[:1] == ["state"] else None
        return cls(
            thread=given.get("thread") if agent is None else None, agent=agent, store=named_store(words)
        )


# What the library says, where {} is anything, and the same with commands in the place of methods.
ADVICE: Mapping[str, str] = {
    "Create one with `perdure init`.": (
        "Create one with `perdure init`, or name another with --store or $PERDURE_STORE."
    ),
    "Name its agent= to begin one.": "Begin one with <threads begin>, or see <threads ls>.",
    "Begin it again with agent=.": "Begin it again with <threads begin>.",
    "See what there is with paths(), or give a default.": "See what there is with <state ls THREAD>.",
    "See what there is with paths().": "See what there is with <state ls THREAD>.",
    "See what there is with timelines().": "See what there is with <threads show THREAD>.",
    "See what there is with calls().": "See what there is with <calls ls THREAD>.",
    "See what there is with runs().": "See what there is with <runs ls THREAD>.",
    "See what there is with items().": "See what there is with <memory ls>.",
    "See what waits with approvals().": "See what waits with <approvals ls THREAD>.",
    "resume() finishes it, cancel() ends it.": "<runs resume THREAD --code MODULE:NAME> finishes it, <runs cancel THREAD> ends it.",
    "resume() goes on with it, cancel() ends it.": "<runs resume THREAD --code MODULE:NAME> goes on with it, <runs cancel THREAD> ends it.",
    "Wait for it, or end it with cancel().": "Wait for it, or end it with <runs cancel THREAD>.",
    "resume() or cancel() that run first.": "Use <runs resume THREAD --code MODULE:NAME> or <runs cancel THREAD> first.",
    "Take the undo back with redo(), or end it with cancel().": (
        "Take the undo back with <threads redo THREAD>, or end it with <runs cancel THREAD>."
    ),
    "its run with cancel('{}')": "its run with <runs cancel THREAD {}>",
    "take the undo back with redo(), or end": "take the undo back with <threads redo THREAD>, or end",
    "Use resolve().": "Say it yourself with <calls resolve THREAD CALL done>, or not_done.",
    "Give the agent that declares it.": "Name the one that declares it with --code.",
    "Give event.cursor of an earlier event.": "Give the cursor of an earlier event.",
    "Any commit can still be reached by undo(to=…) or fork.": (
        "Any commit can still be reached: <threads undo THREAD --at REF>, or <threads fork THREAD NAME --at REF>."
    ),
    "For a moment use undo(to=…).": "For a moment use <threads undo THREAD --at REF>.",
    "Name a commit that log() shows after it.": "Name one that <threads log THREAD --commits> shows after it.",
    "See what the next step would be shown with plan().": (
        "See what the next step would be shown with <threads context THREAD>."
    ),
    "See plan(…) instead.": "See <threads context THREAD> instead.",
    "has no backend; nothing was planned. Name one.": (
        "has no backend; nothing was planned. Name one with --to, as provider:model."
    ),
    "move the thread to another with switch(…); a run that was cut off has to be ended first, with cancel().": (
        "move the thread to another with <threads switch THREAD --to BACKEND>; a run that was cut off has to be "
        "ended first, with <runs cancel THREAD>."
    ),
    "Give the agent the Backend that leads to the same server, or move the thread on purpose with switch(…); a run that was cut off has to be ended first, with cancel().": (
        "Name the code that has its Backend with --code, or move the thread on purpose with "
        "<threads switch THREAD --to BACKEND>; a run that was cut off has to be ended first, with <runs cancel THREAD>."
    ),
    "Give the agent that backend, or": "Name the code that has it with --code, or",
    "a thread that has begun is moved by thread.switch('{}')": (
        "a thread that has begun is moved by <threads switch THREAD --to {}>"
    ),
    "say so with Backend('{}'), or add it to your models file.": (
        "add it to your models file: $PERDURE_MODELS, else ~/.config/perdure/models.json."
    ),
    "Give it one, or use on(…).": "Give it one where its code declares it.",
    "has no backend=;": "has no backend;",
    "or let the agent's policy pass {}: Policy(warn=…) or Policy(approve=…).": (
        "or let the agent's policy pass {}: with spec.policy in the file of <agents apply>, or in its code."
    ),
    "Somebody has to approve that: approved_by=… with a name.": (
        "Somebody has to approve that: say who with --approved-by NAME."
    ),
    "Settle it first (resume, reconcile, resolve), or let the policy wait.": (
        "Settle it first: <runs resume THREAD --code MODULE:NAME>, <calls reconcile THREAD CALL --code MODULE:NAME> or <calls resolve THREAD CALL done>."
    ),
    "Settle them (resume, decide, resolve), or give them up with force.": (
        "Settle them (<calls ls THREAD> names them), or give them up with --force."
    ),
    "set {}, or give api_key=": "set {} in the environment",
    "set the key of its SDK, or api_key=.": "set its key in the environment, where its SDK looks for it.",
    "Leave api_key= out, or give a client=.": "Leave the key out of the code.",
    'Give provider="bedrock" if that address is a way to it, or a client=.': (
        "Say whose server it is where the code or the agent's file declares the backend: provider bedrock."
    ),
    "Give api_key=, or provider= if that address is a way to the vendor.": (
        "Name its key, or whose server it is, where the code or the agent's file declares the backend."
    ),
    "Set {}, or give Backend(…, base_url=…).": "Set {} in the environment.",
    "Give one: Backend(…, base_url=…).": "Give one in code that you name with --code: a Backend with its base_url.",
    "Give a backend= that takes steps itself, or register": (
        "Name code with --code whose agent has a backend that takes steps itself, or register"
    ),
    "a Backend, or an object that takes steps, such as testing.Script(…).": "with a provider that <providers ls> lists.",
    "to read only, open it with read_only=True.": "commands that only read need no more than that.",
    "Open it without read_only=True.": "This command reads only.",
    "or open the store without embed=.": "or leave --embed out.",
    "Begin threads with owner=.": "Begin threads with --owner.",
    "Give the name of who decides with by=.": "Say who decides with --by.",
    " value=; nothing was decided.": " --value; nothing was decided.",
}

_PATTERNS = [(re.compile(re.escape(said).replace(_HOLE, "(.+?)")), meant) for said, meant in ADVICE.items()]


def in_words_of_the_shell(message: str, about: Subject = Subject()) -> str:  # noqa: B008  # frozen
    """A message of the library for somebody who types commands."""
    for said, meant in _PATTERNS:
        found = said.search(message)
        if found is not None:
            told = meant.format(*found.groups())
            told = _COMMAND.sub(lambda spelled: f"`{command(spelled[1], about)}`", told)
            message = f"{message[: found.start()]}{told}{message[found.end() :]}"
    return _SPELLED.sub(lambda spelled: f"`{with_store(spelled[1], about.store)}`", message)


def command(words: str, about: Subject) -> str:
    """A command as it can be typed: with its thread, and with its store where that was named."""
    if about.agent is not None and words.startswith("state "):
        words = words.replace("THREAD", f"--agent {shlex.quote(about.agent)}")
    elif about.thread is not None:
        words = words.replace("THREAD", shlex.quote(about.thread))
    return with_store(f"perdure {words}", about.store)


def with_store(spelled: str, store: str | None) -> str:
    """A command that names the store, unless it does so already; None: it is found without."""
    return spelled if store is None or "--store" in spelled else f"{spelled} --store {shlex.quote(store)}"
