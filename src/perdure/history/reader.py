"""Reads a history: heads, values, commits, the transcript and the turns of one line.

Every function takes the commit that it reads from (None: before the first commit), so its
result never changes.  Only `hold_of`, `head_of` and `head_to_move` read what can change.  Reads
of a line are windowed: the last n cost n, however long the history is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from perdure.engines.contract import (
    Cell,
    CellOf,
    CellWrite,
    HeadOf,
    Hold,
    LabelOf,
    Question,
    Step,
)
from perdure.errors import Conflict, Corrupt, Forgotten, Invalid, NotFound, Sealed, StaleHead
from perdure.history.space import ALIVE, Space, is_thread, read_record, stale_because_removed
from perdure.history.tree import Entry
from perdure.model import canonical, names
from perdure.model.commit import CommitEvents
from perdure.model.digest import Digest
from perdure.model.event import AgentHandedOff, RunStarted
from perdure.model.head import Head
from perdure.model.names import retraction_label
from perdure.projections import transcript as projection
from perdure.projections.transcript import (
    MessageAt,
    ReadBody,
    RedactedBody,
    Retractions,
    TranscriptEntry,
    Turn,
)

__all__ = [
    "AGENTS_OF_THREAD",
    "DROPPED",
    "agent_at",
    "agents_in",
    "agents_question",
    "agents_write",
    "check_agent",
    "other_agent",
    "check_limit",
    "entry_at",
    "eventful",
    "head_of",
    "head_questions",
    "head_to_move",
    "hold_of",
    "hold_to_move",
    "is_ancestor",
    "is_dropped",
    "is_retracted",
    "log",
    "paths",
    "recent",
    "retracted",
    "spoken",
    "steps",
    "transcript",
    "turns",
    "unsealed_head",
]

DROPPED = "dropped/"  # cells, by timeline
_PAGE, _PAGE_MAX = 100, 400
_SHOWN = 100
_CACHED = 200
_FIRST_PAGE = 8  # commits; most callers of `eventful` need the last few


def hold_of(space: Space, timeline: str) -> Hold:
    """Return the head of the timeline with its seal; raises `NotFound` if it does not exist or the thread was removed."""
    hold, was_removed = _look(space, timeline)
    if was_removed:
        raise NotFound(
            f"thread '{space.label}' was removed; nothing was read.",
            code="thread_removed",
            advice="Begin it again with agent=.",
            thread=space.label,
        )
    if hold is None:
        raise _no_timeline(space, timeline)
    return hold


def head_of(space: Space, timeline: str) -> Head:
    """Return the head of the timeline; raises `NotFound` as `hold_of` does."""
    return hold_of(space, timeline).head


def is_dropped(space: Space, timeline: str) -> bool:
    """True if the timeline was dropped; what it has can be read until retention takes it."""
    return space.ask(CellOf(space.name, DROPPED + timeline))[0] is not None


def head_to_move(space: Space, timeline: str) -> Head:
    """Return the head of the timeline for a writer that will move it.

    Raises `StaleHead` if the thread was removed, or if the timeline is not where the space expects it.
    """
    return hold_to_move(space, timeline).head


def unsealed_head(space: Space, timeline: str) -> Head:
    """Return the head as `head_to_move` does; raises `Sealed` if the timeline takes no more writes."""
    hold = hold_to_move(space, timeline)
    if hold.sealed:
        raise Sealed(timeline)
    return hold.head


def hold_to_move(space: Space, timeline: str) -> Hold:
    """Return the hold of the timeline for a writer, as `head_to_move` does its head."""
    hold, was_removed = _look(space, timeline)
    if was_removed:
        raise stale_because_removed(space, hold.head if hold else Head(timeline, 0, None))
    if hold is None:
        raise _no_timeline(space, timeline)
    expected = space.expects
    if expected is not None and expected.timeline == timeline and expected != hold.head:
        raise StaleHead(expected, hold.head)
    return hold


def head_questions(space: Space, timeline: str) -> tuple[Question, ...]:
    """Return what `hold_of` and `head_to_move` ask, for a caller that asks more in the same call."""
    head = HeadOf(space.name, timeline)
    return (head, CellOf(space.name, ALIVE)) if is_thread(space) else (head,)


def _look(space: Space, timeline: str) -> tuple[Hold | None, bool]:
    """Return the head of a timeline, and whether its thread was removed."""
    hold, *alive = space.ask(*head_questions(space, timeline))
    return hold, alive != [] and alive[0] is not None


def entry_at(space: Space, at: Digest | None, path: str) -> Entry:
    """Return the entry at `path`; raises `NotFound`."""
    found = space.tree_at(at).get(names.check_path(path))
    if found is None:
        raise NotFound(
            f"there is nothing at {path}{f' at {at[:12]}' if at else ': nothing is committed'}.",
            code="path_not_found",
            advice="See what there is with paths().",
            path=path,
        )
    return found


def paths(space: Space, at: Digest | None, prefix: str) -> Iterator[Entry]:
    """Yield the entries that `prefix` covers, in order, reading lazily."""
    own, below = names.prefixes_of(names.check_prefix(prefix))
    tree = space.tree_at(at)
    found = tree.get(own) if own is not None else None
    if found is not None:
        yield found
    yield from tree.entries(below)


def steps(
    space: Space, at: Digest | None, *, limit: int | None = None, bodies: bool = False
) -> Iterator[Step]:
    """Yield commits from `at` back along first parents, newest first, perhaps with `bodies`; `limit` None: all of them."""
    left, size = limit, _PAGE
    while at is not None and (left is None or left > 0):
        page = space.back(at, limit=size if left is None else min(left, size), bodies=bodies)
        yield from page
        left = None if left is None else left - len(page)
        at, size = page[-1].commit.first_parent, min(4 * size, _PAGE_MAX)


def recent(space: Space, at: Digest | None) -> Iterator[Step]:
    """Yield what `steps` yields, from the cache as far as it goes, for a caller that needs only the last few."""
    while at is not None:
        step = space.steps.get(at)
        if step is None:
            yield from steps(space, at)
            return
        yield step
        at = step.commit.first_parent


def eventful(space: Space, at: Digest | None) -> Iterator[Step]:
    """Yield the commits with events from `at` backwards along first parents, newest first.

    Every commit on the way is read and compared with its digest, once in a process: a long stretch without events is
    remembered.  A row also counts the events before its commit, but no digest covers that number, so a reader that
    skipped commits by it could miss a message that an edit hides.
    """
    limit, cached, skips = _FIRST_PAGE, 0, space.steps.skips
    while at is not None:
        if at in skips:
            at = skips[at]
            continue
        known = space.steps.get(at)
        page = space.back(at, limit=limit) if known is None else (known,)
        begin, length = at, 0  # of the stretch without events
        for step in page:
            if known is None and cached < _CACHED:
                space.steps.put(step)
                cached += 1
            if step.changeset.events:
                yield step
                begin, length = None, 0
            else:
                begin, length = begin or step.digest, length + 1
        at = page[-1].commit.first_parent
        if begin is not None and length >= _FIRST_PAGE:
            space.steps.skip(begin, at)
        if known is None:
            limit = min(2 * limit, _PAGE_MAX)


def log(space: Space, at: Digest | None, *, limit: int | None = None) -> list[Step]:
    """Return what `steps` yields as a list; the newest are cached, because one of them is often read next."""
    check_limit(limit)
    found = list(steps(space, at, limit=limit))
    for step in found[:_CACHED]:
        space.steps.put(step)
    return found


def is_ancestor(space: Space, older: Digest | None, newer: Digest | None) -> bool:
    """True if `older` is on the line of first parents that ends at `newer`; a commit is on its own line."""
    if older is None or newer is None or older == newer:
        return older is None or older == newer
    back = space.step(newer).commit.depth - space.step(older).commit.depth
    if back <= 0:
        return False
    return space.before(newer, back).digest == older


def transcript(
    space: Space, at: Digest | None, *, limit: int | None = None, passes_damage: bool = False
) -> list[TranscriptEntry]:
    """Return the last `limit` messages of the line that ends at `at`, oldest first; `limit` None: all of them.

    `passes_damage` is as in `turns`.
    """
    check_limit(limit)
    found: list[TranscriptEntry] = []
    size, taken_back = _PAGE, Retractions()
    while at is not None and (limit is None or len(found) < limit) and not taken_back.is_all:
        left = None if limit is None else limit - len(found)
        page = space.events(at, limit=size if left is None else min(left, size), bodies=not passes_damage)
        said = taken_back.said(page)[:left]
        try:
            found += projection.entries(said)
        except KeyError:  # not all words came with their commits
            found += spoken(space, said, page, passes_damage=passes_damage)
        at, size = page[-1].parent, min(4 * size, _PAGE_MAX)
    found.reverse()
    return found


def is_retracted(space: Space, message: str, said_by: Digest, at: Digest | None) -> bool:
    """True if the line that ends at `at` has taken the message of the commit `said_by` back."""
    return message in retracted(space, ((message, said_by),), at)


def retracted(space: Space, said: Sequence[tuple[str, Digest]], at: Digest | None) -> set[str]:
    """Return those of the messages, each given with its commit, that the line that ends at `at` has taken back."""
    if not said:
        return set()
    asked = (None, *(message for message, _ in said))
    every, *each = space.ask(*(LabelOf(space.name, retraction_label(message)) for message in asked))
    clearing = [space.step(digest) for digest in every if is_ancestor(space, digest, at)]
    return {
        message
        for (message, said_by), own in zip(said, each, strict=True)
        if any(_is_cleared_by(space, step, message, said_by) for step in clearing)
        or any(is_ancestor(space, digest, at) for digest in own)
    }


def _is_cleared_by(space: Space, clearing: Step, message: str, said_by: Digest) -> bool:
    """True if a commit that takes everything back does so after the message of the commit `said_by`."""
    if clearing.digest != said_by:
        return clearing.commit.depth > space.step(said_by).commit.depth
    left = (event.id for _, event in Retractions().left(clearing.changeset.events))
    return message not in left


def turns(
    space: Space, at: Digest | None, *, limit: int | None = None, passes_damage: bool = False
) -> list[Turn]:
    """Return the last `limit` turns of the line that ends at `at`, oldest first; `limit` None: all of them.

    `passes_damage`: a message whose bytes are damaged has no words and no reason why; otherwise it raises `Corrupt`.
    """
    check_limit(limit)
    if at is None or limit == 0:
        return []
    oldest = 1 if limit is None else max(1, space.step(at).place.turn - limit + 1)
    window: list[Step] = []
    for step in steps(space, at, bodies=not passes_damage):
        if step.place.turn < oldest:
            break
        window.append(step)
    window.reverse()
    said = [one for step in window for one in projection.said(step.digest, step.commit, step.changeset)]
    words = iter(spoken(space, said, window, passes_damage=passes_damage))
    found = [_turn(list(group), words) for _, group in groupby(window, lambda step: step.place.turn)]
    return _with_later_ends(found)


def _with_later_ends(found: list[Turn]) -> list[Turn]:
    """Return the turns; every part of a run that was resumed has the outcome of the whole run."""
    ends = {turn.run: turn for turn in found if turn.kind == "resumed"}
    return [
        msgspec.structs.replace(turn, status=end.status, why=end.why)
        if (end := ends.get(turn.run)) is not None and end is not turn
        else turn
        for turn in found
    ]


def check_limit(limit: object) -> None:
    """Raise `Invalid` unless `limit` is a number from 0, or None."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise Invalid(
            f"a limit is a number from 0, or None for all, not {limit!r}; nothing was read.",
            code="limit_invalid",
            limit=limit,
        )


def _turn(group: Sequence[Step], words: Iterator[TranscriptEntry]) -> Turn:
    """Return one turn; takes as many of `words` as its commits appended."""
    parts = [(step.digest, step.commit, step.changeset) for step in group]
    count = sum(1 for part in parts for _ in projection.said(*part))
    return projection.turn(
        group[0].turn_number, group[0].place.turn, parts, [next(words) for _ in range(count)]
    )


def spoken(
    space: Space,
    said: Sequence[MessageAt],
    steps: Sequence[Step | CommitEvents] = (),
    *,
    passes_damage: bool = False,
) -> list[TranscriptEntry]:
    """Return the messages with their content; a forgotten message stays in the list without content.

    A redacted one has what stands in its place.

    `steps` are commits that were read with their bodies, which are then not read again.  `passes_damage`: a damaged
    message stays in the list, too.
    """
    found: dict[Digest, ReadBody] = {}
    for step in steps:
        found.update(step.bodies)
    wanted = [each.event.body for each in said if each.event.body not in found]
    wanted += [vendor for each in said if (vendor := each.event.vendor) is not None and vendor not in found]
    digests = list(dict.fromkeys(wanted))
    for start in range(0, len(digests), _PAGE):
        page = digests[start : start + _PAGE]
        read = [_body_if_sound(space, each) for each in page] if passes_damage else _bodies(space, page)
        found.update(zip(page, read, strict=True))
    return projection.entries(said, found)


def _bodies(space: Space, digests: Sequence[Digest]) -> Iterable[ReadBody]:
    read = space.objects_there(digests)
    return [
        _body(space, digest) if one is None else one.body for digest, one in zip(digests, read, strict=True)
    ]


def _body(space: Space, digest: Digest) -> ReadBody:
    try:
        return space.nodes((digest,))[0]
    except Forgotten as gone:
        redaction = space.redaction(digest)
        if redaction is None:
            return gone
    if redaction.stand_in is None:
        return Forgotten(f"body {digest}", redaction.reason)
    try:
        return RedactedBody(space.body(redaction.stand_in), redaction)
    except Forgotten as gone:  # a policy has removed the message since
        return gone


def _body_if_sound(space: Space, digest: Digest) -> ReadBody:
    try:
        return _body(space, digest)
    except Corrupt:
        return None


def _no_timeline(space: Space, timeline: str) -> NotFound:
    known = [hold.head.timeline for hold in space.engine.holds(space.name, limit=_SHOWN)]
    near = names.near(timeline, known, likeness=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return NotFound(
        f"'{space.label}' has no timeline '{timeline}'; nothing was read.{hint}",
        code="timeline_not_found",
        advice="See what there is with timelines().",
        timeline=timeline,
        thread=space.label,
        near=near,
    )


# ---- the agent of a timeline
#
# A thread belongs to the agent that began it until it is handed off.  From then on the newest hand-off, or start of a
# run, on the first parents names the agent, so that a hand-off can be undone and forked like everything else.  Most
# threads were never handed off: they have no cell with the names of their agents, and nothing of their history is read.

AGENTS_OF_THREAD = "agents"  # the cell of a thread that was handed off


class ThreadAgents(msgspec.Struct, frozen=True, kw_only=True):
    """The agents that a thread has had, on any timeline; the first began it."""

    names: tuple[str, ...]


_thread_agents = msgspec.json.Decoder(ThreadAgents)


def agents_question(space: str) -> CellOf:
    """Return the question whose answer `agents_in` reads."""
    return CellOf(space, AGENTS_OF_THREAD)


def agents_in(cell: Cell | None) -> tuple[str, ...]:
    """Return the agents that a thread has had, the one that began it first; none if it was never handed off."""
    return () if cell is None or cell.value is None else read_record(cell, _thread_agents).names


def agents_write(cell: Cell | None, founder: str, to: str) -> CellWrite:
    """Return the write by which `to` is one of the thread's agents."""
    known = agents_in(cell) or (founder,)
    value = ThreadAgents(names=known if to in known else (*known, to))
    expected = 0 if cell is None else cell.revision
    return CellWrite(name=AGENTS_OF_THREAD, expected=expected, value=canonical.encode_struct(value))


def agent_at(space: Space, commit: Digest | None, founder: str) -> str:
    """Return the agent of the turns after `commit` in a thread that `founder` began."""
    for step in eventful(space, commit):
        for event in reversed(step.changeset.events):
            if isinstance(event, AgentHandedOff):
                return event.to_agent
            if isinstance(event, RunStarted):
                return event.agent
    return founder


def check_agent(space: Space, commit: Digest | None, agents: tuple[str, ...], agent: str) -> None:
    """Raise `Conflict` if the turns after `commit` are another agent's; `agents` are those that the thread has had."""
    if agents and (now := agent_at(space, commit, agents[0])) != agent:
        raise other_agent(space.label, agent, now)


def other_agent(thread: str, agent: str, now: str) -> Conflict:
    """Return the error for a thread, or a timeline of it, that is another agent's now."""
    return Conflict(
        f"thread '{thread}' belongs to agent '{now}'; agent '{agent}' was not let in.",
        code="thread_of_another_agent",
        advice="Choose another id, or hand it off and go on with what that returns: thread = thread.hand_off(agent).",
        thread=thread,
        agent=agent,
        belongs_to=now,
    )
