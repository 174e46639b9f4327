"""Changes: a block of edits that becomes one commit, or nothing.

Entering a block reads the head; leaving it normally commits once, on that head.  A block that raises writes nothing,
and neither does a block without a change.

A block with an op_id can be repeated safely.  If the op_id is already recorded when the block is entered, the block
reads as of the parent of the first commit, so that the same code means the same; leaving it then gives the first
receipt and writes nothing.

With `chain` each write inside the block, also of a message, is a commit of its own, whose digest is known at once; all
of them are one durable write, and the head moves once.  With `chain="steps"` a commit ends where the block says so, by
`step()`, so that it can hold several edits, messages and names.

A read inside the block sees the block's own writes.  It is recorded, so that a rebase knows what the block relied on.
An edit that does not fit raises and changes nothing.  A write of one value returns the digest of the new value; in a
chain every write returns the digest of its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import msgspec
from msgspec import UNSET

from perdure.engines.contract import Cell, CellWrite, Fence, OpOf, Receipt, Recorded, Step
from perdure.errors import Conflict, Invalid, NotFound, OpReused, StaleHead
from perdure.history import writer
from perdure.history.changes.json_edits import check_place
from perdure.history.changes.patch_builder import UNTOUCHED, Ops, Patched, Touched
from perdure.history.changes.values import Given, declared, typed
from perdure.history.reader import is_ancestor, is_retracted
from perdure.history.space import AgentMapView, ChangeQuestions, Space, TimelineContext
from perdure.history.tree import EMPTY, NodeCache
from perdure.history.writer import CommitOutcome, Proposal
from perdure.model import names
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import AgentChanged, Event, MessageAppended, MessageRetracted, MomentNamed
from perdure.model.head import Head
from perdure.model.message import (
    Block,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
    check_message,
    encode_message,
    has_media,
    plain_body,
)
from perdure.model.names import KERNEL_PREFIXES, reserved
from perdure.model.patch import Verb
from perdure.runtime.session import lease as leases
from perdure.store.plumbing.handles import deferred, guarded
from perdure.store.plumbing.outbox import encode_patch
from perdure.store.plumbing.run_fence import (
    How,
    chain_interrupted,
    check_answers,
    check_how,
    check_whose,
    commit_beside_run,
    note_questions,
    parts,
)

if TYPE_CHECKING:
    from perdure.context.render import media
    from perdure.runtime.session import journal
else:
    journal = deferred("perdure.runtime.session.journal")
    media = deferred("perdure.context.render.media")

__all__ = ["AgentChange", "Change", "Edits"]


_Place = Sequence[str | int]


class Edits:
    """Edits of a map."""

    _ops: Ops | None = None  # None: the block is not entered, or was left
    _is_chain = False  # each write is a commit of its own
    _defaults: Mapping[str, bytes] = {}
    _reads: Touched | None = None  # the paths that were read; None: they are not recorded

    def __init__(self, *, by_hand: bool) -> None:
        """Prepare edits.  Edits `by_hand`, which no run makes, cannot touch the paths reserved for Perdure."""
        self._by_hand = by_hand

    @overload
    def get(self, path: str, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, default: Any = ..., *, type: type[_T]) -> _T: ...
    def get(self, path: str, default: Any = UNSET, *, type: Any = None) -> Any:
        """Read the value at `path`, with the block's own writes; `default` if there is none, else `NotFound`."""
        ops = self._open()
        found = ops.entry(path)
        if self._reads is not None:
            self._own_reads().paths.add(path)
        if found is not None:
            return typed(path, ops.value(path), type)
        if default is UNSET:
            default = declared(self._defaults, path, type)
        if default is UNSET:
            raise NotFound(
                f"there is nothing at {path}.",
                code="path_not_found",
                advice="See what there is with paths(), or give a default.",
                path=path,
            )
        return default

    def paths(self, prefix: str = "/") -> list[str]:
        """Return the paths under `prefix`, sorted, with the block's own writes."""
        found = self._open().paths(prefix)
        if self._reads is not None:
            self._own_reads().prefixes.add(prefix)
        return found

    def put(self, path: str, value: Given, *, media_type: str | None = None) -> Digest:
        """Write a JSON document, or bytes with a media type, to `path`; return the digest of the value."""
        ops = self._ops
        if ops is None or (self._by_hand and str(path).startswith("/__")):
            ops = self._writing(path)
        value_digest = ops.put(path, value, media_type=media_type)
        return (self._link() or value_digest) if self._is_chain else value_digest

    def delete(self, path: str) -> Digest | None:
        """Delete the value at `path`; raises `NotFound` if there is none."""
        self._writing(path).delete(path)
        return self._link()

    def clear(self, prefix: str) -> Digest | None:
        """Delete the values at `prefix` and below it; '/' is everything except the paths reserved for Perdure."""
        ops = self._writing(prefix)
        if self._by_hand and prefix == "/" and any(ops.paths(own) for own in KERNEL_PREFIXES):
            ops.replace({})
        else:
            ops.clear(prefix)
        return self._link()

    def replace(self, entries: Mapping[str, Given], *, keep: Sequence[str] = ()) -> Digest | None:
        """Replace the whole map by `entries`, except for what is under `keep`."""
        self._open().replace(entries, keep=keep)
        return self._link()

    def set(self, path: str, value: Given, *, at: _Place) -> Digest:
        """Set a key of an object, or an item of a list, in the document at `path`."""
        return self._edit(path, "set", at, value)

    def unset(self, path: str, *, at: _Place) -> Digest:
        """Remove a key or an item from the document at `path`."""
        return self._edit(path, "unset", at, None)

    def append(self, path: str, value: Given, *, at: _Place = ()) -> Digest:
        """Add an item to the end of a list in the document at `path`."""
        return self._edit(path, "append", at, value)

    def insert(self, path: str, value: Given, *, at: _Place) -> Digest:
        """Insert an item into a list in the document at `path`, before the index at the end of `at`."""
        return self._edit(path, "insert", at, value)

    def remove(self, path: str, value: Given, *, at: _Place = ()) -> Digest:
        """Remove the first item that equals `value` from a list in the document at `path`."""
        return self._edit(path, "remove", at, value)

    def merge(self, path: str, value: Mapping[str, Given], *, at: _Place = ()) -> Digest:
        """Set several keys of an object in the document at `path`."""
        return self._edit(path, "merge", at, value)

    def increment(self, path: str, by: float = 1, *, at: _Place = ()) -> Digest:
        """Add to a number in the document at `path`."""
        return self._edit(path, "increment", at, by)

    def _edit(self, path: str, verb: Verb, at: _Place, argument: object) -> Digest:
        value_digest = self._writing(path).edit(path, verb, check_place(at), argument)
        return self._link() or value_digest

    def _link(self) -> Digest | None:
        """Turn the last write into a commit of its own and return its digest; None: the writes form no chain."""
        return None

    def _writing(self, path: str) -> Ops:
        """Return the ops for a write to `path`; raises `Invalid` if the path is reserved."""
        if self._by_hand and reserved(path):
            raise Invalid(
                f"{path} is under a prefix that is reserved for runs ({', '.join(KERNEL_PREFIXES)}); nothing was "
                "written.",
                code="path_reserved",
                advice="Choose another path.",
                path=path,
            )
        return self._open()

    def _own_reads(self) -> Touched:
        self._reads = reads = Touched() if self._reads is UNTOUCHED or self._reads is None else self._reads
        return reads

    def _open(self) -> Ops:
        if self._ops is None:
            raise Invalid(
                "this change is not open; nothing was done.",
                code="change_not_open",
                advice="Use it inside its `with` block.",
            )
        return self._ops


_T = TypeVar("_T")


class AgentChange(Edits):
    """The changes that a block makes to the agent's own map."""

    def __init__(self, agent: Space, root: Digest, into: Space, *, by_hand: bool) -> None:
        """Edit the map of that root; new values are stored `into` the thread's space first."""
        super().__init__(by_hand=by_hand)
        self._ops = Ops(agent, root, into=into)

    def _close(self) -> Ops:
        ops, self._ops = self._open(), None
        return ops


class Change(Edits):
    """A block of changes that becomes a commit."""

    _reads = UNTOUCHED
    head: Head | None = None  # the head on entering; after leaving, the new head
    receipt: Receipt | None = None  # None: nothing is written yet, or there was nothing to write
    _agent: AgentChange | None = None
    _sight: AgentMapView | None = None
    _earlier: Recorded | None = None  # the earlier write of this op_id
    _earlier_messages: Sequence[str] = ()  # the ids of its messages
    _wrote: Sequence[Digest] = ()  # its commits, oldest first
    _tip: Step | None = None  # the last commit of a chain, or the commit that the block is based on
    _at: int | None = None  # the time of the commits; None: when the block is left
    _commits: tuple[Digest, ...] = ()
    _base: Digest | None = None
    _op_id = ""  # once the block is left
    _ledger: LedgerRead | None = None  # its end when the block is left
    _lease: Cell | None = None  # of the timeline, read with the ledger

    def __init__(self, standing: TimelineContext, how: How, after: Callable[[], None]) -> None:
        """Prepare a block; nothing is read before it is entered.  `after` does the work that follows its commit."""
        self._by_hand = how.run is None
        check_how(how, standing.timeline)
        self._standing, self._how, self._after = standing, how, after
        self._is_chain = how.chain is True
        self._defaults = standing.defaults
        self._events: list[Event] = []
        self._bodies: list[Object] = []  # messages, and the artifacts that they name
        self._uploads: list[CellWrite] = []  # cells that end the uploads of these artifacts
        self._minted: set[str] = set()
        self._links: list[Proposal] = []  # the commits of a chain so far
        self._run = how.run

    @guarded  # what follows inside the block is then on the same thread
    def __enter__(self) -> Self:
        """Read the head."""
        if self.head is not None:
            raise Invalid(
                "this change was used before; nothing was done.",
                code="change_used",
                advice="Take a new one from change().",
            )
        standing, how = self._standing, self._how
        space, op_id = standing.space, how.op_id
        asked = standing.asked[0] if standing.asked else note_questions(standing)
        others: list[Any] = []
        if op_id is None and not how.at_once:  # as most
            hold = space.engine.answers(asked.head)[0]
        else:  # a repeated block must not fail because the head has moved since
            op = () if op_id is None else (OpOf(space.name, op_id),)
            hold, *others = space.engine.answers((*asked.head, *op, *(asked.beside if how.at_once else ())))
            if op:
                self._earlier = others.pop(0)
        self.head = head = hold.head if hold else Head(standing.timeline, 0, None)
        if others:
            self._take_beside(asked, others)
        base = head.commit
        if self._earlier is not None:
            self._go_back(self._earlier)
            base = self._base
        elif how.head is not None:
            self.head = self._known(how.head)
            base = self.head.commit
        self._base = base
        if how.chain:
            space = self._begin_chain(space)
        step = None if base is None else space.steps.get(base) or space.step(base)
        self._ops = Ops(space, EMPTY if step is None else step.commit.root)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, unless the block raised or changed nothing."""
        ops, self._ops = self._open() if self._ops is None else self._ops, None
        if kind is None:
            self._finish(ops)

    @property
    def commits(self) -> tuple[Digest, ...]:
        """The commits of a chain so far; the commit of any other block once it is left."""
        return self._commits

    @property
    def agent(self) -> AgentChange:
        """The agent's own map.  Changes here are applied to it right after the commit."""
        self._open()
        agent = self._standing.agent
        if agent is None:
            raise Invalid(
                "this is an agent's own map; it has none of its own. Nothing was written.",
                code="agent_map_missing",
            )
        if self._agent is None:
            root = agent.root_at(self._seen().commit)
            self._agent = AgentChange(agent, root, self._standing.space, by_hand=self._by_hand)
        return self._agent

    def say(
        self,
        role: Role,
        content: str | Sequence[Block] = (),
        *,
        id: str | None = None,
        tool_calls: Sequence[ToolCall] = (),
        tool_results: Sequence[ToolResult] = (),
        vendor_metadata: str | None = None,
        provider: str | None = None,
        model: str | None = None,
    ) -> str:
        """Add a message of text or blocks to the conversation and return its id; None makes a new id."""
        blocks = (Text(content),) if isinstance(content, str) else parts("content", content)
        asked, results = parts("tool_calls", tool_calls), parts("tool_results", tool_results)
        message = Message(role, blocks, asked, results, vendor_metadata)
        return self.add(message, id=id, provider=provider, model=model)

    def add(
        self,
        message: Message,
        *,
        id: str | None = None,
        provider: str | None = None,
        model: str | None = None,
    ) -> str:
        """Add a whole message and return its id.

        Raises `Conflict` if the timeline has a message with that id, or if it answers a call of the ledger that is
        not settled.
        """
        if self._ops is None:
            self._open()
        encoded = plain_body(message)
        if encoded is None:
            check_message(message)
        if message.tool_results:
            check_answers(self._standing.space, message.tool_results)
        if provider is not None:
            names.check_label("provider", provider)
        if model is not None:
            names.check_label("model", model)
        if id is None:
            id = self._mint() if self._earlier_messages else self._standing.space.ids()
            self._minted.add(id)
        else:
            self._check_new(names.check_id("message id", id))
        if encoded is None and has_media(message):
            message, staged = media.brought_in(self._standing.space, message)
            for each in staged:
                self._bodies += each.objects
                self._uploads += each.cells
        body = Object.of(Kind.BODY, encode_message(message) if encoded is None else encoded)
        self._bodies.append(body)
        vendor = None if message.vendor_metadata is None else journal.vendor_of(message)
        if vendor is not None:
            self._bodies.append(vendor)
        self._events.append(
            MessageAppended(
                id=id,
                role=message.role,
                body=body.digest,
                size=len(body.body),
                vendor=vendor.digest if vendor else None,
                vendor_size=len(vendor.body) if vendor else 0,
                provider=provider,
                model=model,
            )
        )
        if self._is_chain:
            self._link()
        return id

    def name(self, name: str) -> None:
        """Give the commit a name that another framework has for it, such as `langgraph:1ef0…`: `framework:id`.

        The name is then accepted wherever a moment is; where several commits of a timeline have it, it means the
        newest.  A block may give several names, and needs no other change.  In a chain the name goes to the commit of
        the next write.
        """
        self._open()
        names.check_moment_name(name)
        event = MomentNamed(id=self._standing.space.ids(), name=name)
        self._events.append(event)
        self._minted.add(event.id)

    def retract(self, message: str) -> None:
        """Take a message back: the transcript and what models are shown leave it out from here on; state stays.

        Raises `NotFound` if the timeline has no such message, or has taken it back already.
        """
        self._open()
        space = self._standing.space
        linked = [event for link in self._links for event in link.events]
        events, asked = [*linked, *self._events], names.check_id("message id", message)
        said = [
            at for at, each in enumerate(events) if isinstance(each, MessageAppended) and each.id == asked
        ]
        is_new, since = bool(said), events[said[-1] :] if said else events
        said_by = () if is_new else space.engine.labelled(space.name, asked)
        here = [digest for digest in said_by if is_ancestor(space, digest, self._base)]
        is_gone = any(isinstance(each, MessageRetracted) and each.message in (None, asked) for each in since)
        if is_gone or not (is_new or (here and not is_retracted(space, asked, here[-1], self._base))):
            raise NotFound(
                f"there is no message '{asked}' in the transcript of '{self._standing.timeline}'; nothing was written.",
                code="message_not_found",
                message_id=asked,
            )
        self._retracted(asked)

    def retract_all(self) -> None:
        """Take all earlier messages back: the transcript is empty afterwards; state stays."""
        self._open()
        self._retracted(None)

    def _retracted(self, message: str | None) -> None:
        event = MessageRetracted(id=self._standing.space.ids(), message=message)
        self._events.append(event)
        self._minted.add(event.id)
        self._link()

    def step(self) -> Digest | None:
        """End a commit of a chain of steps here and return its digest; None: there is nothing to commit.

        What follows goes into the next commit.  All of them are one durable write, made when the block is left.
        """
        ops = self._open()
        if self._how.chain != "steps":
            raise Invalid(
                "only a change with chain='steps' has steps; nothing was written.",
                code="not_a_chain_of_steps",
                advice="Give chain='steps' to change().",
            )
        return self._end_step() if ops or self._events else None

    def _begin_chain(self, space: Space) -> Space:
        """Fix what the digests of the commits depend on, and return the space with a cache for their nodes."""
        self._at = space.clock()
        self._tip = None if self._base is None else space.step(self._base)
        if self._earlier is None and self._ledger is None and self._standing.agent is not None:
            asked = self._standing.asked[0]
            self._take_beside(asked, space.engine.answers(asked.beside))
        if self._by_hand and self._standing.agent is not None:
            held = leases.current(space, self._standing.timeline)
            self._run = held.run if held else None
        return msgspec.structs.replace(space, cache=NodeCache())

    def _link(self) -> Digest | None:
        return self._end_step() if self._is_chain else None

    def _end_step(self) -> Digest:
        patched, self._ops = self._open().split()
        proposal = self._gathered(patched)
        self._events, self._bodies, self._uploads, self._minted = [], [], [], set()
        assert self._at is not None
        self._tip, _ = writer.next_step(self._standing.space, self._tip, proposal, self._at)
        number = len(self._links)
        digest = self._wrote[number] if number < len(self._wrote) else self._tip.digest
        self._links.append(proposal)
        self._commits = (*self._commits, digest)
        return digest

    def _read_head(self) -> Head:
        # Not `reader.head_of`, which raises for a removed thread: a writer gets `StaleHead` on leaving the block.
        space = self._standing.space
        hold = space.engine.hold(space.name, self._standing.timeline)
        return hold.head if hold else Head(self._standing.timeline, 0, None)

    def _known(self, head: Head) -> Head:
        """Return a head that was read earlier; raises `StaleHead` if the thread was removed and begun again since."""
        if head.commit is not None and self._standing.space.find(head.commit) is None:
            raise StaleHead(head, self._read_head())
        return head

    def _go_back(self, earlier: Recorded) -> None:
        """Read from where the earlier commit of this op_id read: same parent, same ids, same agent's map."""
        commit = earlier.receipt.heads[0].commit if earlier.receipt.heads else None
        if commit is None:
            return
        steps = self._written_by(earlier, commit)
        reads = steps[0].commit.reads
        self._base = steps[0].commit.first_parent
        self._sight = AgentMapView(self._standing.agent_line, reads.agent_commit, reads)
        self._wrote = [step.digest for step in steps]
        events = [event for step in steps for event in step.changeset.events]
        self._earlier_messages = [event.id for event in events if isinstance(event, MessageAppended)]

    def _written_by(self, earlier: Recorded, commit: Digest) -> list[Step]:
        """Read the commits of an earlier write, oldest first; only one, if it was no change of this timeline."""
        space, version = self._standing.space, earlier.receipt.heads[0].version
        moves = space.engine.moves(space.name, self._standing.timeline, before=version + 1, limit=1)
        steps = [space.step(commit)]
        if not moves or not is_ancestor(space, moves[0].from_, commit):
            return steps  # a fork, a promotion or an undo: leaving the block raises `OpReused`
        while (parent := steps[-1].commit.first_parent) is not None and parent != moves[0].from_:
            steps.append(space.step(parent))
        return steps[::-1]

    def _mint(self) -> str:
        """Return an id for the next message of a repeated block: the one that it had the first time."""
        earlier = self._earlier_messages
        events = [*self._events, *(event for link in self._links for event in link.events)]
        number = sum([isinstance(event, MessageAppended) for event in events])
        return earlier[number] if number < len(earlier) else self._standing.space.ids()

    def _seen(self) -> AgentMapView:
        """Return the agent's map as this block sees it."""
        if self._sight is None:
            assert self.head is not None
            standing = self._standing
            if standing.agent is None:
                self._sight = standing.sight(self.head)
            else:
                agent, *_, agents = standing.space.engine.answers(standing.asked[0].beside)
                self._check_agent(agents)
                self._sight = standing.sight(self.head, agent)
        return self._sight

    def _take_beside(self, asked: ChangeQuestions, answers: Sequence[Any]) -> None:
        agent, self._ledger, self._lease, agents = answers
        if agents is not None:  # the thread was handed off
            self._check_agent(agents)
        if self._sight is None and self.head is not None:
            seen, sight = asked.sight
            if sight is None or agent is None or agent is not seen:
                sight = self._standing.sight(self.head, agent)
                asked.sight = agent, sight
            self._sight = sight

    def _check_agent(self, agents: Cell | None) -> None:
        if self.head and self._by_hand and self._earlier is None:  # a repeated block writes nothing
            check_whose(self._standing, self.head, agents)

    def _check_new(self, id: str) -> None:
        space = self._standing.space
        linked = (event for link in self._links for event in link.events)
        here = any(event.id == id for event in (*self._events, *linked))
        if here or any(is_ancestor(space, at, self._base) for at in space.engine.labelled(space.name, id)):
            raise Conflict(
                f"this timeline has a message '{id}' already; nothing was written.",
                code="message_exists",
                advice="Give it another id.",
                message_id=id,
            )

    def _finish(self, ops: Ops) -> None:
        """Commit what the block did, if it did anything."""
        head, standing, how = self.head, self._standing, self._how
        assert head is not None
        agent_ops = None if self._agent is None else self._agent._close()  # pyright: ignore[reportPrivateUsage]
        patched = None
        if self._events or ops or agent_ops:
            if self._ledger is None and self._earlier is None and standing.agent is not None:
                # Read in one call what the commit depends on beside its head, unless that was read with it.
                # Entering the block has looked whether others have written, and the fences notice who does now.
                asked = standing.asked[0]
                self._take_beside(asked, standing.space.engine.answers(asked.beside, fresh=False))
            patched = ops.finish()
            self._op_id = how.op_id or standing.space.ids()
            if how.op_id is None and not how.chain and not agent_ops and self._is_committed(head, patched):
                return
        self._finish_with(head, patched, agent_ops)

    def _is_committed(self, head: Head, patched: Patched) -> bool:
        """Commit a block in the short way; False, with nothing written, if `_finish_with` has to do it."""
        standing, ledger, lease = self._standing, self._ledger, self._lease
        space, fences = standing.space, standing.space.fences
        if self._uploads or patched.cells or ledger is None or standing.agent is None:
            return False
        if self._by_hand:
            if (lease is not None and lease.value is not None) or head.timeline.startswith(leases.OWN):
                return False  # a run holds the timeline, or may hold it
            fences = (*fences, Fence(leases.LEASE + head.timeline, lease.revision if lease else 0))
        try:
            receipt = writer.commit_ordinary(
                space,
                head,
                reason=self._how.reason,
                run=self._run,
                author=self._how.author,
                events=tuple(self._events),
                bodies=self._bodies,
                patched=patched,
                outside=self._seen().reads,
                ledger=ledger,
                fences=fences,
                op_id=self._op_id,
            )
        except Conflict:
            return False
        if receipt is None:
            return False
        self.head, self.receipt = receipt.heads[0], receipt
        self._commits = (self.head.commit,) if self.head.commit else ()
        if self._agent is not None:
            self._after()
        return True

    def _finish_with(self, head: Head, patched: Patched | None, agent_ops: Ops | None) -> None:
        """Commit a block, whatever it did: repeated, as a chain, with changes of the agent's map, or rebased."""
        standing, last = self._standing, None
        if patched is not None:
            last = self._gathered(patched, *(self._for_agent(agent_ops) if agent_ops else ()))
        proposals = self._links if last is None else (*self._links, last)
        if self._earlier is not None:
            self._repeat(self._earlier, proposals)
        elif proposals:
            space = standing.space
            self._op_id = self._op_id or self._how.op_id or space.ids()
            if self._by_hand and standing.agent is not None:
                done = commit_beside_run(space, head, proposals, self._commit_on, self._lease)
            else:
                done = self._commit_on(space, head, proposals)
            self.head, self.receipt = done.head, done.receipt
        if last is not None and self.head is not None and self.head.commit is not None:
            self._commits = (*self._commits, self.head.commit)
        if self.receipt is not None and (self._agent is not None or standing.agent is None):
            self._after()

    def _commit_on(self, space: Space, head: Head, placed: Sequence[Proposal]) -> CommitOutcome:
        how = self._how
        if how.chain and any(each.run != self._run or each.ledger is not self._ledger for each in placed):
            raise chain_interrupted(head.timeline)
        return writer.commit(
            space,
            head,
            *placed,
            op_id=self._op_id,
            on_conflict=how.on_conflict,
            repeatable=how.op_id is not None,
            at=self._at,
        )

    def _repeat(self, earlier: Recorded, proposals: Sequence[Proposal]) -> None:
        timeline = self._standing.timeline
        if not proposals or writer.intent_of(timeline, proposals) != earlier.intent:
            raise OpReused(earlier.receipt.op_id)
        self.head, self.receipt = earlier.receipt.heads[0], earlier.receipt

    def _gathered(self, patched: Patched, *others: Object) -> Proposal:
        """Return a commit of the edits and messages since the last one."""
        return Proposal(
            reason=self._how.reason,
            root=patched.root,
            patch=patched.patch,
            events=tuple(self._events),
            minted=frozenset(self._minted),
            objects=(*self._bodies, *patched.objects, *others),
            cells=(*patched.cells, *self._uploads),
            reads=self._reads or UNTOUCHED,
            outside=self._seen().reads,
            ledger=self._ledger,
            run=self._run,
            author=self._how.author,
        )

    def _for_agent(self, ops: Ops) -> tuple[Object, ...]:
        """Record the changes of the agent's map as an event, and return the objects with their values."""
        agent = self._standing.agent
        assert agent is not None
        patched = ops.finish()
        body = encode_patch(patched.patch)
        event = AgentChanged(
            id=self._standing.space.ids(),
            agent=agent.label,
            timeline=self._seen().line,
            patch=body.digest,
            size=len(body.body),
        )
        self._events.append(event)
        self._minted.add(event.id)
        return (body, *(each for each in patched.objects if each.kind is not Kind.NODE))
