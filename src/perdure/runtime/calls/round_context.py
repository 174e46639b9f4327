"""The desk of a live run: what its rounds of calls need at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from perdure.history.space import Space
from perdure.history.tree import EMPTY
from perdure.ledger import call_identity
from perdure.ledger.calls import Changes
from perdure.model.call import CallRecord
from perdure.model.digest import Digest, Kind, Object
from perdure.model.effect import Reach
from perdure.model.message import ToolCall
from perdure.runtime.agent.builtin_tools import BUILT_IN
from perdure.runtime.calls.pending_call import PendingCall
from perdure.runtime.events import CallProgress
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools.arguments import Arguments
from perdure.runtime.tools.call import Call, Ruling
from perdure.runtime.tools.call_state import CallStateView
from perdure.runtime.tools.tool import Tool

__all__ = ["RoundContext", "args_body", "fingerprint_for"]

_T = TypeVar("_T")


class RoundContext:
    """A live run as its rounds see it."""

    def __init__(
        self,
        env: RunEnvironment,
        journal: Journal,
        backend: str | None,
        ours: Callable[[], bool],
        *,
        origin: str | None = None,
    ) -> None:
        """Work for `journal`; `ours` says whether the lease is still held, by a clock that cannot be turned."""
        self.label = ""  # what will name the commit of this round's results
        self.origin = origin  # of its calls; None: a run
        self.env, self.journal, self.backend = env, journal, backend
        self.toolbox = {**BUILT_IN, **env.agent.toolbox}
        self.ours = ours
        self.waited = False  # whether its run goes on from waiting: then nothing was under way
        self.holder = env.space.engine.holder()

    @property
    def speaks(self) -> bool:
        """Whether the conversation is told what its calls came to: nobody there asked for a call by hand."""
        return self.origin is None and bool(self.label)

    @property
    def space(self) -> Space:
        """The thread's space, fenced by the lease."""
        return self.journal.space

    @property
    def epoch(self) -> int:
        """Of the lease."""
        return self.journal.lease.epoch if self.journal.lease else 0

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do blocking work."""
        return await self.env.run_blocking(work)

    def tell(self, pending_call: PendingCall, state: str | None = None) -> None:
        """Tell whoever watches how far a call has come; None: as far as its record says, which is durable then."""
        feed = self.journal.feed
        if feed.watched:
            feed.tell(
                CallProgress(pending_call.call.id, pending_call.call.name, state or pending_call.record.state)
            )

    def now(self) -> int:
        """µs since 1970, UTC."""
        return self.env.space.clock()

    def record(
        self,
        call: ToolCall,
        label: str,
        tool: Tool | None,
        arguments: Arguments | None,
        vendor_id: str | None,
    ) -> CallRecord:
        """What is known of a call that the model has just asked for."""
        now = self.now()
        reach = tool.reach if tool else Reach()
        body = args_body(call.args)
        return CallRecord(
            id=call.id,
            tool=call.name,
            state="proposed",
            args=body.digest,
            args_size=len(body.body),
            at=now,
            fingerprint=fingerprint_for(tool, arguments),
            effect=reach.effect,
            idempotent=reach.idempotent,
            version=tool.version if tool else None,
            key=self._key(call.id, tool, arguments),
            key_scope=tool.key_scope if tool else "thread",
            timeline=self.env.timeline,
            run=self.journal.run,
            label=label,
            backend=self.backend,
            vendor_id=vendor_id,
            origin=self.origin,
        )

    def starting(self, tool: Tool, record: CallRecord) -> Changes:
        """What a start says of a call: who makes it, and with the first one how long its key stands."""
        changes: Changes = {"epoch": self.epoch, "holder": self.holder}
        if tool.key_lifetime is not None and record.key_until is None:
            now = self.space.engine.instant()
            changes["key_until"] = now.at + int(tool.key_lifetime.total_seconds() * 1_000_000)
            changes["key_clock"] = now.clock
        return changes

    def call(
        self, pending_call: PendingCall, root: Digest, *, attempt: int, ruling: Ruling | None = None
    ) -> tuple[Call, CallStateView]:
        """The handle that a tool gets for one attempt, and the state behind it."""
        record = pending_call.record
        standing = self.env.standing
        agent = None
        if standing.agent is not None:
            agent = (standing.agent, self.journal.reads.agent_root or EMPTY)
        state_view = CallStateView(
            record.id,
            self.env.space,
            root,
            agent=agent,
            defaults=standing.defaults,
            call_scoped=[each.prefix for each in self.env.agent.declared if each.scope == "call"],
            memory=self.env.memory,
            line=(self.env.space.name, self.journal.head.commit),
        )
        handle = Call(
            id=record.id,
            tool=record.tool,
            key=record.key or "",
            attempt=attempt,
            arguments=pending_call.arguments.normal if pending_call.arguments else {},
            decision=ruling,
            state_view=state_view,
        )
        return handle, state_view

    def _key(self, call: str, tool: Tool | None, arguments: Arguments | None) -> str:
        space = self.env.space
        if tool is None or tool.key is None or arguments is None:
            return call_identity.default_key(space.label, call)
        return call_identity.templated_key(
            tool.key,
            dict(arguments.normal),
            agent=self.env.agent.name,
            thread=space.label,
            scope=tool.key_scope,
        )


def args_body(args: str) -> Object:
    """The body that holds raw arguments."""
    return Object.of(Kind.BODY, args.encode("utf-8", "surrogatepass"))


def fingerprint_for(tool: Tool | None, arguments: Arguments | None) -> str:
    """What a call means: tool, version and arguments; empty where they were refused."""
    if tool is None or arguments is None:
        return ""
    return call_identity.fingerprint_of(tool.name, tool.version, dict(arguments.normal))
