"""The command line as a whole.

A command's file is imported when it is used, so that `perdure --help` loads nothing that
touches a store.

`NOUNS` has the commands with a noun, `ALONE` those without.  Each has the first line of its docstring here too, so that it can be listed without being loaded.
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
    "show": "Show one thread: its timelines, the size of its state, and its last messages",
    "begin": "Begin a thread for an agent, or open the existing one",
    "log": "Show the log of a timeline, turn by turn, newest first",
    "turns": "List the turns of a timeline, oldest first, one per line",
    "follow": "Print the events of a timeline as they are committed",
    "fork": "Fork a timeline at any of its commits; nothing is copied",
    "undo": "Undo the last turn, or go back to any commit",
    "redo": "Reverse the last undo",
    "promote": "Make another timeline main; the old main is kept, sealed",
    "seal": "Seal a timeline: it takes no more writes",
    "merge": "Merge the changes of another timeline",
    "diff": "Compare two commits: state, messages and tool calls",
    "context": "Show the context that a backend gets: each item, its tokens, and why it is in or out",
    "render": "Show the request that a backend would get, and what its format loses",
    "switch": "Switch a thread to another backend, after a check of what that keeps and loses",
    "bisect": "Find the first commit at which a condition on a value became true",
    "rm": "Remove a thread with all its timelines",
}

_STATE = {
    "ls": "List paths and their values",
    "get": "Print the value at a path",
    "put": "Write a value to a path, in a commit of its own",
    "rm": "Delete the value at a path, in a commit of its own; its history stays",
    "log": "Show every value that a path has had, newest first",
    "blame": "Show which commit, turn, message and backend wrote a value",
}

_RUNS = {
    "ls": "List the runs of a thread, or all runs that have not ended",
    "show": "Show one run: its state, its messages and its calls",
    "resume": "Resume a run that was interrupted, or whose approval was decided",
    "cancel": "Cancel a run; one that waits or was interrupted ends at once",
}

_CALLS = {
    "ls": "List the tool calls of a thread, or all calls whose outcome is unknown",
    "show": "Show one call: its arguments, its result and its changes of state",
    "reconcile": "Ask a call's tool for the outcome, and settle the call by the answer",
    "resolve": "Record the outcome of a call yourself, if it is unknown",
}

_APPROVALS = {
    "ls": "List the calls that wait for a decision",
    "show": "Show one approval: the call, the question and the deadline",
    "approve": "Approve a call with its arguments as they are",
    "deny": "Deny a call; the model gets the reason",
    "edit": "Approve a call with other arguments, shown as a diff",
    "answer": "Answer the question of a call, or give its result yourself",
}

_MEMORY = {
    "ls": "List the memory of an owner, or all owners",
    "add": "Add an item to the memory of an owner",
    "search": "Search the memory of an owner, best match first",
    "show": "Show one item: its text, its author and its source",
    "forget": "Forget an item, no matter which author wrote it; its history stays",
}

_ARTIFACTS = {
    "ls": "List the artifacts of a thread",
    "show": "Show the metadata of an artifact, without its content",
    "get": "Write the content of an artifact to a file or a pipe",
    "put": "Store a file as an artifact of a thread",
}

_CHECKPOINTS = {
    "ls": "List the checkpoints of a timeline, newest first",
    "show": "Show one checkpoint as YAML, in the format in which files hold it",
    "derive": "Derive the checkpoint that a switch would make; nothing is written",
    "load": "Read a checkpoint from a file, and verify it",
}

_AGENTS = {
    "ls": "List agents by name, with their backends, versions and threads",
    "show": "Show one agent: its definition, its versions and its threads",
    "apply": "Store an agent that is defined in a file",
    "export": "Write the definition of an agent as a file",
    "switch": "Switch every open thread of an agent to another backend, each after a check",
}

_PROVIDERS = {
    "ls": "List the providers that a backend can name, and their wire formats",
    "check": "Check a request by the rules of a provider's API",
}

_MODELS = {
    "ls": "List the known models, their abilities and their end dates",
    "show": "Show one model: its limits, abilities and prices",
}

NOUNS = {
    "threads": Noun("Read, fork, undo and merge threads", _THREADS, ("thread",)),
    "state": Noun("Read and write the state of threads and agents", _STATE),
    "runs": Noun("Show, resume and cancel runs", _RUNS, ("run",)),
    "calls": Noun("Show tool calls, and settle unknown outcomes", _CALLS, ("call",)),
    "approvals": Noun("Decide on calls that wait for approval", _APPROVALS, ("approval",)),
    "checkpoints": Noun("Show migration checkpoints", _CHECKPOINTS, ("checkpoint",)),
    "agents": Noun("Store, export and switch agents", _AGENTS, ("agent",)),
    "memory": Noun("Read and write an owner's memory", _MEMORY, ("memories",)),
    "artifacts": Noun("Store files beside a thread's state", _ARTIFACTS, ("artifact",)),
    "models": Noun("Show what models can do and cost", _MODELS, ("model",)),
    "providers": Noun("List providers, and check requests", _PROVIDERS, ("provider",)),
}

ALONE = {
    "demo": Alone(
        "Show what Perdure does, in a short story on a store that you keep", "Start", "demo.command:demo"
    ),
    "init": Alone("Create a store", "Start"),
    "chat": Alone("Chat with an agent at the terminal", "Start", "chat.command:chat"),
    "sql": Alone("Query the store in SQL, read-only", "Work"),
    "import": Alone("Import a saved request, reply or message list as a thread", "Work", "import_:import_"),
    "export": Alone("Export a thread in a vendor's format, to git, or as plain tables", "Work"),
    "verify": Alone("Verify everything that is stored", "Care"),
    "doctor": Alone("Diagnose the store and its environment", "Care"),
    "backup": Alone("Back up the store to a new file, while it is in use", "Care"),
    "gc": Alone("Delete what your retention policy no longer keeps", "Care"),
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
    "checkpoints derive": "show",
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
    """Return the app with every command, none of them loaded."""
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
    """Load the command that `words` begin with, with all of its help; None if there is none."""
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
    """Return the version of Perdure that is installed."""
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
