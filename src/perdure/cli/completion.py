"""Completes ids at the shell: the threads, timelines, runs and calls of the store, and paths of a state.

The script that `perdure --install-completion` writes knows nouns, verbs and options.  For the arguments that are marked
with `in_store` it asks `perdure __complete WORDS`, and `answer` prints what can stand in the place of the last word.

A person waits for Tab, so this loads neither the libraries that parse words nor an engine: it reads the file as any
program for SQLite does, in a tenth of the time.  A store on a server has no completion of ids, because connecting
to it takes longer than a person waits.  Paths are in trees that only the engine reads, so it is loaded for them, and
reads the part of the tree where they are.  Whatever goes wrong, nothing is offered and nothing is printed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing it from `typing` would take a tenth of the time

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["COMMAND", "FLAGS", "answer", "candidates", "in_store"]

COMMAND = "__complete"  # as the generated scripts call it

# The options without a value; the word after any other option is its value.
FLAGS = frozenset(
    [
        "--absent",
        "--again",
        "--all",
        "--apply",
        "--calls",
        "--check",
        "--commits",
        "--dropped",
        "--dry-run",
        "--erase",
        "--exists",
        "--expired",
        "--follow",
        "--force",
        "--full",
        "--graph",
        "--json",
        "--newest",
        "--no-verify",
        "--operator",
        "--ours",
        "--raw",
        "--rebase",
        "--removed",
        "--repair",
        "--replace",
        "--send",
        "--set-aside-newer",
        "--size",
        "--sound",
        "--stat",
        "--theirs",
        "--until-idle",
        "--verbose",
        "--verify",
        "--wait",
        "--whole",
        "--work",
        "--yes",
    ]
)
_OPTIONS = {
    "--at": "timelines",  # of the names of moments those that can be typed ahead
    "--bad": "timelines",
    "--good": "timelines",
    "--onto": "timelines",
    "--owner": "owners",
    "--path": "paths",
    "--prefix": "paths",
    "--run": "runs",
    "--thread": "threads",
    "--timeline": "timelines",
}
_SINGULAR = {"thread": "threads", "run": "runs", "call": "calls", "approval": "approvals"}
_WITH_A_PATH = ("get", "put", "rm", "ls", "log", "blame")
_OF_A_LINE = ("promote", "seal", "merge", "diff")
_FILE = "sqlite:///"
_COUNT_MAX = 200

_SPACE = """(SELECT s.id FROM cells c JOIN spaces store ON store.id = c.space AND store.name = 'store'
             JOIN spaces s ON s.name = json_extract(c.value, '$.space') WHERE c.name = 'thread/' || :thread)"""
_OF_A_THREAD = f"SELECT substr(name, {{skip}}) FROM cells WHERE space = {_SPACE} AND value IS NOT NULL AND name >= '{{kind}}/' || :begun AND name < '{{kind}}0' ORDER BY name DESC LIMIT {_COUNT_MAX}"  # fmt: skip
_LISTED = (
    "SELECT {id} FROM cells WHERE listed AND value IS NOT NULL AND name >= '{kind}/' AND name < '{kind}0'"
)
_QUERIES = {
    "threads": f"""SELECT substr(name, 8) FROM cells WHERE space = (SELECT id FROM spaces WHERE name = 'store')
        AND value IS NOT NULL AND name >= 'thread/' || :begun AND name < 'thread0' ORDER BY name LIMIT {_COUNT_MAX}""",
    "owners": f"""SELECT substr(name, 8) FROM spaces WHERE name >= 'memory:' || :begun AND name < 'memory;' UNION
        SELECT json_extract(value, '$.owner') FROM cells WHERE space = (SELECT id FROM spaces WHERE name = 'store')
        AND value IS NOT NULL AND name >= 'thread/' AND name < 'thread0' LIMIT {_COUNT_MAX * 10}""",
    "timelines": f"SELECT timeline FROM heads WHERE space = {_SPACE} AND timeline NOT GLOB 'run/*'",
    "runs": _OF_A_THREAD.format(skip=5, kind="run"),
    "calls": _OF_A_THREAD.format(skip=6, kind="call"),
    "approvals": _LISTED.format(id="json_extract(value, '$.call')", kind="ticket") + f" AND space = {_SPACE}",
    "any runs": _LISTED.format(id="substr(name, 5)", kind="run")
    + " UNION ALL "
    + _LISTED.format(id="substr(name, instr(name, ':') + 1)", kind="waits"),
    "any calls": _LISTED.format(id="substr(name, 6)", kind="call"),
    "any approvals": _LISTED.format(id="json_extract(value, '$.call')", kind="ticket"),
}


def in_store(_: object) -> tuple[str, ...]:
    """Mark an argument whose values are in the store: the generated scripts ask for them, and `answer` finds them."""
    return ()


def answer(words: Sequence[str]) -> None:
    """Print what can stand in the place of the last of `words`, one a line, as the generated scripts read it."""
    found = candidates(words, os.environ)
    sys.stdout.write("".join(f"{line}\n" for line in ("\x1fbegin", *found)))
    sys.stdout.flush()


def candidates(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the ids of the store that begin with the last of `words` and can stand in its place."""
    *before, begun = words or [""]
    given, options, option = _read(before)
    kinds = [_OPTIONS.get(option, "")] if option else _kinds(given, has_agent="--agent" in options)
    thread = given[2] if len(given) > 2 else ""
    if kinds == ["runs"] and not thread:
        kinds = ["any runs"]
    place = options.get("--store") or environment.get("PERDURE_STORE") or "perdure.db"
    if not any(kinds) or not os.path.isfile(path := place.removeprefix(_FILE)):
        return []
    if kinds == ["paths"]:
        return _paths(place, thread, options, begun)
    import sqlite3

    try:
        address = f"file:{_quoted(path)}?mode=ro"
        opened = sqlite3.connect(address, uri=True, timeout=0.05)
        try:
            found = [id for kind in kinds for id in _ids(opened, kind, thread, begun)]
        finally:
            opened.close()
    except sqlite3.Error:
        return []
    return [id for id in dict.fromkeys(found) if id.startswith(begun)][:_COUNT_MAX]


def _read(words: Sequence[str]) -> tuple[list[str], dict[str, str], str]:
    """Return the words that are no options, the values of options, and the option whose value is typed just now."""
    given, options, option = list[str](), dict[str, str](), ""
    for word in words:
        if option:
            options[option], option = word, ""
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            if equals:
                options[name] = value
            elif word not in FLAGS:
                option = word
        else:
            given.append(word)
    return given, options, option


def _kinds(given: Sequence[str], *, has_agent: bool) -> list[str]:
    """Return what the next word of a command can be; with an agent there is no thread before a path."""
    noun, verb = _SINGULAR.get(given[0], given[0]) if given else "", given[1] if len(given) > 1 else ""
    if noun in ("export", "eval") and len(given) == 1:
        return ["threads"]
    is_of_thread = noun in ("threads", "state", "runs", "calls", "approvals", "checkpoints", "artifacts")
    if noun == "state" and verb in _WITH_A_PATH and len(given) == (2 if has_agent else 3):
        return ["paths"]
    match len(given), noun:
        case 2, "runs" | "calls" | "approvals" if verb not in ("ls", "start", "release"):
            return ["threads", f"any {noun}"]
        case 2, _ if is_of_thread and verb != "search" and not has_agent:
            return ["threads"]
        case 3, "runs" | "calls" | "approvals" if verb not in ("ls", "start", "release"):
            return [noun]
        case 3 | 4, "threads" if verb in _OF_A_LINE:
            return ["timelines"]
        case _:
            return []


def _ids(opened: sqlite3.Connection, kind: str, thread: str, begun: str) -> Iterator[str]:
    for (id,) in opened.execute(_QUERIES[kind], {"thread": thread, "begun": begun}):
        if isinstance(id, str) and id.isprintable():
            yield id


def _paths(place: str, thread: str, options: Mapping[str, str], begun: str) -> list[str]:
    """Return the paths of a state that begin so; what is read is the part of the tree that has them."""
    from itertools import islice

    import perdure
    from perdure.errors import PerdureError

    try:
        with perdure.open(place, read_only=True) as store:
            agent, timeline, moment = options.get("--agent"), options.get("--timeline"), options.get("--at")
            line = store.thread(thread, timeline=timeline or "main") if agent is None else store.agent(agent)
            seen = line if moment is None else line.at(moment)
            found = seen._tree().entries(begun)  # pyright: ignore[reportPrivateUsage]
            return [each.path for each in islice(found, _COUNT_MAX) if each.path.isprintable()]
    except PerdureError:
        return []


def _quoted(path: str) -> str:
    """Return a path for an address of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
