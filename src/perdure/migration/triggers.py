"""Triggers: what makes a run go on to the next backend of its route."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import Invalid, NotFound, PerdureError, Unavailable, Unsupported
from perdure.migration.facing import MEDIA, Facing
from perdure.migration.route import Trigger
from perdure.model.context import Context
from perdure.model.message import File, Image
from perdure.providers.capabilities import Capability
from perdure.providers.transport.faults import (
    AccessRefused,
    ContentRefused,
    ContextTooLong,
    RateLimited,
    RequestRejected,
)
from perdure.providers.wire.media import kind_of
from perdure.providers.wire.server_tools import is_account

__all__ = ["lacking", "needs", "trigger_of"]


def trigger_of(error: BaseException) -> Trigger | None:
    """What an error of a step is to a route; None: nothing that another backend should be asked for."""
    match error:
        case RateLimited():
            return "rate_limit"
        case ContextTooLong():
            return "context"
        case ContentRefused():
            return None  # another backend is no way around a policy
        case RequestRejected() | Unsupported():
            return "capability"
        case Unavailable() | AccessRefused() | NotFound() | Invalid():
            return "error"
        case PerdureError():
            return None
        case Exception():
            return "error"  # whatever a model of the program's own raises
        case _:
            return None


def needs(context: Context) -> frozenset[Capability]:
    """What a backend has to be able to do to be shown this: by what is in it, words aside."""
    found: set[Capability] = set()
    for message in context.messages:
        for block in message.content:
            if isinstance(block, Image):
                found.add(Capability.IMAGES)
            elif isinstance(block, File) and not is_account(block):
                found.add(MEDIA.get(kind_of(block.mime_type, block.uri), Capability.DOCUMENTS))
    if context.tools:
        found.add(Capability.TOOLS)
    return frozenset(found)


def lacking(facing: Facing, wanted: Iterable[Capability | str]) -> tuple[str, ...]:
    """Which of these a backend does not do at all."""
    return tuple(str(each) for each in wanted if facing.does(Capability(each)) == "none")
