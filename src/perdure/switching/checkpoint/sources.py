"""Reads the sources of a checkpoint: the first message, the last ones, the task's state and the ledger's last part.

The amount read is the same for any length of the conversation.  All of it follows from the commit, the roots that it
read, and the ledger up to a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.engines.contract import Step
from perdure.history import reader
from perdure.history.ancestry import present, stands_on
from perdure.history.changes import values
from perdure.history.space import Space
from perdure.ledger import snapshot
from perdure.ledger.snapshot import LedgerSnapshot
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest
from perdure.model.event import ArtifactCreated
from perdure.model.message import File, Image
from perdure.projections import transcript as projection
from perdure.projections.transcript import MessageAt, TranscriptEntry
from perdure.projections.working_memory import (
    CURRENT,
    DECISIONS,
    GOAL,
    GOALS,
    QUESTIONS,
    TASK,
    Note,
    WorkingMemory,
    working,
)
from perdure.switching.checkpoint import effects
from perdure.switching.checkpoint.effects import (
    COUNTING,
    EXTRACTOR,
    EarlierEffects,
    Looked,
    named_in,
    with_named,
)
from perdure.switching.current_backend import backend_at, backend_of

__all__ = ["MESSAGES_MAX", "Window", "is_behind", "notes_under", "read_working", "spoken_before", "window"]

MESSAGES_MAX = 96  # the last messages; those of tools are counted and not read
_ASKED_AT_ONCE = 8
STEPS_MAX = 400  # commits that are searched for them
FIRST_STEPS_MAX = 16  # commits at the beginning that are searched for the first message of the user
BODY_BYTES_MAX = 256 * 1024  # of one message; a larger one is ignored
VALUE_BYTES_MAX = 64 * 1024  # of one value of the task's state

_KNOWN = (GOAL, CURRENT, GOALS, DECISIONS, QUESTIONS)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a checkpoint is derived from."""

    first: TranscriptEntry | None = None  # the first message of the user
    said: tuple[TranscriptEntry, ...] = ()  # the last messages of user and assistant, oldest first
    working: WorkingMemory = WorkingMemory()
    stand: LedgerSnapshot = LedgerSnapshot()
    earlier: EarlierEffects = EarlierEffects()  # calls before the ledger's last part
    artifacts: tuple[str, ...] = ()  # artifacts of the last messages, oldest first
    names: frozenset[str] = frozenset()  # the ids of messages and runs in the last commits
    is_whole: bool = True  # True: there is nothing before the last messages
    backend: str | None = None  # of the next turn, as the timeline's history says


def window(
    space: Space, commit: Digest | None, ledger: LedgerRead, timeline: str, *, extractor: str = EXTRACTOR
) -> Window:
    """Read the sources for the conversation that ends at `commit`, on that timeline.

    Before the first commit there is no message; but the ledger may have calls, on other timelines or undone.
    """
    looked = _looked(space, commit, ledger, timeline, extractor)
    if commit is None:
        return Window(stand=looked.stand, earlier=looked.earlier)
    steps = _last_steps(space, commit)
    said = projection.said_at_end([(step.digest, step.commit, step.changeset) for step in steps])
    is_whole = len(said) <= MESSAGES_MAX and steps[0].commit.first_parent is None
    spoken = reader.spoken(space, _readable(said[-MESSAGES_MAX:]), steps)
    return Window(
        first=_first(space, commit, steps),
        said=tuple(spoken),
        working=read_working(space, commit),
        stand=with_named(space, ledger, looked.stand, named_in(steps, spoken)),
        earlier=looked.earlier,
        artifacts=tuple(dict.fromkeys(_artifacts(steps, spoken))),
        names=frozenset(_names(steps)),
        is_whole=is_whole,
        backend=_backend(space, steps),
    )


def spoken_before(space: Space, commit: Digest | None) -> list[TranscriptEntry]:
    """Read the last messages of user and assistant up to a commit, oldest first, as `window` does."""
    if commit is None:
        return []
    steps = _last_steps(space, commit)
    said = projection.said_at_end([(step.digest, step.commit, step.changeset) for step in steps])
    return reader.spoken(space, _readable(said[-MESSAGES_MAX:]), steps)


def read_working(space: Space, commit: Digest | None) -> WorkingMemory:
    """Read the working memory at a commit."""
    notes = notes_under(space, commit, TASK)
    found = {note.path: note for note in notes}
    known = {path: found[path] for path in _KNOWN if path in found}
    fit = {path: note for path, note in known.items() if note.size <= VALUE_BYTES_MAX}
    entries = list(space.tree_at(commit).get_many(fit).values())
    read = values.read_many(space, entries) if entries else ()
    decoded = dict(zip((entry.path for entry in entries), read, strict=True))
    memory = working(decoded, notes)
    large = tuple(f"{path} is larger than {VALUE_BYTES_MAX} bytes" for path in known if path not in fit)
    return msgspec.structs.replace(memory, faults=(*memory.faults, *large)) if large else memory


def notes_under(space: Space, commit: Digest | None, prefix: str) -> tuple[Note, ...]:
    """Return the paths under a prefix, sorted, with digest and size of their values."""
    return tuple(Note(entry.path, entry.value, entry.size) for entry in reader.paths(space, commit, prefix))


def is_behind(space: Space, seen: Window, label: str | None, commit: Digest | None) -> bool:
    """True if the commit that a label names is in the history of the commit."""
    return label is not None and (label in seen.names or present(space, label, commit))


def is_said(space: Space, seen: Window, label: str | None, commit: Digest | None) -> bool:
    """True if the commit that a label names is in the conversation: on the timeline itself, not merged into it."""
    return label is not None and (label in seen.names or stands_on(space, label, commit))


def _looked(space: Space, commit: Digest | None, ledger: LedgerRead, timeline: str, extractor: str) -> Looked:
    if extractor in COUNTING:
        return effects.look(space, commit, ledger, timeline)
    return Looked(snapshot.stand(space, ledger, timeline=timeline))


def _last_steps(space: Space, commit: Digest) -> list[Step]:
    found: list[Step] = []
    messages = 0
    for step in reader.steps(space, commit, limit=STEPS_MAX, bodies=True):
        found.append(step)
        messages += sum(1 for _ in projection.said(step.digest, step.commit, step.changeset))
        if messages >= MESSAGES_MAX:
            break
    found.reverse()
    return found


def _backend(space: Space, steps: Sequence[Step]) -> str | None:
    """Return the backend that the last commits name; if they name none, the one named before them."""
    named = next((name for step in reversed(steps) if (name := backend_of(step)) is not None), None)
    return backend_at(space, steps[-1].digest) if named is None else named


def _readable(said: Sequence[MessageAt]) -> list[MessageAt]:
    return [
        one for one in said if one.event.role in ("user", "assistant") and one.event.size <= BODY_BYTES_MAX
    ]


def _first(space: Space, commit: Digest, steps: Sequence[Step]) -> TranscriptEntry | None:
    """Return the first message of the user, if it is among the first commits; `steps` are the last ones, oldest first."""
    is_whole = steps[0].commit.first_parent is None
    if is_whole:
        first = steps[:FIRST_STEPS_MAX]
    else:
        skip = max(0, space.step(commit).place.depth + 1 - FIRST_STEPS_MAX)
        first = space.back(commit, skip=skip, limit=FIRST_STEPS_MAX, bodies=True)[::-1]
    said = [one for step in first for one in projection.said(step.digest, step.commit, step.changeset)]
    asked = [one for one in _readable(said) if one.event.role == "user"]
    if is_whole:  # the steps say themselves what was taken back
        left = projection.said_at_end([(step.digest, step.commit, step.changeset) for step in steps])
        kept = {one.event.id for one in left}
        asked = [one for one in asked if one.event.id in kept]
        return reader.spoken(space, asked[:1], first)[0] if asked else None
    for at in range(0, len(asked), _ASKED_AT_ONCE):  # the first one is seldom taken back
        some = asked[at : at + _ASKED_AT_ONCE]
        gone = reader.retracted(space, [(one.event.id, one.digest) for one in some], commit)
        kept_first = next((one for one in some if one.event.id not in gone), None)
        if kept_first is not None:
            return reader.spoken(space, [kept_first], first)[0]
    return None


def _artifacts(steps: Iterable[Step], spoken: Iterable[TranscriptEntry]) -> Iterable[str]:
    media = {entry.id: list(_media(entry)) for entry in spoken}
    for step in steps:
        for event in step.changeset.events:
            if isinstance(event, ArtifactCreated):
                yield f"artifact://sha256/{event.artifact}"
            yield from media.get(event.id, ())


def _media(entry: TranscriptEntry) -> Iterable[str]:
    for block in entry.words.content if entry.words else ():
        if isinstance(block, Image | File) and block.uri.startswith("artifact://"):
            yield block.uri


def _names(steps: Iterable[Step]) -> Iterable[str]:
    for step in steps:
        yield from (event.id for event in step.changeset.events)
        if step.commit.run is not None:
            yield step.commit.run
