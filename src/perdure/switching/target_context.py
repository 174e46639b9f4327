"""Builds what a backend is shown, or would be shown, of a conversation.

A run, a preview and a check before a switch build the same request for a context from the same data: the
agent's frame and limits, the timeline, and what is known of the backend.  `AgentView` holds that data, so no
function here needs the agent or the run.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.context import assemble
from perdure.context.assemble import task_state
from perdure.context.budget import Budget, budget_of
from perdure.context.builder import ContextRequest
from perdure.context.limits import ContextLimits
from perdure.context.plan import Plan
from perdure.context.render.notes import RecalledItem
from perdure.errors import Invalid, NotFound
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger import calls, snapshot
from perdure.memory import MemoryForRun, OwnerMemory, for_run
from perdure.memory.owner_memory import Line
from perdure.model.call import SETTLED, CallRecord
from perdure.model.checkpoint import Checkpoint
from perdure.model.context import ToolSpec
from perdure.model.digest import Digest
from perdure.model.recipe import Frame, Sent, decode_frame, decode_recipe
from perdure.providers import registry
from perdure.providers.capabilities import Capability
from perdure.providers.catalog import Catalog
from perdure.providers.profile import BackendProfile, same
from perdure.switching.compatibility import ShownToTarget

__all__ = [
    "AgentView",
    "context_request",
    "last_frame",
    "last_step",
    "memory_for",
    "recalled_items",
    "request_for",
    "shown_to",
]


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent on one timeline, as far as it decides what a backend is shown."""

    space: Space
    timeline: str
    frame: Frame  # the agent's instructions, tools and options, for no backend in particular
    limits: ContextLimits
    models: Callable[[], Catalog]  # reads the catalog of models when it is first needed
    is_native: (
        bool  # True: the policy shows earlier calls as call and result wherever the backend takes calls
    )
    harmless: frozenset[str]  # tools that make no external write
    mcp: frozenset[str]  # tools of MCP servers
    reader: ToolSpec | None  # the tool that reads artifacts; None: the agent has its own
    is_bare: bool  # True: only the agent's name is known, not its code
    memory: OwnerMemory | None = None  # of the owner; None: the thread has none


def context_request(
    view: AgentView,
    budget: Budget,
    frame: Frame,
    at: Digest | None,
    *,
    fresh: bool = False,
    live: bool = False,
    takes_calls: bool = True,
) -> ContextRequest:
    """Return the request for the context of the next step after `at`, without what belongs to one turn.

    `live`: the ledger is read up to now, and not only as far as the commit had read it.
    `takes_calls`: the backend's format carries calls and their results.
    """
    space = view.space
    is_policy_native = view.is_native and takes_calls

    def is_native(maker: str | None) -> bool:
        return is_policy_native or (maker is not None and same(maker, budget.backend, view.models()))

    def derived() -> Checkpoint:
        # Few steps need a checkpoint, and its rules are long.
        from perdure.switching.checkpoint.derive import derive

        ledger = snapshot.now(space) if live else None
        return derive(space, at, to_backend=budget.backend, ledger=ledger, timeline=view.timeline)

    def requested_at(call: str) -> str | None:
        found = calls.find(space, call)
        return found.record.label if found is not None else None

    def result_of(call: str) -> str | None:
        found = calls.find(space, call)
        return found.record.result or found.record.evidence if found is not None else None

    def settled(call: str) -> CallRecord | None:
        found = calls.find(space, call)
        return found.record if found is not None and found.record.state in SETTLED else None

    return ContextRequest(
        frame=frame,
        budget=budget,
        limits=view.limits,
        derive=derived,
        where=requested_at,
        reference=result_of,
        fresh=fresh,
        is_native=is_native,
        harmless=view.harmless,
        settled=settled,
    )


def request_for(
    view: AgentView,
    to: BackendProfile,
    at: Digest | None,
    *,
    fresh: bool,
    checkpoint: Checkpoint | None = None,
) -> ContextRequest:
    """Return the request for what `to` would be shown at a commit.

    `checkpoint` is the one it would begin with; None: it is derived if it is needed.
    """
    sent = None
    if to.target is not None:
        sent = Sent(api=to.target.api, provider=to.target.provider, model=to.target.model)
    frame = msgspec.structs.replace(view.frame, sent=sent, unseen=to.unseen)
    budget = budget_of(to.name, view.limits, frame=frame, models=view.models, window=to.window)
    takes_calls = to.does(Capability.TOOLS) != "none"
    request = context_request(view, budget, frame, at, fresh=fresh, takes_calls=takes_calls)
    derived: Callable[[], Checkpoint] = request.derive if checkpoint is None else lambda: checkpoint
    of_memory = memory_for(view.memory, "", view.limits, (view.space.name, at))
    return msgspec.structs.replace(
        request,
        derive=derived,
        task=task_state(view.space, view.space.root_at(at)),
        reader=view.reader if takes_calls else None,
        recalled=recalled_items(of_memory),
        pins_left_out=of_memory.left_out,
    )


def memory_for(memory: OwnerMemory | None, query: str, limits: ContextLimits, line: Line) -> MemoryForRun:
    """Return what a run at `line` is shown of its owner's memory: what is pinned, and what is found about `query`."""
    if memory is None or limits.memory < 1 or memory.commit is None:
        return MemoryForRun()
    return for_run(memory, query, limit=limits.memory, line=line)


def recalled_items(of_memory: MemoryForRun) -> tuple[RecalledItem, ...]:
    """Return items of memory as a note has them, the pinned ones first."""
    return tuple(
        RecalledItem(each.reference, each.text, each.kind, each.trust, each.at, each.pinned)
        for each in (*of_memory.pinned, *of_memory.found)
    )


def shown_to(
    view: AgentView, to: BackendProfile, at: Digest | None, checkpoint: Checkpoint, *, before: str | None
) -> ShownToTarget:
    """Return the conversation at a commit as `to` would be shown it once it has taken over with that checkpoint.

    `before` is the backend that it takes over from; None: there is none.
    """
    request = request_for(view, to, at, fresh=True, checkpoint=checkpoint)
    if view.is_bare:
        request = _with_tools_of(request, last_frame(view.space, at))
    plan = assemble.plan(view.space, at, request)
    return ShownToTarget(
        context=plan.context,
        history=plan.history,
        omitted=plan.omitted,
        tokens=plan.tokens,
        budget=plan.budget,
        fits=plan.fits,
        turns=_turns_for_want_of_room(plan, request),
        from_api=_api(before),
        mcp=view.mcp,
        cuts=plan.cuts,
        lost=plan.losses,
        calls_in_words=_calls_in_words(plan, checkpoint),
        calls_native=len(plan.calls_native),
    )


def last_step(space: Space, at: Digest | None) -> Digest:
    """Return the commit of the last message up to `at` that a model wrote in a run; raise `NotFound` if there is none."""
    for step in reader.recent(space, at):
        if assemble.spoke(step) is not None:
            return step.digest
    raise NotFound(
        f"no model has spoken on '{space.label}' up to there, or what it was shown was not recorded; nothing was "
        "rebuilt.",
        code="recorded_step_missing",
        advice="See what the next step would be shown with plan().",
        thread=space.label,
    )


def last_frame(space: Space, at: Digest | None) -> Frame | None:
    """Return the frame of the last step up to `at`; None if it is not recorded."""
    try:
        spoke = assemble.spoke(space.step(last_step(space, at)))
        assert spoke is not None, "the last step has a message of a model"
        assert spoke.context is not None, "and that message names its context"
        return decode_frame(space.body(decode_recipe(space.body(spoke.context)).frame))
    except NotFound:  # no model has answered, or the frame was forgotten
        return None


def _with_tools_of(request: ContextRequest, frame: Frame | None) -> ContextRequest:
    """Return the request with the tools and options of an earlier frame."""
    if frame is None:
        return request
    known = msgspec.structs.replace(frame, sent=request.frame.sent, unseen=request.frame.unseen)
    return msgspec.structs.replace(request, frame=known)


def _calls_in_words(plan: Plan, checkpoint: Checkpoint) -> int:
    """Count the earlier calls of the timeline that are shown in words: one by one, or only by the checkpoint."""
    listed = {each.call for each in checkpoint.calls if not each.elsewhere}
    counted = (
        checkpoint.calls_before + checkpoint.earlier_others + sum(each.count for each in checkpoint.earlier)
    )
    here = len(listed | set(plan.calls_in_words)) + counted
    return max(len(plan.calls_in_words), here - len(plan.calls_native))


def _turns_for_want_of_room(plan: Plan, request: ContextRequest) -> int | None:
    """Count the turns that are shown, if more would be shown with more room; None: room is not the limit."""
    shown = len([item for item in plan.of(4) if item.included])
    left = any(not item.included for item in plan.of(7))
    return shown if left and shown < request.limits.turns else None


def _api(backend: str | None) -> str | None:
    try:
        return None if backend is None else registry.target(backend).api
    except (NotFound, Invalid):
        return None
