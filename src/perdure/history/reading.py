"""Values as the types that a program asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.errors import Invalid
from perdure.history.values import Value
from perdure.model import canonical

__all__ = ["declared", "typed"]


def typed(path: str, value: Value, type: Any) -> Any:
    """`value` as a `type`; None is as it is.  Raises `Invalid`, naming the path, if it is not one."""
    if type is None or (isinstance(value, bytes) and type is bytes):
        return value
    if isinstance(value, bytes) or type is bytes:
        held = "bytes" if isinstance(value, bytes) else "a JSON document"
        raise Invalid(
            f"{path} holds {held}, not {_name(type)}; nothing was returned. Ask for it without a type, or as what it is."
        )
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise Invalid(
            f"{path} does not hold {_name(type)}: {error}; nothing was returned. Ask for it without a type, or put "
            "what fits."
        ) from error
    except TypeError as error:
        raise Invalid(
            f"{path} cannot be asked for as {_name(type)}: {error}; nothing was returned."
        ) from error


def declared(defaults: Mapping[str, bytes], path: str, type: Any) -> Any:
    """What `path` is declared to be read as while it is absent, a new object each time; unset if nothing is."""
    body = defaults.get(path)
    return msgspec.UNSET if body is None else typed(path, canonical.decode(body), type)


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)
