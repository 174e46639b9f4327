"""The command line as a whole.

A command's file is imported when it is used, so that `perdure --help` loads nothing that
touches a store.

The commands there are: nouns with their verbs, and those that stand alone.

Each has the first line of its docstring here too, so that it can be listed without being loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from inspect import cleandoc
from typing import NamedTuple

from cyclopts import App, Group

__all__ = ["build", "load", "version", "ALONE", "NOUNS", "SPELLINGS", "Alone", "Noun"]


class Noun(NamedTuple):
    """Something there are commands about."""

    line: str
    verbs: dict[str, str]  # and what each does
    also: tuple[str, ...] = ()  # other spellings


class Alone(NamedTuple):
    """A command without a noun."""

    line: str
    group: str
    place: str | None = None  # the module and the function, where they are not called as the command is


_THREADS = {
    "ls": "List threads by id",
    "show": "Show one thread: its timelines, its state in numbers, and what was said last",
    "begin": "Begin a thread for an agent, or open the one there is",
    "log": "Show what happened on a timeline, turn by turn, newest first",
    "turns": "List the turns of a timeline, oldest first, a line each",
    "follow": "Print what becomes durable on a timeline, as it happens",
    "fork": "Begin a timeline at a moment of another, copying nothing",
    "undo": "Step back over the last turn, or to any moment",
    "redo": "Take back the last undo",
    "promote": "Make another timeline main; the old main is kept, sealed",
    "seal": "End writing on a timeline, for everybody and for good",
    "merge": "Take in what another timeline changed",
    "diff": "Compare two moments: state, messages and tool calls",
    "context": "Show what a backend is shown of a thread: each item, its tokens, whether it is in, and why",
    "render": "Show the request that a backend would be sent, and what is lost on the way",
    "switch": "Let another backend take over a thread, after a check of what that keeps and loses",
    "bisect": "Find the first moment at which something became true",
    "rm": "Remove a thread, with all its timelines",
}

_STATE = {
    "ls": "List paths and what they hold",
    "get": "Print the value at a path",
    "put": "Let a path hold a value, by a commit of its own",
    "rm": "Let a path hold nothing, by a commit of its own; its past stays",
    "log": "Show every value that a path has held, newest first",
    "blame": "Show which commit, turn, message and backend wrote a value",
}

_RUNS = {
    "ls": "List the runs of a thread, or all that have not ended",
    "show": "Show one run: how it stands, what was said in it, and its calls",
    "resume": "Go on with a run that was cut off, or that has been decided",
    "cancel": "Ask a run to stop; one that waits, or was cut off, is ended at once",
}

_CALLS = {
    "ls": "List the tool calls of a thread, or all whose outcome nobody knows",
    "show": "Show one call: arguments, result, and the way that it took",
    "reconcile": "Ask a call's tool what became of it, and settle it by the answer",
    "resolve": "Say what became of a call whose outcome nobody knows",
}

_APPROVALS = {
    "ls": "List what waits for a decision",
    "show": "Show one approval: who asks, for what, and until when",
    "approve": "Let a call go on as it is",
    "deny": "Refuse a call; the model is told",
    "edit": "Let a call go on with other arguments, shown as a diff",
    "answer": "Answer a call's question, or give its result yourself",
}

_MEMORY = {
    "ls": "List what is remembered for an owner, or who has a memory",
    "add": "Remember something for an owner",
    "search": "Find what is remembered for an owner, the best first",
    "show": "Show one item: its words, who said it, and where it comes from",
    "forget": "Let an item be remembered no more, whoever wrote it; its past stays",
}

_ARTIFACTS = {
    "ls": "List the artifacts of a thread",
    "show": "Show what is known of an artifact without reading its content",
    "get": "Write the content of an artifact to a file or a pipe",
    "put": "Keep a file as an artifact of a thread",
}

_CHECKPOINTS = {
    "ls": "List the checkpoints that switches left on a timeline, newest first",
    "show": "Show one checkpoint as YAML, in the envelope in which it can be kept and exchanged",
    "derive": "Show the checkpoint that a switch would make, as YAML; nothing is written",
    "load": "Read a checkpoint from a file, and say whether it is what was written",
}

_AGENTS = {
    "ls": "List agents by name, and what is kept of them",
    "show": "Show one agent: its definition, the versions of it, and its threads",
    "apply": "Keep an agent that is written down as a file",
    "export": "Write an agent's definition as the file that would apply it",
    "switch": "Let another backend take over every open thread of an agent, each after a check",
}

_PROVIDERS = {
    "ls": "List the providers that a backend may name, and their formats",
    "check": "Check a request by the rules of a provider's API",
}

_MODELS = {
    "ls": "List the models that are known, what they can do, and when they end",
    "show": "Show what is known of one model: limits, abilities and prices",
}

NOUNS = {
    "threads": Noun("Look at threads, and move through their timelines", _THREADS, ("thread",)),
    "state": Noun("Read and write what threads and agents know", _STATE),
    "runs": Noun("See what agents do, go on after a crash, or stop them", _RUNS, ("run",)),
    "calls": Noun("See what tools did, and settle what nobody knows", _CALLS, ("call",)),
    "approvals": Noun("Decide what agents may do", _APPROVALS, ("approval",)),
    "checkpoints": Noun("See what a backend is told that takes over", _CHECKPOINTS, ("checkpoint",)),
    "agents": Noun("Keep agents as files, in versions", _AGENTS, ("agent",)),
    "memory": Noun("Know what is kept across threads for an owner", _MEMORY, ("memories",)),
    "artifacts": Noun("Keep bulky content beside a thread's state", _ARTIFACTS, ("artifact",)),
    "models": Noun("Know what models can do, and what they cost", _MODELS, ("model",)),
    "providers": Noun("Know the vendors' formats, and what they refuse", _PROVIDERS, ("provider",)),
}

ALONE = {
    "demo": Alone(
        "Show what Perdure does, in a short story on a store that you keep", "Start", "demo.command:demo"
    ),
    "init": Alone("Make a new store", "Start"),
    "chat": Alone("Talk to an agent at the terminal", "Start", "chat.command:chat"),
    "sql": Alone("Ask the store in SQL, read-only", "Work"),
    "import": Alone("Make a thread of a saved request, reply or message list", "Work", "import_:import_"),
    "export": Alone("Write a thread in a vendor's format, to git, or as plain tables", "Work"),
    "verify": Alone("Check everything that is stored", "Care"),
    "doctor": Alone("Look at the store and its surroundings, and say what could be better", "Care"),
    "backup": Alone("Copy the store to a new file while others go on writing", "Care"),
    "gc": Alone("Forget what a policy of yours no longer wants kept", "Care"),
}

SPELLINGS = {spelling: name for name, noun in NOUNS.items() for spelling in (name, *noun.also)}


# With --agent the thread is left out, which a usage line made from the signature could not say.
_AFTER_THREAD = {"ls": "[PREFIX]", "put": "PATH [VALUE]"}
# Commands that share a module with another verb.
_SHARED = {
    "threads fork": "timelines",
    "threads promote": "timelines",
    "threads seal": "timelines",
    "threads merge": "timelines",
    "threads redo": "undo",
    "threads turns": "log",
    "threads rm": "begin",
    "state put": "write",
    "state rm": "write",
    "calls reconcile": "settle",
    "calls resolve": "settle",
    "approvals approve": "decide",
    "approvals deny": "decide",
    "approvals edit": "decide",
    "approvals answer": "decide",
}
# Words that may be left out have no names in a usage line made from the signature.
_WORDS = {
    "runs ls": "[THREAD]",
    "runs show": "THREAD [RUN]",
    "runs resume": "THREAD [RUN] --code MODULE:NAME",
    "runs cancel": "THREAD [RUN]",
    "calls ls": "[THREAD]",
    "calls reconcile": "THREAD CALL --code MODULE:NAME",
    "approvals ls": "[THREAD]",
    "checkpoints show": "THREAD [CHECKPOINT]",
    "models ls": "[PROVIDER]",
    "export": "THREAD (--format API | --git DIR)",
}


def build() -> App:
    """Every command, none of them loaded."""
    app = App(
        name="perdure",
        help="Keep the state of AI agents: durable, versioned and free of any vendor",
        version=lambda: f"perdure {version()}",
        help_format="plaintext",
        version_format="plaintext",
        group_commands=Group("Options", sort_key=8),
        group_parameters=Group("Options", sort_key=8),
    )
    groups = {name: Group(name, sort_key=at) for at, name in enumerate(("Start", "Work", "Care"))}
    for at, (name, noun) in enumerate(NOUNS.items()):
        app.command(_noun(name, noun, groups["Work"], at))
    for at, (name, alone) in enumerate(ALONE.items(), start=len(NOUNS)):
        group = groups[alone.group]
        place = f"perdure.cli.commands.{alone.place or f'{name}:{name}'}"
        app.command(place, name=name, help=alone.line, usage=_spelled(name), group=group, sort_key=at)
    completion = "Install completion for your shell"
    app.register_install_completion_command(help=completion)  # pyright: ignore[reportUnknownMemberType]
    app["--help"].help = "Show this page"
    app["--version"].help = "Show the version"
    return app


def load(app: App, words: Sequence[str]) -> App | None:
    """The command that `words` begin with, loaded, with the whole of its help; None if there is none."""
    found = app
    for word in words[:2]:
        if word.startswith("-") or found.default_command is not None or word not in found:
            break
        found = found[word]
    if found.default_command is None:
        return None
    paragraphs = cleandoc(found.default_command.__doc__ or "").split("\n\n")
    found.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return found


def version() -> str:
    """The version of Perdure that is installed."""
    return metadata.version("perdure")


def _noun(name: str, noun: Noun, group: Group, at: int) -> App:
    app = App(
        name=name, alias=noun.also, help=noun.line, group=group, sort_key=at, group_commands=Group("Commands")
    )
    for number, (verb, line) in enumerate(noun.verbs.items()):
        usage = _usage(verb) if name == "state" else _spelled(f"{name} {verb}")
        place = f"perdure.cli.commands.{name}.{_SHARED.get(f'{name} {verb}', verb)}:{verb}"
        app.command(place, name=verb, help=line, usage=usage, sort_key=number)
    return app


def _spelled(command: str) -> str | None:
    words = _WORDS.get(command)
    return None if words is None else f"Usage: perdure {command} {words} [OPTIONS]"


def _usage(verb: str) -> str:
    words = _AFTER_THREAD.get(verb, "PATH")
    return (
        f"Usage: perdure state {verb} THREAD {words} [OPTIONS]\n"
        f"       perdure state {verb} {words} --agent NAME [OPTIONS]"
    )
