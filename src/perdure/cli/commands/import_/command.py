"""`perdure import`.

A saved conversation becomes a thread that is named like its file, and no thread has two files of one command.  The thread
keeps in its state which files it is from, so a file finds its thread again, and another file of that name is refused.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.import_.report import (
    OVERLAPS,
    Imported,
    ImportedSessions,
    RefusedShape,
    both_kept,
    of_conversation,
    unused,
)
from perdure.cli.completion import in_store
from perdure.cli.input.json_input import (
    begins_as_json,
    holds_messages,
    naming_file,
    place_in_file,
    read_conversation,
)
from perdure.cli.options import EVERYWHERE, Everywhere, NewOwner, OpId, Timeline
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import working
from perdure.engines import registry
from perdure.errors import Conflict, Forgotten, Invalid, NotFound, PerdureError
from perdure.integrations.foreign_ids import thread_id
from perdure.integrations.importers.import_sessions import ImportReport, import_sessions
from perdure.integrations.importers.session import FORMATS
from perdure.integrations.importers.sources import files_below, find_sources, is_server
from perdure.integrations.importers.write import leaving_none_empty
from perdure.model.head import MAIN
from perdure.model.message import Message, Text
from perdure.model.names import check_label, did_you_mean, shown_address
from perdure.providers.conversation_input import PreparedInput, formats_of, prepared
from perdure.providers.registry import APIS
from perdure.runtime.import_messages import SYSTEM_WORDS, format_of, read
from perdure.runtime.import_overlap import said_by
from perdure.shapes.conversation import losses_of
from perdure.shapes.threads import HeadShape
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["import_"]

_FILES = "/import/files"  # in the state: the files of saved conversations that the thread is named after
_PARTS_MAX = 8  # of a path, in the name of a thread


def _new_store(address: str) -> str | None:
    """Return the name of the store that an import makes; None if there is one, or it is on a server."""
    file = registry.file_of(address)
    return shown_address(address) if file is not None and not file.exists() else None


_Source: TypeAlias = Annotated[
    str,
    Parameter(
        name="SOURCE",
        help="A file, directory, database or archive of an export with sessions; with --thread, a saved conversation, and - is the input",
    ),
]
_More: TypeAlias = Annotated[
    str,
    Parameter(
        name="FILE",
        help="More sources; one alone after a SOURCE that is no path is a saved conversation, added to the thread of that name, and - is the input",
        allow_leading_hyphen=True,
        show_default=False,
    ),
]
_Thread: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--thread",
        metavar="ID",
        completer=in_store,
        help="SOURCE is a request, a reply or a message list, JSON, that is added to this thread",
    ),
]
_Session: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--session",
        metavar="ID",
        help="Only this session of SOURCE, by the id that the tool gave it; with --thread, it becomes that thread",
    ),
]
_Format: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--format",
        metavar="NAME",
        help="The tool of the sessions, such as codex, found if left out; of a saved conversation, the wire format, such as openai-chat, found if its content decides",
    ),
]
_Agent: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--agent",
        metavar="NAME",
        completer=in_store,
        help="The agent of threads that are made; of sessions, named like the tool",
    ),
]
_Provider: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--provider", metavar="NAME", help="With --thread: the provider of the assistant, such as openai"
    ),
]
_Model: TypeAlias = Annotated[
    str | None, Parameter(name="--model", metavar="NAME", help="With --thread: the model of the assistant")
]
_Whole: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--whole",
        negative=(),
        show_default=False,
        help="With --thread: it begins with the whole transcript; add only the rest",
    ),
]

_Again: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--again",
        negative=(),
        show_default=False,
        help="With --thread: add it although the thread has it from an earlier import",
    ),
]


def import_(
    source: _Source,
    /,
    *more: _More,
    thread: _Thread = None,
    session: _Session = None,
    format: _Format = None,
    agent: _Agent = None,
    owner: NewOwner = None,
    provider: _Provider = None,
    model: _Model = None,
    whole: _Whole = False,
    again: _Again = False,
    timeline: Timeline = MAIN,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Imported | ImportedSessions:
    """Import sessions of other tools, or a saved conversation, as threads

    SOURCE is a path with sessions of claude-code, codex, langgraph, openai-agents, atif, letta, chatgpt or claude-ai, or the address
    of a PostgreSQL server with LangGraph's tables; more of them may follow. Each session becomes a thread, each branch a timeline.
    Nothing is executed. Import again to add what is new. A saved conversation becomes a thread that is named like its
    file, and so does each one in a directory without sessions; a new one needs --agent. A file that is refused does not stop the others. Exits with 5 if
    one was refused, and with 4 if one was edited where it had been imported: the thread stays as it is.

    With --thread, SOURCE is one request, reply or message list, and is added to that thread; `import THREAD FILE`
    says the same. With the --format of a tool, or with --session, it is one session, which becomes that thread. Calls enter the ledger as made elsewhere. A file that cannot be read makes nothing. The store and the threads are
    made if they are not there. A file that was imported there before adds nothing, one that has grown adds the rest, and one that was edited is a conflict.
    """
    if thread is not None and more:
        advice = "Name one file with --thread, or leave --thread out: each file becomes a thread of its own."
        why = f"--thread takes one conversation, and {count(1 + len(more), 'word')} came before it"
        raise _refused(why, "options_conflict", advice)
    is_place = is_server(source) or Path(source).expanduser().exists()
    is_thread = thread is None and len(more) == 1 and not is_place
    if thread is None and len(more) == 1 and not is_thread and _has_thread(everywhere.store, source):
        advice = "Name the thread with --thread, or the path as ./PATH."
        raise _refused(f"'{source}' is a thread, and a path as well", "options_conflict", advice)
    if session is None and (is_thread or (thread is not None and format not in FORMATS)):
        return _import_messages(
            source if thread is None else thread,
            more[0] if is_thread else source,
            format=format,
            agent=agent,
            owner=owner,
            provider=provider,
            model=model,
            whole=whole,
            again=again,
            timeline=timeline,
            op_id=op_id,
            everywhere=everywhere,
        )
    if provider or model or whole or again or op_id or timeline != MAIN:
        advice = "Leave them out, or name the thread that SOURCE is added to with --thread."
        why = "--provider, --model, --whole, --again, --timeline and --op-id are for a saved conversation"
        raise _refused(why, "options_conflict", advice)
    return _import_sessions((source, *more), format, agent, owner, everywhere, thread, session)


def _import_sessions(
    sources: Sequence[str],
    format: str | None,
    agent: str | None,
    owner: str | None,
    everywhere: Everywhere,
    thread: str | None,
    session: str | None,
) -> ImportedSessions:
    _check_words(sources, format)
    if session is not None and (len(sources) > 1 or format in APIS):
        advice = "Name one source, without a wire format."
        raise _refused("--session names a session of one source", "options_conflict", advice)
    refused: list[RefusedShape] = []
    found, others = _planned(sources, format, agent, everywhere, refused)
    if session is not None and any(saved for _, saved in found):
        advice = "Leave --session out: a saved conversation is one, and becomes a thread."
        raise _refused(f"{sources[0]} holds no session of a tool", "options_conflict", advice)
    made = _new_store(everywhere.store) if found else None
    reports: list[ImportReport] = []
    if found:
        with (
            open_store(everywhere.store) as store,
            working("Importing", quiet=everywhere.json) as told,
        ):
            for source, saved in found:
                before = sum(each.messages for each in reports)
                with _refusing(source, refused, everywhere, alone=len(sources) == len(found) == 1):
                    if saved is None:
                        report = import_sessions(
                            store,
                            source,
                            format=format,
                            agent=agent,
                            owner=owner,
                            thread=thread,
                            session=session,
                            progress=lambda at, before=before: told("message", before + at.messages),
                        )
                    else:
                        _check_untaken(store, saved.thread, source, saved.said, agent=agent, owner=owner)
                        added = _added(store, saved, agent=agent, owner=owner, once=True)
                        _remember(store.thread(saved.thread), source)
                        report = of_conversation(added, source)
                    reports.append(report)
    refused += [
        RefusedShape.of(each.source, each.error, everywhere.store)
        for report in reports
        for each in report.refused
    ]
    beside: list[str] = []
    for file in (each for report in reports for each in report.passed_over):
        with _refusing(file, refused, everywhere, alone=False):
            beside += [file] if _may_be_conversation(file, beside=True) else []
    named = max(len(sources), len(found))
    return ImportedSessions.of(reports, refused, others, conversations=beside, sources=named, made=made)


def _check_words(sources: Sequence[str], format: str | None) -> None:
    if "-" in sources:
        advice = "Name the thread that the input is added to with --thread, or a path with sessions."
        raise _refused("sessions are read from paths, not from the input", "sessions_from_input", advice)
    if format is None or format in FORMATS or format in APIS:
        return
    why = f"'{format}' is none of the tools whose sessions are known: {', '.join(FORMATS)}"
    advice = (
        did_you_mean(format, (*FORMATS, *APIS)).rstrip() or "Leave --format out, and the format is found."
    )
    raise _refused(why, "session_format_unknown", advice, format=format)


@contextmanager
def _refusing(
    source: str, refused: list[RefusedShape], everywhere: Everywhere, *, alone: bool
) -> Generator[None]:
    """List an error of the block under its source; one of a source that is `alone` is raised."""
    try:
        yield
    except PerdureError as error:
        if alone:
            raise
        refused.append(RefusedShape.of(source, error, everywhere.store))


def _planned(
    sources: Sequence[str],
    format: str | None,
    agent: str | None,
    everywhere: Everywhere,
    refused: list[RefusedShape],
) -> tuple[list[tuple[str, _Conversation | None]], list[str]]:
    """Return what is to be imported, read before anything is made, and the files that are passed over.

    A saved conversation comes with its file, a directory of them as its files; None: the source holds sessions.
    """
    named: list[tuple[str, list[str]]] = []  # the sources, each with the files of its saved conversations
    others: list[str] = []
    for source in sources:
        with _refusing(source, refused, everywhere, alone=len(sources) == 1):
            files, none = _saved_conversations(source, format)
            others += none
            named.append((source, files))
    threads = _threads_of(everywhere.store, [(file, source) for source, files in named for file in files])
    planned: list[tuple[str, _Conversation | None]] = []
    for source, files in named:
        planned += [] if files else [(source, None)]
        for file in files:
            with _refusing(file, refused, everywhere, alone=len(sources) == 1 and files == [source]):
                name = threads[_place_of(file)]
                planned.append((file, _read_conversation(name, file, format, agent, everywhere)))
    return planned, others


def _saved_conversations(source: str, format: str | None) -> tuple[list[str], list[str]]:
    """Return the saved conversations that a source is, or a directory has, and its other files; none if it holds sessions.

    Raises `Invalid` if it holds neither; a store is named as what it is.
    """
    if format is None or format in FORMATS:
        try:
            find_sources(source, format)
        except Invalid as error:
            if error.code != "import_format_unknown":
                raise
            if _is_store(source):
                advice = f"Copy its threads with `perdure copy {shlex.quote(source)} TARGET`."
                raise _refused(
                    f"{source} is a Perdure store", "import_of_a_store", advice, source=source
                ) from error
            if format is not None or is_server(source):
                raise
        else:
            return [], []
    place = Path(source).expanduser()
    if not place.is_dir():
        if format is None and _is_no_conversation(source):
            raise _not_a_conversation(source, f"no session of {', '.join(FORMATS)}, and no")
        return [source], []
    below = list(files_below(str(place)))
    files = [each for each in below if _may_be_conversation(each)]
    if not files:
        why = f"no file in {source} is a session of {', '.join(FORMATS)}, or a saved conversation"
        raise _refused(why, "import_source_empty", "Name another directory.", source=source)
    return files, [each for each in below if each not in set(files)]


def _may_be_conversation(file: str, *, beside: bool = False) -> bool:
    """True for a file with messages, also if it cannot be imported.

    `beside` sessions that raises `Invalid`; but a file that is cut off, or has a request a line, is no conversation there.
    """
    try:
        return begins_as_json(file) and not _is_no_conversation(file)
    except PerdureError as error:
        if beside and error.code in ("not_utf8", "conversation_form_unknown"):
            raise
        return not beside
    except OSError:
        return False


def _is_store(source: str) -> bool:
    """True if a source is a store of Perdure."""
    try:
        registry.open_engine(source, read_only=True, create=False, durability="power_loss").close()
    except PerdureError:
        return False
    return True


def _import_messages(
    thread: str,
    file: str,
    *,
    format: str | None,
    agent: str | None,
    owner: str | None,
    provider: str | None,
    model: str | None,
    whole: bool,
    again: bool,
    timeline: str,
    op_id: str | None,
    everywhere: Everywhere,
) -> Imported:
    for what, label in (("provider", provider), ("model", model), ("op_id", op_id)):
        if label is not None:
            check_label(what, label)
    found = _read_conversation(thread, file, format, agent, everywhere)
    made = _new_store(everywhere.store)
    with open_store(everywhere.store) as store:
        added = _added(
            store,
            found,
            agent=agent,
            owner=owner,
            timeline=timeline,
            provider=provider,
            model=model,
            whole=whole,
            once=not (again or whole),
            op_id=op_id,
        )
        if timeline == MAIN and file != "-" and _is_from_files(kept := store.thread(added.thread), file):
            _remember(kept, file)
    return msgspec.structs.replace(added, store_made=made)


class _Conversation(NamedTuple):
    """A saved conversation that was read, and the thread that it goes to."""

    thread: str
    file: str
    given: Any
    lines: tuple[int, ...]
    ready: PreparedInput
    format: str
    said: tuple[Message, ...]


def _read_conversation(
    thread: str, file: str, format: str | None, agent: str | None, everywhere: Everywhere
) -> _Conversation:
    """Read a file before anything is made; raises `Invalid` if it cannot be read, or no agent is named for a new thread."""
    if format in FORMATS:
        why = f"{format} is a format of sessions, not of a saved conversation"
        advice = "Name the thread with --thread, or leave it out: each session becomes a thread of its own."
        raise _refused(why, "session_format_with_thread", advice, format=format)
    given, lines = read_conversation(file)
    needs_agent = agent is None and not _has_thread(everywhere.store, thread)
    with naming_file(file, lines):
        ready = prepared(given)
        if format is None:
            format = _found_format(file, ready, thread, needs_agent=needs_agent)
        context, _ = read(ready.value, format)
    if needs_agent:
        raise Invalid(
            f"there is no thread '{thread}' for {file}, and no agent was named; nothing was imported.",
            code="agent_missing",
            advice="Give --agent NAME, the agent whose thread it becomes.",
            thread=thread,
            file=file,
        )
    system = (Message("system", (Text(context.system),)),) if context.system else ()
    return _Conversation(thread, file, given, lines, ready, format, (*system, *context.messages))


def _place_of(file: str) -> str:
    """Return the path of a file without links, as text that can be stored."""
    path = os.path.realpath(Path(file).expanduser())
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _threads_of(address: str, files: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the thread of each file, by its place; each comes with the source that was named, itself or its directory.

    It is the one that the file was imported to before; else it is named like the file without its ending, and where several
    files have that name, by the path below the directory, as far as it tells them apart.
    """
    sources = {_place_of(file): _place_of(source) for file, source in files}
    kept: dict[str, str] = {}
    with suppress(NotFound), open_store(address, read_only=True) as store:
        kept = {place: name for place in sources if (name := _imported_to(store, place)) is not None}
    names = {place: (kept[place],) if place in kept else _names(place, sources) for place in sources}
    level = dict.fromkeys(names, 0)
    while True:
        found = {place: each[level[place]] for place, each in names.items()}
        times = Counter(found.values())
        shared = [at for at in found if times[found[at]] > 1 and level[at] + 1 < len(names[at])]
        if not shared:
            return found
        for place in shared:
            level[place] += 1


def _names(place: str, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that the thread of a file can have, the shortest first; no other file has the last one."""
    path, source = PurePath(place), sources[place]
    common = os.path.commonpath([os.path.dirname(each) for each in sources])  # of texts
    below = path.relative_to(common if source == place else source)
    whole = path.relative_to(common)
    texts = (path.stem, below.with_suffix("").as_posix(), whole.with_suffix("").as_posix(), whole.as_posix())
    return tuple(map(thread_id, texts))


def _imported_to(store: Store, place: str) -> str | None:
    """Return the thread that has the name of a file, or of an end of its path, and is from that file."""
    path = PurePath(place)
    for named in (path.with_suffix(""), path):
        for parts in range(1, min(len(path.parts), _PARTS_MAX)):
            name = thread_id("/".join(named.parts[-parts:]))
            with suppress(NotFound):
                if place in _files_of(store.thread(name)):
                    return name
    return None


def _files_of(thread: Thread) -> list[str]:
    stored: Any = None
    with suppress(Forgotten):
        stored = thread.get(_FILES, default=None)
    return cast("list[str]", stored) if isinstance(stored, list) else []


def _remember(thread: Thread, file: str) -> None:
    """Keep in the thread that it is from this file."""
    known, place = _files_of(thread), _place_of(file)
    if place not in known:
        with thread.change("import", on_conflict="rebase") as change:
            change.put(_FILES, [*known, place])


def _is_from_files(thread: Thread, file: str) -> bool:
    """True if the thread knows of a file that it is from, or is named like the end of the path of this one."""
    ending = f"/{thread.id}" if "/" in thread.id else None
    return bool(_files_of(thread)) or (ending is not None and _without_suffix(file).endswith(ending))


def _without_suffix(file: str) -> str:
    return PurePath(_place_of(file)).with_suffix("").as_posix()


def _check_untaken(
    store: Store, name: str, file: str, said: Sequence[Message], *, agent: str | None, owner: str | None
) -> None:
    """Raise `Conflict` if the thread that is named like a file is from another one.

    One that does not know its files has to have everything of the file, or the file everything that the thread has.
    """
    with suppress(NotFound):
        thread = store.thread(name, owner=owner)
        entries = thread.transcript()
        words = [entry.words for entry in entries]
        files = _files_of(thread)
        if words and not said_by([each for each in words if each]) & said_by(said):
            why = f"thread '{name}' is not from {file}: they have no message in common"
        elif files and _place_of(file) not in files:
            why = f"thread '{name}' is from {files[-1]}, not from {file}"
        elif not files and _is_apart([e.words for e in entries if e.words and e.redaction is None], said):
            why = f"thread '{name}' is not from {file}: each has messages that the other has not"
        else:
            return
        other = _unused_name(store, _longer(file, name))
        agent = shlex.quote(agent or thread.agent)
        new, old = shlex.join([file, "--thread", other]), shlex.join([file, "--thread", name])
        raise Conflict(
            f"{why}; nothing of {file} was imported.",
            code="import_thread_taken",
            advice=f"Import it to another thread with `perdure import {new} --agent {agent}`; if it is the same "
            f"conversation, with `perdure import {old}`.",
            thread=name,
            file=file,
            files=files,
        )


def _longer(file: str, name: str) -> str:
    """Return the name of a file with that of its directory."""
    longer = thread_id("/".join(_without_suffix(file).split("/")[-2:]).lstrip("/"))
    return f"{name}-2" if longer == name else longer


def _unused_name(store: Store, name: str) -> str:
    """Return `name` if no thread has it, else with the first number that makes it new."""
    return unused(name, {thread.id for thread in store.threads()})


def _is_apart(there: Sequence[Message], here: Sequence[Message]) -> bool:
    """True if each of the two has words that the other has not; words of the system do not count."""
    ours, theirs = _texts(there), _texts(here)
    return bool(ours - theirs) and bool(theirs - ours)


def _texts(messages: Sequence[Message]) -> Counter[tuple[str, str]]:
    return Counter(
        (message.role, block.text)
        for message in messages
        for block in message.content
        if isinstance(block, Text) and message.role != "system"
    )


def _added(
    store: Store,
    found: _Conversation,
    *,
    agent: str | None,
    owner: str | None,
    timeline: str = MAIN,
    **options: Any,
) -> Imported:
    def advised(error: PerdureError) -> str:
        if error.code not in OVERLAPS:
            return error.advice
        other = _unused_name(store, f"{found.thread}-2")
        return both_kept(
            store.thread(found.thread), error, found.file, found.format, agent=agent, other=other
        )

    naming = naming_file(found.file, found.lines, found.thread, advised)
    with naming, leaving_none_empty(store, found.thread):
        placed = store.thread(found.thread, agent=agent, owner=owner, timeline=timeline)
        before, calls = len(placed.transcript()), len(placed.calls())
        losses = placed.add(found.given, api=found.format, **options)
        added = len(placed.transcript()) - before
        other = sum(each.what == SYSTEM_WORDS for each in losses)
        made_calls = placed.calls()[calls:]
        return Imported(
            thread=placed.id,
            agent=placed.agent,
            format=found.format,
            messages=added,
            calls=len(made_calls),
            calls_unknown=sum(call.state == "unknown" for call in made_calls),
            repeated=max(0, len(found.said) - added - other),
            head=HeadShape.of(placed.head),
            losses=losses_of(
                msgspec.structs.replace(each, where=place_in_file(each.where, found.lines)) for each in losses
            ),
            looks_like=found.ready.unlike(found.format) if losses else None,
        )


def _found_format(file: str, given: PreparedInput, thread: str, *, needs_agent: bool) -> str:
    """Return the format that the content decides; raises `Invalid`, with everything that is missing, if it does not."""
    try:
        return format_of(given)
    except Invalid as error:
        if error.code == "not_a_conversation":
            _is_no_conversation(file)
            raise _not_a_conversation(file, "no") from error
        if error.code != "format_missing":
            raise
        candidates = cast("list[str]", error.facts["candidates"])
    why = f"the format of the conversation in {file} was not named, and its content does not decide it"
    advice = f"Give it with --format: {', '.join(candidates)}."
    if needs_agent:
        why += f"; there is no thread '{thread}', and no agent was named"
        advice += " Give --agent NAME, too: the agent whose thread it becomes."
    raise _refused(why, "format_missing", advice, candidates=candidates)


def _is_no_conversation(source: str) -> bool:
    """True if `source` is a file in which nothing looks like a message.

    Raises `Invalid` if it has messages and cannot be read: it holds several conversations, is cut off, or is in a form or
    an encoding that is not known.
    """
    if not Path(source).is_file():
        return False
    try:
        is_none = not formats_of(read_conversation(source)[0])
    except Invalid as error:
        is_json = error.code in ("not_json", "not_utf8") and begins_as_json(source)
        is_cut_off = is_json and (error.code == "not_json" or holds_messages(source))
        if error.code == "conversations_several" or is_cut_off:
            raise
        return True
    if is_none and holds_messages(source):
        why = f"{source} has messages in a form that is not known"
        advice = (
            "Save each conversation as a list of objects with a `role`, user or assistant, and a `content`."
        )
        raise _refused(why, "conversation_form_unknown", advice, file=source)
    return is_none


def _not_a_conversation(file: str, what: str) -> Invalid:
    advice = "A saved conversation is a request, a reply or a list of messages of an API, as JSON."
    return _refused(f"{file} is {what} saved conversation", "not_a_conversation", advice, file=file)


def _has_thread(address: str, thread: str) -> bool:
    try:
        with open_store(address, read_only=True) as store:
            store.thread(thread)
    except NotFound:
        return False
    return True


def _refused(why: str, code: str, advice: str, **facts: object) -> Invalid:
    return Invalid(f"{why}; nothing was imported.", code=code, advice=advice, **facts)
