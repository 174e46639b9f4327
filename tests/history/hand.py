"""A hand that writes histories: one space, a clock that ticks, ids that count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from perdure.engines.contract import Engine
from perdure.engines.memory import MemoryEngine
from perdure.history import merge, reader, timelines
from perdure.history.changes.patch_builder import Ops
from perdure.history.changes.values import read
from perdure.history.merge import Taken, Terms
from perdure.history.space import Space
from perdure.history.tree import NodeCache
from perdure.history.writer import Proposal, commit
from perdure.model.canonical import Json
from perdure.model.commit import RunMeta
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import Event, MessageAppended, ToolCallRequested
from perdure.model.head import MAIN, Head
from perdure.model.limits import Limits
from perdure.model.merge_rules import Side
from perdure.model.message import Message, Role, Text, encode_message

SECOND = 1_000_000


class Hand:
    """Writes to one space of an engine, of its own if none is given."""

    def __init__(
        self, engine: Engine | None = None, name: str = "thread:1", limits: Limits | None = None
    ) -> None:
        self.engine = engine or MemoryEngine()
        self.now = 0
        self._numbers = count(1)
        self.space = Space(
            engine=self.engine,
            name=name,
            label=name.removeprefix("agent:"),
            clock=self._tick,
            ids=lambda: f"id-{name}-{next(self._numbers):06d}",
            cache=NodeCache(),
            limits=limits or Limits(),
        )

    def _tick(self) -> int:
        self.now += SECOND
        return self.now

    def head(self, timeline: str = MAIN) -> Head:
        """Where the timeline stands."""
        return reader.head_of(self.space, timeline)

    def write(
        self,
        put: Mapping[str, object] | None = None,
        *,
        delete: Iterable[str] = (),
        clear: Iterable[str] = (),
        edit: Iterable[tuple[str, str, tuple[str | int, ...], object]] = (),
        said: Iterable[Message] = (),
        events: Iterable[Event] = (),
        objects: Iterable[Object] = (),
        timeline: str = MAIN,
        run: str | None = None,
        backend: str | None = None,
        reason: str = "by hand",
        author: str | None = None,
    ) -> Digest:
        """Make one commit."""
        head = self.head(timeline)
        ops = Ops(self.space, self.space.root_at(head.commit))
        for path in delete:
            ops.delete(path)
        for prefix in clear:
            ops.clear(prefix)
        for path, value in (put or {}).items():
            ops.put(path, value)
        for path, verb, at, argument in edit:
            ops.edit(path, verb, at, argument)  # pyright: ignore[reportArgumentType]
        patched = ops.finish()
        spoken = [self._said(message) for message in said]
        proposal = Proposal(
            reason=reason,
            root=patched.root,
            patch=patched.patch,
            events=(*(event for event, _ in spoken), *events),
            objects=(*patched.objects, *(body for _, body in spoken), *objects),
            cells=patched.cells,
            run=run,
            run_meta=RunMeta(backend=backend) if backend else None,
            author=author,
        )
        done = commit(self.space, head, proposal, op_id=self.space.ids())
        assert done.head.commit is not None
        return done.head.commit

    def say(self, role: Role, text: str, *, timeline: str = MAIN, run: str | None = None) -> Digest:
        """Append one message."""
        return self.write(said=[Message(role, (Text(text),))], timeline=timeline, run=run)

    def call(self, call: str, tool: str, *, timeline: str = MAIN) -> Digest:
        """Request one call."""
        args = Object.of(Kind.BODY, b"{}")
        event = ToolCallRequested(id=self.space.ids(), call=call, tool=tool, args=args.digest, size=2)
        return self.write(events=[event], objects=[args], timeline=timeline)

    def forget(self, digests: Iterable[Digest], why: str = "the user asked") -> None:
        """Forget objects, as the space stands now."""
        standing = self.engine.standing(self.space.name)
        self.engine.forget(self.space.name, list(digests), why=why, standing=standing)

    def fork(self, name: str, at: Digest | None) -> Head:
        """Begin a timeline."""
        return timelines.fork(self.space, MAIN, name, at, op_id=self.space.ids())

    def undo(self, timeline: str = MAIN) -> Head:
        """Take back one turn."""
        return timelines.undo(self.space, timeline, op_id=self.space.ids())

    def merge(
        self,
        source: str,
        *,
        into: str = MAIN,
        rules: Mapping[str, str] | None = None,
        prefer: Mapping[str, Side] | None = None,
    ) -> Taken:
        """Merge one timeline into another."""
        other = self.head(source).commit
        assert other is not None
        terms = Terms(op_id=self.space.ids(), reason="merge", rules=rules or {}, prefer=prefer or {})
        return merge.merge(self.space, self.head(into), other, terms, source=source)

    def get(self, path: str, *, timeline: str = MAIN) -> Json | bytes:
        """The value at the head."""
        return value_at(self.space, self.head(timeline).commit, path)

    def state(self, timeline: str = MAIN) -> dict[str, Json | bytes]:
        """Everything at the head."""
        entries = self.space.tree_at(self.head(timeline).commit).entries()
        return {entry.path: read(self.space, entry) for entry in entries}

    def _said(self, message: Message) -> tuple[MessageAppended, Object]:
        body = Object.of(Kind.BODY, encode_message(message))
        event = MessageAppended(id=self.space.ids(), role=message.role, body=body.digest, size=len(body.body))
        return event, body


def value_at(space: Space, at: Digest | None, path: str) -> Json | bytes:
    """The value that a path held at a commit."""
    return read(space, reader.entry_at(space, at, path))


def damage(engine: Engine, space: str, digest: Digest) -> None:
    """Change one bit of a stored object behind the back of a memory engine."""
    assert isinstance(engine, MemoryEngine)
    objects = engine._store.spaces[space].objects
    stored = objects[digest]
    assert isinstance(stored, Object)
    objects[digest] = Object(stored.kind, digest, bytes((stored.body[0] ^ 1,)) + stored.body[1:])
