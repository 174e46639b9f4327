"""The request of Ollama's `/api/chat` as its documentation has it: the judge of what is rendered for it."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

__all__ = ["NativeRequest"]


class CalledFunction(TypedDict):
    """What a call calls."""

    name: str
    arguments: dict[str, Any]
    index: NotRequired[int]


class Call(TypedDict):
    """A call of a tool."""

    id: NotRequired[str]
    function: CalledFunction


class SystemMessage(TypedDict):
    """Instructions."""

    role: Literal["system"]
    content: str


class UserMessage(TypedDict):
    """What a user says and shows."""

    role: Literal["user"]
    content: str
    images: NotRequired[list[str]]


class AssistantMessage(TypedDict):
    """What a model said, thought and called."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[Call]]


class ToolMessage(TypedDict):
    """What a call gave."""

    role: Literal["tool"]
    content: str
    tool_name: NotRequired[str]
    tool_call_id: NotRequired[str]
    images: NotRequired[list[str]]


class DeclaredFunction(TypedDict):
    """A function that a model may call."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]


class DeclaredTool(TypedDict):
    """A tool that a model may call."""

    type: Literal["function"]
    function: DeclaredFunction


class Options(TypedDict, total=False):
    """How a model is run."""

    num_keep: int
    seed: int
    num_predict: int
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_last_n: int
    temperature: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    stop: list[str]
    num_ctx: int
    num_batch: int
    num_gpu: int
    main_gpu: int
    use_mmap: bool
    num_thread: int


class NativeRequest(TypedDict):
    """A request."""

    model: str
    messages: list[SystemMessage | UserMessage | AssistantMessage | ToolMessage]
    tools: NotRequired[list[DeclaredTool]]
    format: NotRequired[Literal["json", ""] | dict[str, Any]]
    options: NotRequired[Options]
    stream: NotRequired[bool]
    think: NotRequired[bool | Literal["low", "medium", "high"]]
    keep_alive: NotRequired[str | int | None]
    truncate: NotRequired[bool]
    shift: NotRequired[bool]
    logprobs: NotRequired[bool]
    top_logprobs: NotRequired[int]
