"""Commits imported messages: their calls get our ids and enter the ledger as made elsewhere.

A step is one commit, with the names that another framework has for it; steps of one turn share a label, so that
`threads log` shows them together.  All steps of a call become one durable write.  A call with a result is settled, one
without is of unknown outcome: no run here made either, so none can start again.  A result finds its call in the same
write, or among the calls that were imported to the timeline before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Moved
from perdure.history import artifacts, reader
from perdure.history.artifacts import Staged
from perdure.history.space import Space
from perdure.ledger import calls, repeat_guard, settlement
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model.call import TWIN, CallRecord
from perdure.model.digest import Digest
from perdure.model.effect import Reach
from perdure.model.event import Event, MessageAppended, MomentNamed, ToolCallCompleted
from perdure.model.head import Head
from perdure.model.message import Message, ToolCall, ToolResult, decode_message
from perdure.model.run import IMPORT
from perdure.providers.contract import Loss
from perdure.providers.wire.fields.vendor_metadata import tool_of_id
from perdure.runtime.calls.pending_call import encode_result
from perdure.runtime.calls.plan import fingerprint_here
from perdure.runtime.calls.round import args_body
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import CommitDraft, Journal
from perdure.runtime.tools.result import keep
from perdure.runtime.tools.tool import Tool

__all__ = [
    "ImportedCommits",
    "ImportStep",
    "OpenImports",
    "commit_steps",
    "import_of",
    "write_staged",
]

_TURN = "#"  # what follows it numbers the commits of one write
_LOOK_BACK_MAX = 20_000  # messages that are searched for the call of a result


def import_of(label: str | None) -> str | None:
    """Return what the labels of one write of imported messages have in common."""
    return None if label is None else label.partition(_TURN)[0]


class ImportStep(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one commit, with their vendor's ids of calls."""

    messages: tuple[Message, ...]
    backend: str | None = None  # provider:model of the assistant; None: it is not known
    names: tuple[str, ...] = ()  # that another framework has for the commit
    begins_turn: bool = True  # False: it belongs to the turn of the step before
    where: str = ""  # in what it was read from, for the report; empty: by the number of the message


class ImportedCommits(msgspec.Struct, frozen=True, kw_only=True):
    """What a write of steps added."""

    head: Head
    messages: int
    calls: int
    calls_open: int = 0  # calls without a result, less those of earlier writes that got one
    losses: tuple[Loss, ...] = ()


def commit_steps(
    env: RunEnvironment,
    head: Head,
    steps: Sequence[ImportStep],
    *,
    called: Mapping[str, Tool],
    op_id: str | None = None,
    intent: Digest | None = None,
    marks: Callable[[str], Sequence[CellWrite]] = lambda _label: (),
    first_message: int = 0,
) -> ImportedCommits:
    """Write `steps` on top of `head`, one commit each; raise `StaleHead` or `Moved` if another writer was first.

    `first_message` is the number that the report gives to the first message of a step without a place.
    `called` has the agent's tools by the names that the vendor makes of theirs.  `marks` are cells of the same write,
    by the label of the first commit.
    """
    space = env.space
    journal = Journal(env, IMPORT + space.ids(), head, Feed("import"))
    label = first = journal.run
    ours = _OwnCalls(env, called, head)
    drafted: list[tuple[str, ImportStep, list[tuple[Message, list[Staged]]]]] = []
    count = first_message
    for number, step in enumerate(steps):
        label = f"{first}{_TURN}{number + 1}" if number and step.begins_turn else label
        ours.begin(number, label, step.backend)
        renamed: list[tuple[Message, list[Staged]]] = []
        for message in step.messages:
            where = step.where or f"messages[{count}]"
            renamed.append(brought_in(space, ours.renamed(message, where)))
            count += 1
        drafted.append((label, step, renamed))
    transitions = [*ours.transitions(), *ours.answers()]
    for number, (run, step, renamed) in enumerate(drafted):
        journal.run = run
        draft = journal.draft("import")
        _say(space, draft, step, renamed)
        draft.extend(ours.completed(number, transitions))
        journal.stage(draft)
    journal.run = first
    write_staged(journal, op_id, intent, transitions, marks(first))
    return ImportedCommits(
        head=journal.head,
        messages=count - first_message,
        calls=len(ours.made),
        calls_open=ours.open_calls,
        losses=tuple(ours.losses),
    )


def write_staged(
    journal: Journal,
    op_id: str | None,
    intent: Digest | None,
    transitions: list[CallTransition],
    marks: Sequence[CellWrite],
) -> None:
    """Write what is staged, and enter the calls into the repeat guard."""
    records = [transition.record for transition in transitions if transition.cells[0].expected == 0]
    attempts = Attempts("the record of equal calls", "no message was added")
    while True:
        attempts.begin()
        cells = (*repeat_guard.entering(journal.space, records), *marks)
        try:
            journal.write(
                op_id=op_id,
                intent=intent if op_id else None,
                cells=cells,
                transitions=transitions,
                on_conflict="raise",
            )
        except Moved as moved:
            if not moved.cell.startswith(TWIN):
                raise
        else:
            return


def _say(
    space: Space, draft: CommitDraft, step: ImportStep, messages: Iterable[tuple[Message, list[Staged]]]
) -> None:
    """Append the messages of a step to its commit, and name it."""
    for message, staged in messages:
        draft.hold(staged)
        draft.say(message, id=space.ids(), backend=step.backend if message.role == "assistant" else None)
    draft.extend(MomentNamed(id=space.ids(), name=name) for name in step.names)


class _OwnCalls:
    """Gives calls our ids, message by message, and finds the call of each result.

    A result belongs to the newest message with an open call of its id: among the messages that are added, else
    among those that were imported to this timeline before.  It never settles a call of a run or of `thread.call`: while
    that call is open, nothing is imported.
    """

    def __init__(self, env: RunEnvironment, called: Mapping[str, Tool], head: Head) -> None:
        self._env = env
        self._called = called  # tools by the names that the vendor makes of theirs
        self._open: dict[str, list[list[str]]] = {}  # by the vendor's id: our open calls, message by message
        self._before = OpenImports(env.space, head.commit)
        self.made: dict[str, tuple[ToolCall, str]] = {}  # by our id: the call, and the vendor's id
        self._results: dict[str, ToolResult] = {}
        self._answered: list[tuple[VersionedCall, ToolResult]] = []  # calls that were imported before
        self.losses: list[Loss] = []
        self._step, self._label, self._backend = 0, "", None
        self._made_in: dict[
            str, tuple[str, str | None]
        ] = {}  # by our id: the label of its commit, the backend
        self._answered_in: dict[str, tuple[int, str]] = {}  # by our id: the step of its result, and its label

    def begin(self, step: int, label: str, backend: str | None) -> None:
        """Take the messages of a step from here on."""
        self._step, self._label, self._backend = step, label, backend

    def renamed(self, message: Message, where: str) -> Message:
        """Return the message with our ids; `where` is its place for the report."""
        made = [self._call(call) for call in message.tool_calls]
        for vendor_id in dict.fromkeys(call.id for call in message.tool_calls):
            group = [
                ours.id for ours, call in zip(made, message.tool_calls, strict=True) if call.id == vendor_id
            ]
            self._open.setdefault(vendor_id, []).append(group)
        results = [
            self._result(result, f"{where}.tool_results[{index}]")
            for index, result in enumerate(message.tool_results)
        ]
        return msgspec.structs.replace(message, tool_calls=tuple(made), tool_results=tuple(results))

    @property
    def open_calls(self) -> int:
        """Return the number of new calls without a result, less the earlier calls that got one."""
        return len(self.made) - len(self._results) - len(self._answered)

    def transitions(self) -> list[CallTransition]:
        """Return the transitions that enter the new calls into the ledger."""
        return [self._transition(id) for id in self.made]

    def answers(self) -> list[CallTransition]:
        """Return the transitions that settle calls which were imported before."""
        space, found = self._env.space, list[CallTransition]()
        for held, result in self._answered:
            kept = keep(result)
            staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
            found.append(
                settlement.answered(
                    held,
                    at=space.clock(),
                    staged=staged,
                    preview=encode_result(result),
                    status=result.status,
                    result_label=self._answered_in[result.call_id][1],
                )
            )
        return found

    def completed(self, step: int, transitions: Sequence[CallTransition]) -> list[Event]:
        """Return the events of calls whose result is in a step; the effect is recorded only if the agent declares
        the tool."""
        toolbox = self._env.agent.toolbox
        return [
            ToolCallCompleted(
                id=self._env.space.ids(),
                call=transition.record.id,
                status=transition.record.state,
                result_ref=transition.record.result,
                side_effects=transition.record.effect if transition.record.tool in toolbox else None,
            )
            for transition in transitions
            if transition.record.result is not None
            and self._answered_in.get(transition.record.id, (None,))[0] == step
        ]

    def _call(self, call: ToolCall) -> ToolCall:
        id = self._env.space.ids()
        tool = self._called.get(call.name)
        made = ToolCall(id, tool.name if tool else call.name, call.args)
        self.made[id] = (made, call.id)
        self._made_in[id] = (self._label, self._backend)
        return made

    def _result(self, result: ToolResult, where: str) -> ToolResult:
        groups = self._open.get(result.call_id)
        if groups:
            mine = ToolResult(groups[-1].pop(0), result.status, result.content)
            if not groups[-1]:
                groups.pop()
            self._results[mine.call_id] = mine
            self._answered_in[mine.call_id] = (self._step, self._label)
            return mine
        held = self._before.take(result.call_id) or self._by_tool(result.call_id)
        if held is None:
            calls.check_answerable(self._before.of_run.get(result.call_id))
            why = "no open imported call of this timeline goes by its id; the thread keeps it, and no model is shown it"
            self.losses.append(Loss(kind="converted", where=where, what="tool result", why=why))
            # A call of the timeline with this id must not look answered.
            is_taken = result.call_id in self._before.seen
            return msgspec.structs.replace(result, call_id=self._env.space.ids()) if is_taken else result
        mine = ToolResult(held.record.id, result.status, result.content)
        if held.record.state == "unknown" and held.record.result is None:
            self._answered.append((held, mine))
            self._answered_in[mine.call_id] = (self._step, self._label)
        elif held.record.outcome == "not_done" and mine.status == "success":
            kept, space = keep(mine), self._env.space
            staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
            settlement.contradict(space, held.record.id, staged)
        return mine

    def _by_tool(self, call_id: str) -> VersionedCall | None:
        """Return the open call of a result that names only its tool; None if the result names its call."""
        name = tool_of_id(call_id)
        if name is None:
            return None
        tool = self._called.get(name)
        return self._before.take_of(tool.name if tool else name)

    def _transition(self, id: str) -> CallTransition:
        space = self._env.space
        call, vendor_id = self.made[id]
        label, backend = self._made_in[id]
        body = args_body(call.args)
        tool = self._env.agent.toolbox.get(call.name)
        reach = tool.reach if tool else Reach()
        record = CallRecord(
            id=id,
            tool=call.name,
            state="proposed",
            args=body.digest,
            args_size=len(body.body),
            at=space.clock(),
            fingerprint=fingerprint_here(tool, call.args) if tool else "",
            version=tool.version if tool else None,
            timeline=self._env.timeline,
            run=None,
            label=label,
            backend=backend,
            vendor_id=vendor_id,
            result_label=self._answered_in.get(id, (None, label))[1],
        )
        result = self._results.get(id)
        if result is None:
            transition = settlement.imported(record, reach=reach, why="no result came with it")
            return transition.also(objects=(body,))
        kept = keep(result)
        staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
        transition = settlement.imported(
            record, staged=staged, preview=encode_result(result), status=result.status, reach=reach
        )
        return transition.also(objects=(body,))


class OpenImports:
    """Finds imported calls without a result on a timeline: by the vendor's ids, by ours, and by tool."""

    def __init__(self, space: Space, at: Digest | None, *, messages_max: int = _LOOK_BACK_MAX) -> None:
        """Search back from `at`, as far as callers need, and about as many messages at most."""
        self._space = space
        self._messages = self._back(at, messages_max)
        self._answered: set[str] = set()
        self._taken: set[str] = set()  # by our ids
        self._by_id: dict[str, list[VersionedCall]] = {}  # those of the newest message first, in order
        self._by_tool: dict[str, list[VersionedCall]] = {}
        self.seen: set[str] = (
            set()
        )  # our ids of all calls so far; of the whole timeline once nothing was found
        self.of_run: dict[
            str, VersionedCall
        ] = {}  # those without a result that were not imported, by both ids

    def take(self, id: str) -> VersionedCall | None:
        """Return the first open call of an id, the vendor's or ours, in the newest message with one; each only once."""
        return self._next(self._by_id, id)

    def take_of(self, tool: str) -> VersionedCall | None:
        """Do the same by the name of the tool."""
        return self._next(self._by_tool, tool)

    def _next(self, found: dict[str, list[VersionedCall]], key: str) -> VersionedCall | None:
        while True:
            held = next((each for each in found.get(key, ()) if each.record.id not in self._taken), None)
            if held is not None:
                self._taken.add(held.record.id)
                return held
            if not self._read_on():
                return None

    def _read_on(self) -> bool:
        """Read one more message; False if there is none."""
        message = next(self._messages, None)
        if message is None:
            return False
        self._answered |= {result.call_id for result in message.tool_results}
        for call in message.tool_calls:
            self.seen.add(call.id)
            held = None if call.id in self._answered else calls.find(self._space, call.id)
            if held is not None and held.record.origin == "import" and held.record.vendor_id is not None:
                for id in {held.record.vendor_id, call.id}:
                    self._by_id.setdefault(id, []).append(held)
                self._by_tool.setdefault(held.record.tool, []).append(held)
            elif held is not None and held.record.origin != "import":
                for id in {held.record.vendor_id or call.id, call.id}:
                    self.of_run.setdefault(id, held)
        return True

    def _back(self, at: Digest | None, left: int) -> Iterator[Message]:
        """Yield the messages that may hold calls or results, newest first."""
        for step in reader.recent(self._space, at):
            for event in reversed(step.changeset.events):
                if isinstance(event, MessageAppended) and event.role != "system":
                    left -= 1
                    yield decode_message(self._space.body(event.body))
            if left <= 0:
                return
