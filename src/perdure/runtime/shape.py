"""Shapes: what an object holds, for those that hold something that JSON can say."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

__all__ = ["opened"]


def opened(value: Any) -> Any:
    """The fields, by the names that JSON knows them by, of a struct, a dataclass or a pydantic model, else `value`.

    All of them: encoders leave out what a struct says it omits, and what a dataclass was never given.
    """
    if isinstance(value, type):
        return value
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {str(config.tag_field): config.tag}
        return tag | {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(value)}
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    return value
