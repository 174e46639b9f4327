"""What can be sent: JSON that is UTF-8, as every server and every SDK wants it.

Half of a character (a lone surrogate, from a reply that was cut or a string that was escaped by hand)
cannot be encoded, and would stop an SDK before anything is sent.  It becomes U+FFFD, and a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast.model.context import Context
from holdfast.providers.contract import Loss, Rendered

__all__ = ["detached", "sendable"]


def detached(context: Context) -> Context:
    """The same context with tools and options of its own: what a caller does to a request changes nothing else."""
    tools = [msgspec.structs.replace(tool, parameters=_copied(tool.parameters)) for tool in context.tools]
    return msgspec.structs.replace(context, tools=tools, options=_copied(context.options))


def sendable(rendered: Rendered) -> Rendered:
    """The same request, with every half of a character replaced."""
    try:
        msgspec.json.encode(rendered.body)
    except UnicodeEncodeError:
        why = "half of a character cannot be sent; U+FFFD stands for it"
        loss = Loss(kind="repaired", where="messages", what="lone surrogate", why=why)
        return Rendered(body=_mended(rendered.body), losses=(*rendered.losses, loss))
    except (OverflowError, TypeError):
        return rendered  # what the quick encoder does not know is for the SDK's to say
    return rendered


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
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case Mapping():
            held = cast("Mapping[str, Any]", value)
            return {_mended(name): _mended(each) for name, each in held.items()}
        case list() | tuple():
            return [_mended(each) for each in cast("list[Any]", value)]
        case _:
            return value
