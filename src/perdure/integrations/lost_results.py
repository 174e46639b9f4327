"""Finds results that a framework never stored, so that an equal call is not taken for one that the model wants again.

The ledger has a result before the framework stores it in the conversation.  If the process ends in between, or the run
fails, the conversation goes on without the call, and the model asks for it again under a new id.  The ledger has the first
call as done, and told.  So before an equal call is made, `mark_lost_results` looks for such calls, and records that their
results are in no conversation: the repeat guard then stops the equal call, as it does for one on another branch.

A result is lost if the conversation has gone on without it: messages were added after it, or the process that made the
call has ended.  A result that was in the conversation and was taken back later is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perdure.errors import Forgotten
from perdure.history import reader
from perdure.history.space import Space
from perdure.ledger import repeat_guard, settlement
from perdure.model.call import CallRecord
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended, ToolCallCompleted
from perdure.model.message import decode_message
from perdure.store.thread import Thread

__all__ = ["mark_lost_results"]

_LEDGER_ID = re.compile(r"(.+)~[0-9a-f]{16}(?:~\d+)?\Z", re.DOTALL)


def mark_lost_results(
    thread: Thread, fingerprint: str, *, applies: Callable[[], bool] | None = None, needs_end: bool = False
) -> None:
    """Record that the results of earlier equal calls are in no conversation, if the framework never stored them.

    `applies` says whether the framework stores the run that asks in this thread; None: it does.  With `needs_end` only calls
    count whose process has ended: the framework stores a conversation late, and perhaps on several timelines.
    """
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    # Newest first, up to one that is known: whatever came before that one was looked at when it started.
    for record in repeat_guard.starts(space, fingerprint):
        if record.origin != "call" or record.state != "succeeded" or not record.result_label:
            continue
        if not _is_lost(thread, space, record, needs_end=needs_end) or (applies and not applies()):
            return
        settlement.mark_result_lost(space, record.id)


def _is_lost(thread: Thread, space: Space, record: CallRecord, *, needs_end: bool) -> bool:
    named = _LEDGER_ID.match(record.id)
    has_ended = record.holder is not None and space.engine.gone(record.holder)
    if named is None or (needs_end and not has_ended):
        return False
    id, head = named.group(1), thread.head
    if not _has_gone_on(space, head.commit, record, id, has_ended=has_ended):
        return False
    others = (hold.head for hold in thread.timelines() if hold.head.timeline != head.timeline)
    return not needs_end or not any(_has_result(space, other.commit, id) for other in others)


def _has_gone_on(space: Space, head: Digest | None, record: CallRecord, id: str, *, has_ended: bool) -> bool:
    """True if the line of `head` has the call and went on without a message that has its result."""
    went_on = has_ended
    for step in reader.steps(space, head):
        for event in step.changeset.events:
            if isinstance(event, ToolCallCompleted) and event.call == record.id:
                return went_on
            if isinstance(event, MessageAppended):
                if _is_result(space, event, id):
                    return False
                went_on = True
    return False  # another branch, which the ledger knows


def _has_result(space: Space, head: Digest | None, id: str) -> bool:
    return any(
        isinstance(event, MessageAppended) and _is_result(space, event, id)
        for step in reader.steps(space, head)
        for event in step.changeset.events
    )


def _is_result(space: Space, event: MessageAppended, id: str) -> bool:
    """True if a message has the result of the call that has this id in the framework, or is forgotten and may have it."""
    try:
        message = decode_message(space.body(event.body))
    except Forgotten:
        return True
    return any(result.call_id == id for result in message.tool_results)
