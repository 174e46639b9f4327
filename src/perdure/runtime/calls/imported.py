"""What a call from elsewhere means here: the tool of that name, and its arguments as that tool takes them.

A vendor that does not take a tool's name is told another, and calls the tool by that; so the tool is also
found by what the vendor's format makes of its name, where no other tool has or gets the same.

The agent may not have the tool when the call is brought in.  Then it is found out before the first start of
a call to such a tool, so that the repeat guard has something to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from perdure.errors import Conflict, Forgotten, Invalid, Moved
from perdure.ledger import calls, repeat_guard
from perdure.ledger.call_identity import fingerprint_of
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model.call import CallState
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest
from perdure.model.message import Message, Text
from perdure.providers import registry
from perdure.runtime.calls.round_context import RoundContext, fingerprint_for
from perdure.runtime.session.lease import Lost
from perdure.runtime.tools.tool import Tool

__all__ = ["by_spelling", "fingerprint_here", "learn"]

_PAGE = 100
_TRIES_MAX = 16
_EVERYWHERE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")  # names that all shipped formats take as they are
_SPELLINGS_MAX = 4096  # that are remembered


def by_spelling(toolbox: Mapping[str, Tool], api: str) -> dict[str, Tool]:
    """Tools by what that format calls them, where that is not their name; none that could be another tool."""
    claims: dict[str, list[Tool]] = {}
    for tool in toolbox.values():
        claims.setdefault(_spelled(tool.name, api), []).append(tool)
    return {name: tools[0] for name, tools in claims.items() if len(tools) == 1 and name not in toolbox}


def fingerprint_here(tool: Tool, args: str) -> str:
    """What such a call to `tool` is the same as; arguments that it refuses are like those of no call here."""
    try:
        return fingerprint_for(tool, tool.validated(args))
    except Invalid:
        return fingerprint_of(tool.name, tool.version, args)


def learn(round_context: RoundContext, tool: Tool) -> None:
    """Let the repeat guard know the calls to `tool` that were brought in when nobody here had it."""
    for name in (tool.name, *_spellings(round_context.toolbox, tool)):
        _learn(round_context, tool, name)


def _learn(round_context: RoundContext, tool: Tool, name: str) -> None:
    """The same for the calls that were brought in under one name."""
    tries = 0
    while found := repeat_guard.unlearnt(round_context.space, name, limit=_PAGE):
        transitions = [_learnt(round_context, tool, held) for held in found]
        cells = repeat_guard.learning(round_context.space, [each.record for each in transitions])
        try:
            round_context.journal.post(transitions[0].also(cells=cells), *transitions[1:])
        except Lost:
            raise
        except Moved as moved:
            tries += 1
            if tries == _TRIES_MAX:
                raise Conflict(
                    f"others are changing calls to {tool.name} all the time; nothing was started. Try again."
                ) from moved


def _spellings(toolbox: Mapping[str, Tool], tool: Tool) -> list[str]:
    """What the formats call a tool, each once, where that is not its name and means no other tool."""
    if _EVERYWHERE.fullmatch(tool.name):
        return []
    found = (by_spelling(toolbox, api).items() for api in registry.APIS)
    return list(dict.fromkeys(here for names in found for here, meant in names if meant.name == tool.name))


@lru_cache(maxsize=_SPELLINGS_MAX)
def _spelled(name: str, api: str) -> str:
    """What a tool is called in requests of that format, if it is alone there."""
    alone = Context(messages=(Message("user", (Text("-"),)),), tools=(ToolSpec(name=name),))
    names = registry.adapter(api).render(alone, model="-").names
    return next((here for here, meant in names.items() if meant == name), name)


def _learnt(round_context: RoundContext, tool: Tool, held: VersionedCall) -> CallTransition:
    """What is known of an imported call once its tool is; an error of one that only reads is a failure."""
    record = held.record
    is_error = record.state == "unknown" and record.result is not None
    states: tuple[CallState, ...] = ("requested", "failed") if is_error and not tool.reach.guarded else ()
    return calls.advance(
        held,
        *states,
        at=round_context.now(),
        fingerprint=_fingerprint(round_context, tool, held.record.args),
        version=tool.version,
        effect=tool.reach.effect,
        idempotent=tool.reach.idempotent,
    )


def _fingerprint(round_context: RoundContext, tool: Tool, args: Digest) -> str:
    try:
        return fingerprint_here(tool, round_context.space.body(args).decode("utf-8", "surrogatepass"))
    except Forgotten:
        return fingerprint_of(tool.name, tool.version, args)  # nothing is left to compare with
