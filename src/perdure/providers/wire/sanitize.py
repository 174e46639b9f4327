"""Makes a request sendable: JSON in UTF-8, with copies of the caller's values.

Half of a character (a lone surrogate, from a reply that was cut or a string that was escaped by hand)
cannot be encoded, and would make an SDK fail before it sends anything.  U+FFFD replaces it, and a loss reports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.model.context import Context
from perdure.model.text import well_formed
from perdure.providers.contract import Loss, Rendered
from perdure.providers.wire.nesting import check_depth
from perdure.providers.wire.options import checked

__all__ = ["detached", "sendable"]


def detached(context: Context) -> tuple[Context, list[Loss]]:
    """Return the same context with tools and options of its own, and the options that are none.

    What a caller does to a request that is made of it changes nothing else.
    """
    for part in (context.options, *(tool.parameters for tool in context.tools)):
        check_depth(part, "an option or a schema", "nothing was rendered")
    tools = [msgspec.structs.replace(tool, parameters=_copied(tool.parameters)) for tool in context.tools]
    options, losses = checked(_copied(context.options))
    return msgspec.structs.replace(context, tools=tools, options=options), losses


def sendable(rendered: Rendered, losses: Sequence[Loss] = ()) -> Rendered:
    """Return the same request, with every half of a character replaced, and further losses in its report."""
    body, report = rendered.body, (*losses, *rendered.losses)
    try:
        msgspec.json.encode(body)
    except UnicodeEncodeError:
        why = "half of a character cannot be sent; U+FFFD stands for it"
        loss = Loss(kind="repaired", where="messages", what="lone surrogate", why=why)
        return msgspec.structs.replace(rendered, body=_mended(body), losses=(*report, loss))
    except (OverflowError, TypeError):
        pass  # what the quick encoder does not know is for the SDK's to say
    return msgspec.structs.replace(rendered, losses=report) if losses else rendered


def _copied(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _copied(each) for name, each in cast("Mapping[str, Any]", value).items()}
        case list() | tuple():
            return [_copied(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _mended(value: Any) -> Any:
    match value:
        case str():
            return well_formed(value)
        case Mapping():
            held = cast("Mapping[str, Any]", value)
            return {_mended(name): _mended(each) for name, each in held.items()}
        case list() | tuple():
            return [_mended(each) for each in cast("list[Any]", value)]
        case _:
            return value
