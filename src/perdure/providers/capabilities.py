"""Names the capabilities of backends; each is supported fully, with loss, or not at all.

Every adapter answers `supports` for each of these names, and for no others.  The level says how
a request carries the thing: `full`, unchanged; `lossy`, in another form, or not always; `none`, not at all,
or only as text that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

__all__ = ["MEANINGS", "Capability", "Level", "Levels", "least"]

Level: TypeAlias = Literal["full", "lossy", "none"]


class Capability(StrEnum):
    """A feature in which formats, servers and models differ; its value is the name that `supports` takes."""

    TEXT = "text"
    IMAGES = "images"
    IMAGE_URLS = "image_urls"
    DOCUMENTS = "documents"
    DOCUMENT_URLS = "document_urls"
    AUDIO = "audio"
    VIDEO = "video"
    TOOLS = "tools"
    PARALLEL_TOOLS = "parallel_tools"
    TOOL_CHOICE = "tool_choice"
    STRICT_TOOLS = "strict_tools"
    TOOL_RESULT_MEDIA = "tool_result_media"
    TOOL_ERRORS = "tool_errors"
    STRUCTURED_OUTPUT = "structured_output"
    JSON_MODE = "json_mode"
    REASONING = "reasoning"
    REASONING_HISTORY = "reasoning_history"
    SERVER_TOOLS = "server_tools"
    COMPUTER_USE = "computer_use"
    CITATIONS = "citations"
    REFUSALS = "refusals"
    SYSTEM = "system"
    MID_SYSTEM = "mid_system"
    CHOICES = "choices"
    STREAMING = "streaming"
    PROMPT_CACHE = "prompt_cache"
    LOGPROBS = "logprobs"
    SEED = "seed"
    STOP = "stop"
    TOP_K = "top_k"


Levels: TypeAlias = Mapping[str, Level]  # by the value of a capability

MEANINGS: Mapping[Capability, str] = {
    Capability.TEXT: "Words of all parties.",
    Capability.IMAGES: "Pictures as bytes, in what a user says.",
    Capability.IMAGE_URLS: "Pictures by a web address, which the vendor fetches.",
    Capability.DOCUMENTS: "Files such as PDFs as bytes, in what a user says.",
    Capability.DOCUMENT_URLS: "Files by a web address, which the vendor fetches.",
    Capability.AUDIO: "Sound as bytes, in what a user says.",
    Capability.VIDEO: "Films as bytes, in what a user says.",
    Capability.TOOLS: "Tools that the program declares, their calls and their results.",
    Capability.PARALLEL_TOOLS: "Several calls in one turn, each with its result.",
    Capability.TOOL_CHOICE: "Saying whether, or which, tool has to be called.",
    Capability.STRICT_TOOLS: "Arguments of calls that are sure to fit the tool's schema.",
    Capability.TOOL_RESULT_MEDIA: "Pictures and files in the result of a call.",
    Capability.TOOL_ERRORS: "A mark on a result that the call failed.",
    Capability.STRUCTURED_OUTPUT: "Answers that fit a JSON schema.",
    Capability.JSON_MODE: "Answers that are JSON of any shape.",
    Capability.REASONING: "The model thinks before it answers, and tells of it.",
    Capability.REASONING_HISTORY: "What it thought goes back to it with the conversation.",
    Capability.SERVER_TOOLS: "Tools that the vendor runs itself, such as a web search, and what they did.",
    Capability.COMPUTER_USE: "The vendor's own tool for screen, mouse and keyboard.",
    Capability.CITATIONS: "Marks in an answer of where its words are from.",
    Capability.REFUSALS: "An answer that was refused is told apart from one that was given.",
    Capability.SYSTEM: "System words before the conversation.",
    Capability.MID_SYSTEM: "System words within the conversation, in their place.",
    Capability.CHOICES: "Several answers to one request.",
    Capability.STREAMING: "Answers that come in pieces.",
    Capability.PROMPT_CACHE: "Marks, or rules of the server, by which the beginning of a request is not read again.",
    Capability.LOGPROBS: "How likely the words of an answer were.",
    Capability.SEED: "A number that makes answers repeatable.",
    Capability.STOP: "Words at which an answer ends.",
    Capability.TOP_K: "A limit on how many next words are considered.",
}

_ORDER: tuple[Level, ...] = ("none", "lossy", "full")


def least(*levels: Level) -> Level:
    """Return the lowest of several levels: a chain does no more than its weakest link."""
    return min(levels, key=_ORDER.index)
