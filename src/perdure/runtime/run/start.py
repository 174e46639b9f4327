"""Starts a run: makes its input durable, takes the timeline, and clears what the last run left.

One write does all of it: the inbound commit, the run-start commit, the lease and the run's record.  Only if
a plug-in hooks the start is the input made durable first.

The input is messages, and perhaps a whole new state.  Each input has an id.  The same id again is the same
input: the op_id of its write derives from the id, so a second caller, from any process, finds the run of the
first.

The state that a failed run wrote is restored in its closing commit, and written again on a retry.  Every path
that the run wrote goes back to its value after the inbound commit.  Paths that other writers changed stay, as
do messages, events and the ledger: outside effects cannot be rolled back.  When the run is retried, its
settled calls keep their results, so each restored path gets the value again that the run had left there.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import UNSET

from perdure.context.render.media import brought_in
from perdure.engines.contract import CellWrite, LabelOf, LedgerOf, OpOf, Question, Step
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Moved, OpReused
from perdure.history import reader
from perdure.history.changes.patch_builder import Touched
from perdure.history.changes.values import StoredValue
from perdure.history.reader import agents_in, agents_question, check_agent, is_ancestor
from perdure.history.space import Space
from perdure.history.tree import EMPTY, Entry, diff
from perdure.ledger import calls
from perdure.model import names
from perdure.model.call import SETTLED
from perdure.model.commit import RunMeta
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import ConflictCovered, MessageAppended, RunStarted
from perdure.model.head import Head
from perdure.model.message import Message, encode_message
from perdure.model.patch import Delete, Put, Stored
from perdure.model.run import REASONS, HeadPolicy, OnFailure, ParentCall, RunRecord
from perdure.providers.contract import server_of
from perdure.runtime.agent.agent import model_of
from perdure.runtime.calls.recovery import since_begin
from perdure.runtime.inference.backend import is_on, is_same_server
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.inputs import Inbound, given_before_as, other_words
from perdure.runtime.session.journal import CommitDraft, Journal
from perdure.runtime.session.lease import Lease
from perdure.runtime.session.records import VersionedRun
from perdure.runtime.tools.call import scratch_prefix
from perdure.switching.current_backend import RecordedBackend

__all__ = [
    "begin",
    "continued",
    "retried",
    "RunRequest",
    "Started",
    "AlreadyRan",
    "BackendChanged",
    "Interrupted",
    "cleaned",
    "given_before",
    "restore",
]

_log = logging.getLogger("perdure.runs")


def _is_known(space: Space, at: Digest | None, id: str, message: Message) -> bool:
    """True if the history up to `at` has this message; raise `Conflict` if it has another under that id."""
    for commit in space.ask(LabelOf(space.name, id))[0]:
        if not is_ancestor(space, commit, at):
            continue
        for event in space.step(commit).changeset.events:
            if isinstance(event, MessageAppended) and event.id == id:
                if event.body == digest_of(Kind.BODY, encode_message(message)):
                    return True
                raise Conflict(
                    f"message '{id}' says something else on this timeline; nothing was run.",
                    code="message_id_reused",
                    advice="Give it another id.",
                    id=id,
                )
    return False


def restore(journal: Journal, draft: CommitDraft, kept: Sequence[str]) -> None:
    """Put back what the run wrote; leave the prefixes `kept` alone."""
    steps = since_begin(journal.space, journal.run, journal.head.commit)
    base = _base(steps)
    if base is None:
        return
    space = journal.space
    writers = [(_is_own(step, journal.run), Touched.by((step.changeset,))) for step in reversed(steps)]
    for change in diff(space.tree(base), space.tree(journal.root)):
        if any(_under(change.path, prefix) for prefix in kept) or not _last_was_own(change.path, writers):
            continue
        _set(draft, change.path, change.before)
    if draft.ops:
        draft.act("restore", "run_finished:failed")


def _rewrite(journal: Journal, draft: CommitDraft) -> None:
    """Write again what the run's closing commit restored.

    A path that another writer has changed since is overwritten, and an event of the draft says so.
    """
    space = journal.space
    steps = since_begin(space, journal.run, journal.head.commit)
    closing = _closing_commit(steps, journal.run)
    if closing is None:
        return
    left, closed, now = (
        space.tree(root)
        for root in (space.root_at(closing.commit.first_parent), closing.commit.root, draft.root)
    )
    for op in closing.changeset.patch.ops:
        if isinstance(op, Put | Delete):
            here = now.get(op.path)
            if here != closed.get(op.path):
                covered = here.value if here else None
                draft.events.append(ConflictCovered(id=space.ids(), path=op.path, covered=covered))
            _set(draft, op.path, left.get(op.path))
    draft.act("rewrite", "run_started:retry")


def _closing_commit(steps: Sequence[Step], run: str) -> Step | None:
    """Return the run's last closing commit; None if it restored nothing."""
    for step in reversed(steps):
        if step.commit.run == run and step.commit.reason == "run_finished":
            return step if any(act.name == "restore" for act in step.changeset.state_actions) else None
    return None


def _set(draft: CommitDraft, path: str, entry: Entry | None) -> None:
    if entry is not None:
        stored = Stored(entry.value, entry.size, entry.form, entry.media_type)
        draft.ops.put_stored(path, StoredValue(stored, ()))
    elif draft.ops.entry(path) is not None:
        draft.ops.delete(path)


def _base(steps: Sequence[Step]) -> Digest | None:
    """Return the root after the input and the start of the run; None if there is no such commit."""
    base: Digest | None = None
    for step in steps:
        if step.commit.reason != "user_message":
            break
        base = step.commit.root
    return base


def _is_own(step: Step, run: str) -> bool:
    return step.commit.run == run and step.commit.reason in REASONS


def _last_was_own(path: str, writers: Sequence[tuple[bool, Touched]]) -> bool:
    return next((own for own, touched in writers if touched.covers(path)), False)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")


_CALLS = names.KERNEL_PREFIXES[2]  # scratch state of calls
_OWN = "/__"  # how all of `KERNEL_PREFIXES` begin


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its caller requests it."""

    inbound: Inbound
    backend: str | None  # None: no model was found, so it takes no step and names no backend
    server: str | None = None  # the address that requests to the backend go to
    head_policy: HeadPolicy = "each_step"
    on_failure: OnFailure = "restore"
    parent_run: str | None = None  # the run whose tool requests it
    parent: ParentCall | None = None  # the call that it is a child of; None: it is no child


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A run that holds the lease on its timeline."""

    journal: Journal
    kept: VersionedRun
    lease: Lease
    head: Head  # of the target timeline
    before: Digest | None = None  # the parent of the inbound commit of a fresh run
    said: tuple[Message, ...] = ()  # the messages that came in with a fresh run
    fresh: bool = True  # False: it goes on after an interruption or a decision
    waited: bool = False  # True: it goes on from waiting, so no call was running
    retried: bool = False  # True: it had failed, and its input was given again


class AlreadyRan(msgspec.Struct, frozen=True):
    """The same input was given before, and started this run."""

    run: str


class Interrupted(msgspec.Struct, frozen=True):
    """A run on the timeline was cut off; it has to be finished first."""

    run: str


class BackendChanged(msgspec.Struct, frozen=True):
    """The timeline was switched to another backend, or server, than the one that was to begin."""

    backend: RecordedBackend


def begin(
    env: RunEnvironment, request: RunRequest, *, hooked: bool, queued: VersionedRun | None = None
) -> Started | AlreadyRan | Interrupted | BackendChanged:
    """Take the timeline and make the input durable.

    Raises `Busy` if a run lives there, `Conflict` if the input's id was given with other words.
    `hooked`: a plug-in takes part in the start, so the loop clears run scope later.  `queued` is the run that was
    entered with the input (None: a new one begins); raises `Moved` if its record has changed.
    """
    attempts = Attempts(f"the lease on '{env.timeline}'", f"no run was started on '{env.timeline}'")
    questions = _questions(env, request)
    while True:
        attempts.begin()
        # From one moment: if the same input started the run in the way, that input is recorded by now.
        known = env.space.knowing(*questions)
        held, revision = leases.look(known, env.timeline)
        earlier = None if request.inbound.op_id is None else given_before(env, request, known)
        if earlier is not None:
            return earlier
        if held is not None:
            return _in_the_way(env, held)
        if agents := agents_in(*known.ask(agents_question(known.name))):  # it was handed off
            commit = reader.head_to_move(known, env.timeline).commit
            check_agent(env.space, commit, agents, env.agent.name)
        try:
            started = _begun(env, request, known, revision, hooked=hooked, queued=queued)
            if started is not None:
                return started
        except OpReused as error:
            raise other_words(request.inbound) from error
        except Moved:  # a run began or ended there just now
            if queued is not None and records.find(env.space, queued.record.id) != queued:
                raise


def _questions(env: RunEnvironment, request: RunRequest) -> list[Question]:
    """Return everything that a start asks, so that one call answers it."""
    space, inbound = env.space, request.inbound
    found = [*leases.lease_questions(space, env.timeline), *reader.head_questions(space, env.timeline)]
    found += [*env.standing.sight_questions, LedgerOf(space.name), agents_question(space.name)]
    if inbound.op_id is not None:
        found += [OpOf(space.name, inbound.op_id), *(LabelOf(space.name, id) for id in inbound.ids)]
    return found


def continued(
    env: RunEnvironment,
    kept: VersionedRun,
    held: Lease | None,
    revision: int,
    *,
    backend: RecordedBackend | None = None,
    deaths: tuple[int, str | None] = (0, None),
) -> Started:
    """Take the timeline for a run that waits or was cut off; raise `Busy` if a run lives there.

    `held` is the lease and `revision` that of its cell, as they were read before the `backend` was found
    that goes on; None: no model takes another step.  `deaths` are how many processes ended while they ran it, and how
    far it was then.  Raises `Moved` if the lease has changed, `Sealed` if the timeline takes no more writes.
    """
    record = kept.record
    taking = _taking(env, record, held, revision)
    name, server = backend or (record.backend, record.server)
    writes, kept = records.moved(
        kept,
        "running",
        at=env.space.clock(),
        backend=name,
        server=server,
        decided=False,
        deaths=deaths[0],
        died_at=deaths[1],
        aside_at=None,
    )
    lease = leases.taken(taking)
    with _expecting(env, lease):
        records.apply(env.space, "resume", taking, *writes)
        # Only now: without the lease the timeline could be sealed after this look.
        head = reader.unsealed_head(env.space, record.timeline)
    journal = _journal(env, record, head, lease)
    waited = record.state == "waiting"
    _log.info("run %s of %s on %s resumed with %s", record.id, env.space.label, record.timeline, name)
    return Started(journal=journal, kept=kept, lease=lease, head=head, fresh=False, waited=waited)


def retried(
    env: RunEnvironment, kept: VersionedRun, held: Lease | None, revision: int, *, backend: RecordedBackend
) -> Started:
    """Take the timeline for a run that failed, and write again what its closing commit restored: one write.

    `held`, `revision` and errors are as in `continued`.  A run that was on a timeline of its own goes on there,
    where nothing was restored.
    """
    record, space = kept.record, env.space
    taking = _taking(env, record, held, revision)
    name, server = backend
    writes, kept = records.moved(
        kept,
        "running",
        at=space.clock(),
        backend=name,
        server=server,
        why=None,
        kind=None,
        cancel=None,
        cancelled_by=None,
    )
    lease = leases.taken(taking)
    head = reader.head_to_move(space, record.timeline)
    journal = Journal(env, record.id, head, Feed(record.id), parent_run=record.parent_run)
    with _expecting(env, lease):
        if record.line is not None:
            records.apply(space, "retry", taking, *writes)
        else:
            draft = journal.draft("tool_results_committed")
            draft.events.append(
                RunStarted(id=space.ids(), agent=env.agent.name, backend=name, server=server, is_retry=True)
            )
            origin = "input" if record.parent_run is None else "tool"
            draft.meta = RunMeta(agent_version=env.agent.version, backend=name, origin=origin)
            _rewrite(journal, draft)
            journal.stage(draft)
            journal.write(cells=(taking, *writes))
    env.feeds.begin(space.name, record.timeline, journal.feed)
    journal.hold(lease)
    return Started(journal=journal, kept=kept, lease=lease, head=journal.head, fresh=False, retried=True)


def _taking(env: RunEnvironment, record: RunRecord, held: Lease | None, revision: int) -> CellWrite:
    """Return the write that takes the timeline for a run; raise `Busy` if the run of `held` lives."""
    return leases.taking(
        env.space,
        record.timeline,
        record.id,
        env.lease_seconds,
        held,
        owners=env.owners,
        revision=revision,
    )


@contextmanager
def _expecting(env: RunEnvironment, lease: Lease) -> Generator[None]:
    """Give the lease up here if the write that takes it fails, so that any process may take it over."""
    try:
        yield
    except BaseException:
        env.owners.give_up(env.space, lease)
        raise


def cleaned(space: Space, draft: CommitDraft, prefixes: tuple[str, ...]) -> None:
    """Clear what the last run left in run scope, and the scratch state of calls that were settled elsewhere."""
    tree = space.tree(draft.root)
    has_own = bool(tree.count(_OWN))  # most threads have nothing there
    wanted = [prefix for prefix in prefixes if has_own or not names.reserved(prefix)]
    present = [prefix for prefix in wanted if tree.count(prefix) and draft.ops.paths(prefix)]
    if has_own:
        present += _left_aside(space, draft)
    for prefix in present:
        draft.ops.clear(prefix)
    if present:
        draft.act("scope_cleanup", "prepare_run:scope_cleanup")


def _left_aside(space: Space, draft: CommitDraft) -> list[str]:
    """Return the scratch prefixes of calls that were settled without a commit on this timeline."""
    paths = draft.ops.paths(_CALLS)
    found = calls.find_many(space, dict.fromkeys(path.split("/")[2] for path in paths))
    return [scratch_prefix(held.record.id) for held in found if held and held.record.state in SETTLED]


def _other_backend(env: RunEnvironment, request: RunRequest, head: Head) -> BackendChanged | None:
    """Return the backend of the timeline if it is not that of the request, which may name none.

    A switch moves the lease's revision too, which was read before the head: what is true here is true of the write.
    """
    if request.backend is None:
        return None
    recorded = env.lines.backend(env.space, env.timeline, head.commit) or _own(env)
    if recorded is None or (
        is_on(env, request.backend, recorded.name) and is_same_server(recorded.server, request.server)
    ):
        return None
    return BackendChanged(recorded)


def _begun(
    env: RunEnvironment,
    request: RunRequest,
    known: Space,
    revision: int,
    *,
    hooked: bool,
    queued: VersionedRun | None,
) -> Started | BackendChanged | None:
    """Start the run; None if another caller gave the same input a moment ago."""
    space, inbound = env.space, request.inbound
    head = reader.head_to_move(known, env.timeline)
    if (changed := _other_backend(env, request, head)) is not None:
        return changed
    record = _record(env, request, head)
    if queued is None:
        entering, kept = records.new(record), VersionedRun(record, 1)
    else:
        entering, kept = _entering(queued, record)
        record = kept.record
    journal = Journal(env, record.id, head, Feed(record.id), parent_run=request.parent_run)
    *agent, ledger = known.ask(*env.standing.sight_questions, LedgerOf(space.name))
    journal.start_with(agent[0] if agent else UNSET, ledger)
    draft, said = _inbound_draft(env, request, journal, known)
    journal.stage(draft)
    if not hooked and journal.root != EMPTY:
        draft = journal.draft("user_message")
        cleaned(space, draft, env.agent.run_scoped_paths())
        journal.stage(draft)
    taking = _taking(env, record, None, revision)
    lease = leases.taken(taking)
    try:
        is_new = journal.write(
            op_id=inbound.op_id,
            intent=inbound.intent(env.timeline) if inbound.op_id else None,
            cells=(taking, *entering),
        )
    except BaseException:
        env.owners.give_up(space, lease)  # so that any process may take the timeline over
        raise
    if not is_new:
        return None
    journal.hold(lease)
    env.feeds.begin(space.name, env.timeline, journal.feed)
    _log.info("run %s of %s on %s started with %s", record.id, space.label, env.timeline, record.backend)
    return Started(
        journal=journal,
        kept=kept,
        lease=lease,
        head=journal.head,
        # Further on: others have moved the timeline in between, and the run begins on top of their commits.
        before=head.commit
        if journal.head.version == head.version + 1
        else _before(space, record.id, journal.head.commit),
        said=said,
    )


def _entering(queued: VersionedRun, begun: RunRecord) -> tuple[tuple[CellWrite, ...], VersionedRun]:
    """Return the writes by which a run that was queued begins, and its record: that of `begun` under its own id."""
    return records.moved(
        queued,
        "running",
        at=begun.at,
        begun_at=begun.begun_at,
        before=begun.before,
        backend=begun.backend,
        server=begun.server,
        agent_version=begun.agent_version,
        effect_max=begun.effect_max,
    )


def _own(env: RunEnvironment) -> RecordedBackend | None:
    """Return the agent's own backend, which takes the steps if the history names none."""
    if env.agent.backend is None:
        return None
    model = model_of(env.agent)
    return RecordedBackend(model.backend, server_of(model))


def _before(space: Space, run: str, at: Digest | None) -> Digest | None:
    """Return the commit before those of a run that has just begun."""
    while at is not None and space.step(at).commit.run == run:
        at = space.step(at).commit.first_parent
    return at


def _inbound_draft(
    env: RunEnvironment, request: RunRequest, journal: Journal, known: Space
) -> tuple[CommitDraft, tuple[Message, ...]]:
    """Return the inbound commit, and its new messages."""
    draft = journal.draft("user_message")
    said: list[Message] = []
    has_id = request.inbound.is_named
    for id, message in request.inbound.messages:
        kept, staged = brought_in(env.space, message)
        if not has_id or not _is_known(known, journal.head.commit, id, kept):
            draft.say(kept, id=id)
            draft.hold(staged)
            said.append(kept)
    draft.events.append(
        RunStarted(id=env.space.ids(), agent=env.agent.name, backend=request.backend, server=request.server)
    )
    draft.meta = RunMeta(
        agent_version=env.agent.version,
        backend=request.backend,
        origin="input" if request.parent_run is None else "tool",
    )
    if request.inbound.state is not None:
        draft.ops.replace(request.inbound.state, keep=_not_replaced(env))
        draft.act("replace", "inbound:state")
    return draft, tuple(said)


def _not_replaced(env: RunEnvironment) -> tuple[str, ...]:
    """Return the paths that a whole new state leaves alone, beside Perdure's own."""
    kernel = names.KERNEL_PREFIXES
    return tuple(prefix for prefix in env.agent.run_scoped_paths() if prefix not in kernel)


def _record(env: RunEnvironment, request: RunRequest, head: Head) -> RunRecord:
    now = env.space.clock()
    return RunRecord(
        id=env.space.ids(),
        agent=env.agent.name,
        timeline=env.timeline,
        state="running",
        at=now,
        begun_at=now,
        input=request.inbound.ids,
        before=head.commit,
        head_policy=request.head_policy,
        on_failure=request.on_failure,
        backend=request.backend,
        server=request.server,
        agent_version=env.agent.version,
        parent_run=request.parent_run,
        parent=request.parent,
        effect_max=env.effect_max,
    )


def _journal(env: RunEnvironment, record: RunRecord, head: Head, lease: Lease) -> Journal:
    journal = Journal(env, record.id, head, Feed(record.id), parent_run=record.parent_run)
    env.feeds.begin(env.space.name, record.timeline, journal.feed)
    journal.hold(lease)
    return journal


def given_before(env: RunEnvironment, request: RunRequest, known: Space | None = None) -> AlreadyRan | None:
    """Return the run that the same input started; None if it is new.  Raise `Conflict` if it had other words.

    `known` has the answer that was just read; None: it is read here.
    """
    run = given_before_as(env.space, env.timeline, request.inbound, known)
    return None if run is None else AlreadyRan(run)


def _in_the_way(env: RunEnvironment, held: Lease) -> Interrupted:
    """Return the run on the timeline if it was cut off; raise `Busy` if it lives."""
    if leases.state(env.space, held, owners=env.owners) == "live":
        raise leases.busy(env.space, held)
    return Interrupted(held.run)
