"""Completes ids at the shell: threads, timelines, commits, runs, calls, items and others of the store, and paths of a state.

The script that `perdure --install-completion` writes knows nouns, verbs and options.  For the arguments that are marked
with `in_store` it asks `perdure __complete WORDS`, and `answer` prints what can stand in the place of the last word.

Every offer begins with what is typed, because the shells leave out what does not.  Listings show an id that Perdure made
by its end, so the end is what is offered, and the whole id only to a person who types its beginning.  Any other part of
four characters or more is completed to the end of the id, which every command takes.

A person waits for Tab, so this loads neither the libraries that parse words nor an engine: it reads the file as any
program for SQLite does, in a tenth of the time.  A store on a server has no completion of ids, because connecting
to it takes longer than a person waits.  Paths, items and checkpoints are in objects that only the engine reads, so it is
loaded for them; of paths it reads the part of the tree where they are.  Whatever goes wrong, nothing is offered and
nothing is printed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing it from `typing` would take a tenth of the time

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
        "--pin",
        "--raw",
        "--rebase",
        "--removed",
        "--repair",
        "--replace",
        "--send",
        "--sendable",
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
    "--agent": "agents",
    "--at": "moments",
    "--bad": "moments",
    "--good": "moments",
    "--onto": "timelines",
    "--owner": "owners",
    "--path": "paths",
    "--prefix": "paths",
    "--run": "runs",
    "--since": "moments",
    "--thread": "threads",
    "--timeline": "timelines",
    "--to": "moments",
}
_SINGULAR = {
    "agent": "agents",
    "approval": "approvals",
    "artifact": "artifacts",
    "call": "calls",
    "checkpoint": "checkpoints",
    "memories": "memory",
    "run": "runs",
    "thread": "threads",
}
_WITH_A_PATH = ("get", "put", "rm", "ls", "log", "blame")
_FILE = "sqlite:///"
_COUNT_MAX = 200  # offers
_LOOKED_AT = 10_000  # ids, of which those that fit are offered
_ROWS_MAX = 5_000  # of the log, for commits that were undone
_SHOWN_MIN = 8  # characters of its end by which listings show an id
_PART_MIN = 4  # characters that commands take in place of a whole id
_DIGITS_SHOWN = 12  # of a digest

_SPACE = """(SELECT s.id FROM cells c JOIN spaces store ON store.id = c.space AND store.name = 'store'
             JOIN spaces s ON s.name = json_extract(c.value, '$.space') WHERE c.name = 'thread/' || :thread)"""
_OF_A_THREAD = f"SELECT substr(name, {{skip}}) FROM cells WHERE space = {_SPACE} AND value IS NOT NULL AND name >= '{{kind}}/' AND name < '{{kind}}0' ORDER BY name DESC LIMIT {_LOOKED_AT}"  # fmt: skip
_OF_EVERY_THREAD = f"""SELECT substr(c.name, {{skip}}) FROM cells t
    JOIN spaces store ON store.id = t.space AND store.name = 'store'
    JOIN spaces s ON s.name = json_extract(t.value, '$.space')
    JOIN cells c ON c.space = s.id AND c.name >= '{{kind}}/' AND c.name < '{{kind}}0' AND c.value IS NOT NULL
    WHERE t.name >= 'thread/' AND t.name < 'thread0' AND t.value IS NOT NULL LIMIT {_LOOKED_AT}"""
_OF_THE_STORE = (
    "FROM cells WHERE space = (SELECT id FROM spaces WHERE name = 'store') AND value IS NOT NULL AND name"
)
_LISTED = (
    "SELECT {id} FROM cells WHERE listed AND value IS NOT NULL AND name >= '{kind}/' AND name < '{kind}0'"
)
_QUERIES = {
    "threads": f"""SELECT substr(name, 8) {_OF_THE_STORE} >= 'thread/' || :begun AND name < 'thread0'
        ORDER BY name LIMIT {_COUNT_MAX}""",
    "all threads": f"SELECT substr(name, 8) {_OF_THE_STORE} >= 'thread/' AND name < 'thread0' LIMIT {_LOOKED_AT}",
    "agents": f"""SELECT substr(name, 7) {_OF_THE_STORE} >= 'agent/' AND name < 'agent0' UNION
        SELECT json_extract(value, '$.agent') {_OF_THE_STORE} >= 'thread/' AND name < 'thread0' LIMIT {_LOOKED_AT}""",
    "owners": f"""SELECT substr(name, 8) FROM spaces WHERE name >= 'memory:' || :begun AND name < 'memory;' UNION
        SELECT json_extract(value, '$.owner') {_OF_THE_STORE} >= 'thread/' AND name < 'thread0' LIMIT {_LOOKED_AT}""",
    "timelines": f"SELECT timeline FROM heads WHERE space = {_SPACE} AND timeline NOT GLOB 'run/*'",
    "commits": f"""WITH RECURSIVE back(row) AS (
            SELECT commit_row FROM heads WHERE space = {_SPACE} AND commit_row IS NOT NULL
            UNION SELECT l.prev FROM back JOIN log l ON l.id = back.row WHERE l.prev IS NOT NULL LIMIT {_LOOKED_AT}
        ) SELECT lower(hex(l.digest)) FROM back JOIN log l ON l.id = back.row UNION
        SELECT lower(hex(digest)) FROM log
        WHERE id > (SELECT max(id) FROM log) - {_ROWS_MAX} AND space = {_SPACE} AND digest IS NOT NULL""",
    "runs": _OF_A_THREAD.format(skip=5, kind="run"),
    "calls": _OF_A_THREAD.format(skip=6, kind="call"),
    "approvals": _LISTED.format(id="json_extract(value, '$.call')", kind="ticket") + f" AND space = {_SPACE}",
    "named artifacts": f"""SELECT DISTINCT json_extract(value, '$.name') FROM cells WHERE space = {_SPACE}
        AND value IS NOT NULL AND name >= 'artifact/' AND name < 'artifact0' LIMIT {_LOOKED_AT}""",
    "artifacts": _OF_A_THREAD.format(skip=10, kind="artifact"),
    "all runs": _OF_EVERY_THREAD.format(skip=5, kind="run"),
    "all calls": _OF_EVERY_THREAD.format(skip=6, kind="call"),
    "any runs": _LISTED.format(id="substr(name, 5)", kind="run")
    + " UNION ALL "
    + _LISTED.format(id="substr(name, instr(name, ':') + 1)", kind="waits"),
    "any calls": _LISTED.format(id="substr(name, 6)", kind="call"),
    "any approvals": _LISTED.format(id="json_extract(value, '$.call')", kind="ticket"),
}
_DIGESTS = ("artifacts", "commits")  # which are shown by their beginning
_BY_THE_ENGINE = ("paths", "items", "checkpoints")


def in_store(_: object) -> tuple[str, ...]:
    """Mark an argument whose values are in the store: the generated scripts ask for them, and `answer` finds them."""
    return ()


def answer(words: Sequence[str]) -> None:
    """Print what can stand in the place of the last of `words`, one a line, as the generated scripts read it."""
    found = candidates(words, os.environ)
    sys.stdout.write("".join(f"{line}\n" for line in ("\x1fbegin", *found)))
    sys.stdout.flush()


def candidates(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return what can stand in the place of the last of `words` and begins like it: ids of the store, or ends of them."""
    *before, begun = map(_unquoted, words or [""])
    begun = "" if begun == "=" else begun  # bash gives = by itself if nothing is typed after --timeline=
    given, options, option = _read(before)
    kinds = [_OPTIONS.get(option, "")] if option else _kinds(given, has_agent="--agent" in options)
    at = 1 if given[:1] in (["export"], ["eval"], ["costs"]) else 2
    thread = options.get("--thread") or (given[at] if len(given) > at else "")
    if kinds == ["runs"] and not thread:
        kinds = ["any runs"]
    if kinds[-1:] in (["any runs"], ["any calls"]) and begun:
        kinds = [*kinds[:-1], kinds[-1].replace("any", "all")]
    elif kinds == ["moments"]:
        kinds = ["timelines", "commits", "runs"] if begun else ["timelines"]
    source = given[1] if given[:1] == ["copy"] and len(given) > 1 else ""
    place = source or options.get("--store") or environment.get("PERDURE_STORE") or "perdure.db"
    if not any(kinds) or not os.path.isfile(path := place.removeprefix(_FILE)):
        return []
    if kinds[0] in _BY_THE_ENGINE:
        return _fitting(kinds[0], _read_by_engine(kinds[0], place, thread, options, begun), begun)
    import sqlite3

    try:
        address = f"file:{_quoted(path)}?mode=ro"
        opened = sqlite3.connect(address, uri=True, timeout=0.05)
        try:
            found = [id for kind in kinds for id in _fitting(kind, _ids(opened, kind, thread, begun), begun)]
            if not found and "threads" in kinds:  # the part that is typed is no beginning
                found = _fitting("threads", _ids(opened, "all threads", thread, begun), begun)
        finally:
            opened.close()
    except sqlite3.Error:
        return []
    return list(dict.fromkeys(found))[:_COUNT_MAX]


def _unquoted(word: str) -> str:
    """Return a word without the quoting that shells pass on as it was typed; the quotes of the last may be open."""
    if not any(sign in word for sign in "\\'\""):
        return word
    import shlex

    for closing in ("", "'", '"'):
        try:
            return "".join(shlex.split(word + closing))
        except ValueError:
            continue
    return word


def _fitting(kind: str, ids: Iterable[str], begun: str) -> list[str]:
    """Return what is offered of the ids of a kind: those, or ends of those, that begin with what is typed."""
    known = list(dict.fromkeys(ids))
    if kind in _DIGESTS:
        whole = [id for id in known if begun and id.startswith(begun)]
        return [id if len(begun) > _DIGITS_SHOWN else id[:_DIGITS_SHOWN] for id in whole]
    ends: dict[str, int] = {}
    for id in known:
        ends[id[-_SHOWN_MIN:]] = ends.get(id[-_SHOWN_MIN:], 0) + 1
    shown = [id[-_SHOWN_MIN:] if _is_made(id) and ends[id[-_SHOWN_MIN:]] == 1 else id for id in known]
    fits = [each for each in shown if each.startswith(begun)] or [id for id in known if id.startswith(begun)]
    if not fits and len(begun) >= _PART_MIN and begun[0] != "-":
        parts = [id[id.rfind(begun) :] for id in known if begun in id and _is_made(id)]
        fits = [part for part in parts if sum(id.endswith(part) for id in known) == 1]
    return fits[:_COUNT_MAX]


def _is_made(id: str) -> bool:
    """True if Perdure made an id: then it begins with the time, and listings show its end."""
    groups = id.split("-")
    return [len(group) for group in groups] == [8, 4, 4, 4, 12] and all(
        digit in "0123456789abcdef" for group in groups for digit in group
    )


def _read(words: Sequence[str]) -> tuple[list[str], dict[str, str], str]:
    """Return the words that are no options, the values of options, and the option whose value is typed just now."""
    given, options, option = list[str](), dict[str, str](), ""
    for word in words:
        if option:
            if word != "=":  # bash gives --timeline=main as three words
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
    if noun == "state" and verb in _WITH_A_PATH and len(given) == (2 if has_agent else 3):
        return ["paths"]
    match len(given), noun, verb:
        case 1, "export" | "eval" | "costs", _:
            return ["threads"]
        case 1, "chat", _:
            return ["agents"]
        case 2, "agents" | "memory", _:
            return ["agents" if noun == "agents" else "items"]
        case 2, "runs" | "calls" | "approvals", _ if verb not in ("ls", "start", "release"):
            return ["threads", f"any {noun}"]
        case 2, "threads" | "state" | "runs" | "calls" | "approvals" | "checkpoints" | "artifacts", _:
            return ["threads"] if verb != "search" and not has_agent else []
        case 3, "runs" | "calls" | "approvals", _ if verb not in ("ls", "start", "release"):
            return [noun]
        case 3, "artifacts", _:
            return ["named artifacts", "artifacts"]
        case 3, "checkpoints", _:
            return ["checkpoints"]
        case 3, "threads", "promote" | "seal" | "merge":
            return ["timelines"]
        case (3 | 4, "threads", "diff") | (_, "threads", "cherry-pick"):
            return ["moments"]
        case _, "runs", "release":
            return ["threads"]
        case _:
            return []


def _ids(opened: sqlite3.Connection, kind: str, thread: str, begun: str) -> Iterator[str]:
    for (id,) in opened.execute(_QUERIES[kind], {"thread": thread, "begun": begun}):
        if isinstance(id, str) and id.isprintable():
            yield id


def _read_by_engine(kind: str, place: str, thread: str, options: Mapping[str, str], begun: str) -> list[str]:
    """Return the paths of a state that begin so, from the part of the tree that has them, or all items or checkpoints."""
    from itertools import islice

    import perdure
    from perdure.errors import PerdureError

    try:
        with perdure.open(place, read_only=True) as store:
            if kind == "items":
                items = store.memory(options.get("--owner") or "").items()
                return [each.id for each in islice(items, _LOOKED_AT)]
            agent, timeline, moment = options.get("--agent"), options.get("--timeline"), options.get("--at")
            line = store.thread(thread, timeline=timeline or "main") if agent is None else store.agent(agent)
            seen = line if moment is None else line.at(moment)
            if kind == "checkpoints":
                from perdure.switching.checkpoint import stored

                return [stored.name_of(each.digest) for each in seen.checkpoints(limit=_COUNT_MAX)]
            found = seen._tree().entries(begun)  # pyright: ignore[reportPrivateUsage]
            return [each.path for each in islice(found, _COUNT_MAX) if each.path.isprintable()]
    except PerdureError:
        return []


def _quoted(path: str) -> str:
    """Return a path for an address of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
