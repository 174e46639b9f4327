"""The list of commands: their names, what each does, and where its code is.

`NOUNS` has the commands with a noun, `ALONE` those without.  Each has the first line of its docstring here too, so that
it can be listed without being loaded.

`page` is what `perdure --help` and `perdure threads --help` print.  The libraries that parse words and draw every other page take ten times as long
to load as this page takes to print, so it is drawn here without them.  Each looks as they would draw it, at every width and
in colour: a test compares the two.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

TYPE_CHECKING = False  # as in `completion`: the first page takes as long as what it imports
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ABOUT",
    "ALONE",
    "GROUPS",
    "NOUNS",
    "OPTIONS",
    "SPELLINGS",
    "WIDTH_MIN",
    "Alone",
    "Noun",
    "draw",
    "page",
]

ABOUT = "Keep the state of AI agents: durable, versioned and free of any vendor"
GROUPS = ("Start", "Work", "Care")
OPTIONS = {
    "--help": "Show this page",
    "--install-completion": "Install completion for your shell",
    "--version": "Show the version",
}


class Noun(NamedTuple):
    """Something there are commands about."""

    line: str
    verbs: dict[str, str]  # and what each does
    also: tuple[str, ...] = ()  # other spellings
    # Titles of groups, by the first command of each; None: there is one group.
    begins: Mapping[str, str] | None = None

    def groups(self) -> dict[str, dict[str, str]]:
        """Return the commands and what each does, by the title of their group."""
        found: dict[str, dict[str, str]] = {}
        title = "Commands"
        for verb, line in self.verbs.items():
            title = (self.begins or {}).get(verb, title)
            found.setdefault(title, {})[verb] = line
        return found


class Alone(NamedTuple):
    """A command without a noun."""

    line: str
    group: str
    place: str | None = None  # the module and the function, where they are not called as the command is


_THREADS = {
    "ls": "List threads by id",
    "show": "Show one thread: its timelines, the size of its state, and its last messages",
    "log": "Show the log of a timeline, turn by turn, newest first",
    "turns": "List the turns of a timeline, oldest first, one per line",
    "search": "Search the messages and titles of all threads, or of one, for words",
    "follow": "Print the events of a timeline as they are committed",
    "fork": "Fork a timeline at any of its commits; nothing is copied",
    "undo": "Undo the last turn, or go back to any commit",
    "redo": "Reverse the last undo",
    "moves": "List the moves of a timeline's head, newest first: commits, undos, redos, promotions",
    "promote": "Make another timeline main; the old main is kept, sealed",
    "merge": "Merge the changes of another timeline",
    "cherry-pick": "Apply the changes of state of turns, or a range of them, to another timeline",
    "replay": "Give the later inputs of a timeline to a fork again, with bounded effects",
    "diff": "Compare two commits: state, messages and tool calls",
    "bisect": "Find the first commit at which a condition on a value became true",
    "context": "Show the context that a backend gets: each item, its tokens, and why it is in or out",
    "render": "Show the request that a backend would get, and what its format loses",
    "begin": "Begin a thread for an agent, or open the existing one",
    "switch": "Switch a thread to another backend, after a check of what that keeps and loses",
    "hand-off": "Hand a thread off to another agent, which gets the conversation",
    "seal": "Seal a timeline: it takes no more writes",
    "redact": "Redact a message, a call or an artifact: its words go for good",
    "rm": "Remove a thread with all its timelines, or drop one timeline",
}

_THREADS_GROUPS = {"ls": "Read", "fork": "Fork and undo", "diff": "Inspect", "begin": "Manage"}

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
    "start": "Queue an input for a worker, now or for a later time",
    "wait": "Wait until a run has ended, or waits for a decision, wherever it is carried on",
    "resume": "Resume a run that was interrupted, or whose approval was decided, or retry one that failed",
    "cancel": "Cancel a run; one that waits or was interrupted ends at once",
    "release": "Release the runs of a copied thread, or a run that was set aside",
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
    "search": "Search the memory of an owner, best match first",
    "show": "Show one item: its text, its author and its source",
    "log": "Show the changes of an owner's memory, newest first",
    "moves": "List what was done to an owner's memory with every undo and redo, newest first",
    "add": "Add an item to the memory of an owner",
    "edit": "Correct an item; its past stays in the history",
    "keep": "Make an item independent of the thread that wrote it",
    "pin": "Show an item to every run of the owner, whatever the input says",
    "unpin": "Show an item only to runs whose input it matches",
    "forget": "Forget an item, no matter which author wrote it; its history stays unless it is erased",
    "restore": "Put one item back as it was before its last change, or at a commit",
    "undo": "Undo the last change of an owner's memory, whichever item it was about",
    "redo": "Reverse the last undo of an owner's memory",
}

_MEMORY_GROUPS = {"ls": "Read", "add": "Change one item", "undo": "Step the whole memory back and forth"}

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

_KEYS = {
    "add": "Add a key for a client of the server, and print it once",
    "ls": "List the keys of the server by name, without their secrets",
    "rm": "Remove a key; servers refuse it within a second",
}

NOUNS = {
    "threads": Noun("Read, fork, undo and merge threads", _THREADS, ("thread",), _THREADS_GROUPS),
    "state": Noun("Read and write the state of threads and agents", _STATE),
    "runs": Noun("Show, queue, resume, cancel and release runs", _RUNS, ("run",)),
    "calls": Noun("Show tool calls, and settle unknown outcomes", _CALLS, ("call",)),
    "approvals": Noun("Decide on calls that wait for approval", _APPROVALS, ("approval",)),
    "checkpoints": Noun("Show migration checkpoints", _CHECKPOINTS, ("checkpoint",)),
    "agents": Noun("Store, export and switch agents", _AGENTS, ("agent",)),
    "memory": Noun("Read and write an owner's memory", _MEMORY, ("memories",), _MEMORY_GROUPS),
    "artifacts": Noun("Store files beside a thread's state", _ARTIFACTS, ("artifact",)),
    "models": Noun("Show what models can do and cost", _MODELS, ("model",)),
    "providers": Noun("List providers, and check requests", _PROVIDERS, ("provider",)),
    "keys": Noun("Add and remove keys of the server", _KEYS, ("key",)),
}

ALONE = {
    "demo": Alone(
        "Show what Perdure does, in a short story on a store that you keep", "Start", "demo.command:demo"
    ),
    "init": Alone("Create a store", "Start"),
    "chat": Alone("Chat with an agent at the terminal", "Start", "chat.command:chat"),
    "serve": Alone(
        "Serve the store over HTTP, with a page for the browser, until stopped", "Work", "keys.serve:serve"
    ),
    "mcp": Alone(
        "Offer the store to a client of the Model Context Protocol, over standard input and output",
        "Work",
        "keys.mcp:mcp",
    ),
    "work": Alone(
        "Work: begin queued runs, resume interrupted and decided ones, and act on timers, until stopped",
        "Work",
        "runs.work:work",
    ),
    "eval": Alone("Run recorded turns again, and score them", "Work", "eval_:eval_"),
    "costs": Alone("Show what models cost", "Work"),
    "sql": Alone("Query the store in SQL, read-only", "Work"),
    "import": Alone(
        "Import sessions of other tools, or a saved conversation, as threads",
        "Work",
        "import_.command:import_",
    ),
    "export": Alone("Export a thread in a vendor's format, to git, as plain tables, or as spans", "Work"),
    "verify": Alone("Verify everything that is stored", "Care"),
    "doctor": Alone("Diagnose the store and its environment", "Care"),
    "backup": Alone("Back up the store to a new file, while it is in use", "Care"),
    "restore": Alone("Restore the store from a backup, after a check of it", "Care"),
    "copy": Alone("Copy a store, or some of its threads, into another store", "Care"),
    "compare": Alone("Compare two stores: what differs, and which has more", "Care", "copy:compare"),
    "gc": Alone("Delete what your retention policy no longer keeps", "Care"),
}

SPELLINGS = {spelling: name for name, noun in NOUNS.items() for spelling in (name, *noun.also)}


WIDTH_MIN = 55  # below it, a name does not fit into its column

_WIDTH = 80  # where nothing says how wide the screen is
_NAMES_PERCENT = 35  # of the width, at most
_GAP = "  "
_BOLD, _CYAN, _END = "\x1b[1m", "\x1b[36m", "\x1b[0m"
_ROUND, _ASCII = "╭─╮│╰╯", "+-+|++"


def page(noun: str | None = None) -> str | None:
    """Return the first page, or that of a noun, for the standard output as it is; None if that is too narrow."""
    is_terminal = _is_terminal()
    is_dumb = is_terminal and os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    width = _WIDTH if is_dumb else _width()
    if width < WIDTH_MIN:
        return None
    is_styled = is_terminal and not is_dumb
    return draw(
        width,
        noun=noun,
        bold=is_styled,
        colour=is_styled and not os.environ.get("NO_COLOR"),
        ascii_only=not (sys.stdout.encoding or "utf-8").lower().startswith("utf"),
    )


def draw(width: int, *, noun: str | None = None, bold: bool, colour: bool, ascii_only: bool) -> str:
    """Return the first page, or that of a noun, for a screen of that many columns."""
    command = "perdure COMMAND" if noun is None else f"perdure {noun} COMMAND"
    about = ABOUT if noun is None else NOUNS[noun].line
    usage = f"{_BOLD}Usage: {_END}{_BOLD}{command}{_END}" if bold else f"Usage: {command}"
    lines = [usage, "", *_wrapped(about, width), ""]
    for title, rows in _groups() if noun is None else NOUNS[noun].groups().items():
        lines += _panel(title, rows, width, colour=colour, box=_ASCII if ascii_only else _ROUND)
    return "\n".join(lines) + "\n"


def _groups() -> list[tuple[str, dict[str, str]]]:
    """Return the titles of the groups, each with its commands and what they do."""
    groups: dict[str, dict[str, str]] = {name: {} for name in GROUPS}
    for name, noun in NOUNS.items():
        groups["Work"][f"{name} ({', '.join(noun.also)})" if noun.also else name] = noun.line
    for name, alone in ALONE.items():
        groups[alone.group][name] = alone.line
    groups["Options"] = {"--help (-h)" if name == "--help" else name: line for name, line in OPTIONS.items()}
    return list(groups.items())


def _panel(title: str, rows: dict[str, str], width: int, *, colour: bool, box: str) -> list[str]:
    """Return the lines of a box with two columns."""
    inside = width - 4
    limit = -(-width * _NAMES_PERCENT // 100)
    names = [_wrapped(name, limit, indent=_GAP) for name in rows]
    first = max(len(line) for lines in names for line in lines)
    second = inside - first - len(_GAP)
    top_left, across, top_right, side, bottom_left, bottom_right = box
    drawn = [f"{top_left}{across} {title} {across * (width - len(title) - 5)}{top_right}"]
    for name, about in zip(names, rows.values(), strict=True):
        texts = _wrapped(about, second)
        for at in range(max(len(name), len(texts))):
            text = texts[at] if at < len(texts) else ""
            shown = _name(name[at] if at < len(name) else None, first, colour=colour)
            drawn.append(f"{side} {shown}{text:<{second}} {side}")
    return [*drawn, f"{bottom_left}{across * (width - 2)}{bottom_right}"]


def _name(name: str | None, width: int, *, colour: bool) -> str:
    """Return the first column of a line, with the gap after it; None: the line goes on with the second column."""
    if not colour:
        return f"{name or '':<{width}}{_GAP}"
    if name is None:
        return f"{_CYAN}{'':<{width}}{_GAP}{_END}"
    return f"{_CYAN}{name:<{width}}{_END}{_CYAN}{_GAP}{_END}"


def _wrapped(text: str, width: int, *, indent: str = "") -> list[str]:
    """Return `text` in lines of at most `width`; a space at the end of a line stays where there is room for it."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1].strip() and len(lines[-1]) + len(word) > width:
            lines.append(indent)
        lines[-1] += word + " "
    *before, last = lines
    return [*(line[:width] for line in before), last[:-1]]


def _is_terminal() -> bool:
    """True if the output understands colours: a terminal, unless the environment says otherwise."""
    compatible, forced = os.environ.get("TTY_COMPATIBLE"), os.environ.get("FORCE_COLOR")
    if compatible in ("0", "1"):
        return compatible == "1"
    return sys.stdout.isatty() if forced is None else forced != ""


def _width() -> int:
    """Return the number of columns: as the environment says, else those of the terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    for stream in (0, 1, 2):
        try:
            return os.get_terminal_size(stream).columns or _WIDTH
        except OSError:
            continue
    return _WIDTH
