"""The commands there are: nouns with their verbs, and those that stand alone.

Each has the first line of its docstring here too, so that it can be listed without being loaded.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALONE", "NOUNS", "SPELLINGS", "Alone", "Noun"]


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
    "demo": Alone("Show what Perdure does, in a short story on a store that you keep", "Start"),
    "init": Alone("Make a new store", "Start"),
    "chat": Alone("Talk to an agent at the terminal", "Start"),
    "sql": Alone("Ask the store in SQL, read-only", "Work"),
    "import": Alone("Make a thread of a saved request, reply or message list", "Work", "importing:import_"),
    "export": Alone("Write a thread in a vendor's format, to git, or as plain tables", "Work"),
    "verify": Alone("Check everything that is stored", "Care"),
    "doctor": Alone("Look at the store and its surroundings, and say what could be better", "Care"),
    "backup": Alone("Copy the store to a new file while others go on writing", "Care"),
    "gc": Alone("Forget what a policy of yours no longer wants kept", "Care"),
}

SPELLINGS = {spelling: name for name, noun in NOUNS.items() for spelling in (name, *noun.also)}
