"""What a call from elsewhere means here: the tool of that name, and its arguments as that tool takes them.

The agent may not have the tool when the call is brought in.  Then it is found out before the first start of
a call to such a tool, so that the repeat guard has something to compare with.
"""

from __future__ import annotations

from holdfast.errors import Conflict, Forgotten, Invalid, Moved
from holdfast.ledger import brought, calls
from holdfast.ledger.calls import Held, Posting
from holdfast.ledger.fingerprint import fingerprint_of
from holdfast.ledger.lease import Lost
from holdfast.model.digest import Digest
from holdfast.runtime.desk import Desk, fingerprint_for
from holdfast.runtime.tool import Tool

__all__ = ["fingerprint_here", "learn"]

_PAGE = 100
_TRIES_MAX = 16


def fingerprint_here(tool: Tool, args: str) -> str:
    """What such a call to `tool` is the same as; arguments that it refuses are like those of no call here."""
    try:
        return fingerprint_for(tool, tool.validated(args))
    except Invalid:
        return fingerprint_of(tool.name, tool.version, args)


def learn(desk: Desk, tool: Tool) -> None:
    """Let the repeat guard know the calls to `tool` that were brought in when nobody here had it."""
    tries = 0
    while found := brought.unlearnt(desk.space, tool.name, limit=_PAGE):
        postings = [_learnt(desk, tool, held) for held in found]
        cells = brought.learning(desk.space, [each.record for each in postings])
        try:
            desk.journal.post(postings[0].also(cells=cells), *postings[1:])
        except Lost:
            raise
        except Moved as moved:
            tries += 1
            if tries == _TRIES_MAX:
                raise Conflict(
                    f"others are changing calls to {tool.name} all the time; nothing was started. Try again."
                ) from moved


def _learnt(desk: Desk, tool: Tool, held: Held) -> Posting:
    return calls.learn(
        held,
        at=desk.now(),
        fingerprint=_fingerprint(desk, tool, held.record.args),
        version=tool.version,
        effect=tool.reach.effect,
        idempotent=tool.reach.idempotent,
    )


def _fingerprint(desk: Desk, tool: Tool, args: Digest) -> str:
    try:
        return fingerprint_here(tool, desk.space.body(args).decode("utf-8", "surrogatepass"))
    except Forgotten:
        return fingerprint_of(tool.name, tool.version, args)  # nothing is left to compare with
