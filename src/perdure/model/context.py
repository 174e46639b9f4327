"""Defines the context: the prompt of one step, in no vendor's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from perdure.model.canonical import Json
from perdure.model.message import Message

__all__ = ["VENDOR_TOOLS", "Context", "ToolSpec", "VendorTool"]

# Tools that a vendor declares to its models and a program runs.
VendorTool: TypeAlias = Literal[
    "openai.apply_patch",
    "openai.computer",
    "openai.local_shell",
    "openai.mcp_approval",
    "openai.shell",
    "openai.tool_search",
]
VENDOR_TOOLS: tuple[VendorTool, ...] = get_args(VendorTool)


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the prompt describes it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = {}  # a JSON schema of an object
    strict: bool | None = None  # whether arguments have to fit the schema; None: the backend decides
    serves: VendorTool | None = (
        None  # the vendor's own tool that it implements; for other vendors it is a function
    )


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The system prompt, messages whose calls and results are paired, tools and options."""

    system: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Json] = {}
    earlier: int = 0  # earlier messages of a model that are not shown as they were written
    pending: str | None = None  # the id of an answer that the backend is working on; None: a new request
    is_sent: bool = (
        True  # False: the request is kept as a record, and nothing is mended only for a model to answer
    )
