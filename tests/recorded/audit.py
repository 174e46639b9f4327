"""An audit of a render: what the context holds and the request does not has to be in the losses, and nothing else.

`silent` gives what is absent from the request and named by no loss; `false` gives the losses of what is there
unchanged.  The tables below are the legal transformations: other spellings of the same thing, and fields that
describe an answer or how a request was written, which belong in no request.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from perdure.model.context import Context
from perdure.model.message import File, Image, Message, ReasoningSummary, Text
from perdure.providers.contract import Loss, Rendered
from tests.recorded.leaves import Leaf, Said, given, is_account, walk
from tests.recorded.transformations import EQUAL, REPAIRS, SPELLED, WHOLE

__all__ = ["audited", "false", "silent"]

# Options that say the same as their absence, and how choices are spelled.
_DEFAULTS = {"n": 1, "parallel_tool_calls": True, "temperature": 1, "tool_choice": "auto", "top_p": 1}
_CHOICES = {"required": ("required", "any"), "none": ("none",), "json": ("json", "application/json")}
# Notes of the readers, and settings that a canonical option says too.
_NOTES = frozenset({"endpoint", "strict_by_default", "tool_order", "system", "output_format"})
_AGAIN = frozenset({"enabled", "adaptive", "disabled", "json_schema", "application/json"})
# Keys of vendorMetadata that say whose a message is, how it was written, or how an answer came about.
_BOOKKEEPING = frozenset(
    {
        *("endpoint", "model", "call_ids", "size", "usage", "response_id", "message_id", "store", "asked"),
        *(
            "execution",
            "stop_reason",
            "stop_sequence",
            "stop_details",
            "container",
            "context_management",
            "metrics",
            "trace",
            "live",
        ),
        *("performanceConfig", "serviceTier", "prompt_feedback", "fill", "cut", "ids", "logprobs", "type"),
        *("content", "call", "result", "id", "status", "index", "role", "call_id", "mimeType", "prefix"),
        "mime_type",
        *("avgLogprobs", "finishMessage", "safetyRatings", "tokenCount", "logprobsResult", "json", "source"),
        *("function_call", "custom", "thought", "additionalModelResponseFields"),
    }
)
_CITING = frozenset(
    {"citations", "search_results", "groundingMetadata", "citationMetadata", "urlContextMetadata"}
)
# What a loss of these names may hold, by the keys of vendorMetadata.
_NAMED = {
    "encrypted reasoning": {"encrypted_content", "reasoning_details"},
    "redacted reasoning": {"data", "redactedContent"},
    "thought signature": {"thoughtSignature", "thought_signature", "extra_content"},
}
_TOOLS = frozenset({"server tool", "server-side tool"})
_SERVER_PARTS = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})


def silent(context: Context, rendered: Rendered, *, own: bool = False) -> list[str]:
    """What is absent from the request and named by no loss; `own`: it goes to the server that it came from.

    That server has no field for the citations of its answers, and misses nothing.
    """
    return _silent(_Audit(context, rendered, own=own), list(given(context)))


def false(context: Context, rendered: Rendered) -> list[str]:
    """The losses of what the request holds unchanged."""
    return _false(_Audit(context, rendered))


def audited(
    context: Context, rendered: Rendered, leaves: Sequence[Leaf], *, own: bool = False
) -> tuple[list[str], list[str]]:
    """Both: what is silent, and what is false; `leaves` are all that the context holds, as `given` lists them."""
    audit = _Audit(context, rendered, own=own)
    return _silent(audit, leaves), _false(audit)


def _silent(audit: _Audit, leaves: Sequence[Leaf]) -> list[str]:
    absent = [leaf for leaf in leaves if audit.is_silent(leaf)]
    return [
        f"{leaf.where} {'/'.join(leaf.path)} {leaf.value!s:.60}"
        for leaf in (*absent, *audit.said_less(leaves))
    ]


def _false(audit: _Audit) -> list[str]:
    return [f"{loss.kind} {loss.where} {loss.what}" for loss in audit.losses if not audit.is_real(loss)]


def _at(where: str, pattern: str = "messages") -> tuple[int, str] | None:
    """The number of the message, tool, …, that a place is in, and the rest of the place."""
    found = re.match(rf"{pattern}\[(\d+)\]\.?(.*)", where)
    return (int(found[1]), found[2]) if found else None


def _block_of(message: Message, rest: str) -> object:
    """The block that a place within a message names."""
    found = re.match(r"(?:tool_results\[(\d+)\]\.)?content\[(\d+)\]", rest)
    if found is None:
        return None
    content = message.content if found[1] is None else message.tool_results[int(found[1])].content
    return content[int(found[2])]


class _Audit:
    """One render, and what it was made of."""

    def __init__(self, context: Context, rendered: Rendered, *, own: bool = False) -> None:
        self.citing: frozenset[str] = frozenset() if own else _CITING
        self.context, self.said = context, Said(rendered.body)
        self.losses = rendered.losses
        self.places = {loss.where for loss in rendered.losses}
        # A loss of a whole message accounts for what is in it only where the message is not there.
        self.partial = {"messages"} | {
            loss.where
            for loss in rendered.losses
            if loss.kind != "dropped" and re.fullmatch(r"messages\[\d+\](\.tool_results\[\d+\])?", loss.where)
        }

    # ---- silent losses

    def is_silent(self, leaf: Leaf) -> bool:
        """Whether a leaf is neither in the request nor named by a loss."""
        match leaf.kind:
            case "name":
                tool = str(leaf.value).removeprefix("openai.")  # a tool of OpenAI's own that a program runs
                kinds = (f"{tool}_call", f"{tool}_request")
                found = self.said.words(str(leaf.value)) or any(
                    self.said.pair("type", kind) for kind in kinds
                )
            case "text" | "reasoning":
                found = self._has_words(str(leaf.value))
            case "account":
                is_cited = not self.citing and leaf.path[0] == "groundingMetadata"
                found = is_cited or not isinstance(leaf.value, str) or self.said.words(leaf.value)
            case "media":
                found = self._has_media(str(leaf.value))
            case "args":
                found = self._has_arguments(str(leaf.value))
            case "error":
                found = any(word in self.said.keys for word in ("is_error", "error", "status"))
            case "schema":
                is_custom = self.said.pair("type", "custom")  # such a tool takes text, and has no schema
                is_said = self.said.pair(leaf.key, leaf.value) or self.said.value(leaf.value)
                found = leaf.value is None or is_said or is_custom
            case "option":
                found = self._has_option(leaf)
            case "vendor option":
                return not self._has_vendor_option(leaf) and not self._vendor_option_named(leaf)
            case _:
                return not self._has_metadata(leaf) and not self._metadata_named(leaf)
        return not found and not self._covered(leaf)

    def said_less(self, leaves: Iterable[Leaf]) -> Iterator[Leaf]:
        """Texts of messages that the request says less often than the context does."""
        found = Counter(str(leaf.value).strip() for leaf in leaves if self._is_spoken(leaf))
        for words, count in found.items():
            if count > 1 and self.said.all.count(words) + self.said.quoted(words) < count:
                yield Leaf("messages", "text", (f"{count} times",), words)

    def _is_spoken(self, leaf: Leaf) -> bool:
        spoken = leaf.kind == "text" and leaf.where.startswith("messages")
        return spoken and bool(str(leaf.value).strip()) and not self._covered(leaf)

    def _covered(self, leaf: Leaf) -> bool:
        """Whether a loss is at the leaf's place, above it, or at the leaf itself."""
        path = leaf.path[1:] if leaf.kind == "option" else leaf.path
        exact = ".".join((leaf.where, *path))
        return leaf.where in self.places or any(
            leaf.where.startswith((f"{each}.", f"{each}["))
            or (exact.startswith(each) and each.startswith(leaf.where))
            for each in self.places - self.partial
        )

    def _has_words(self, words: str) -> bool:
        """Whether words are said: whole, as JSON, or line by line where a vendor's own block has a field for each."""
        whole = self.said.words(words) or self.said.json(words)
        return whole or all(self.said.words(line) for line in words.splitlines())

    def _has_arguments(self, text: str) -> bool:
        """Whether arguments are said: whole, or one by one as the fields of an item of the vendor's own."""
        if self.said.words(text) or self.said.json(text):
            return True
        try:
            leaves = list(walk(json.loads(text)))
        except (ValueError, RecursionError):
            return False
        return bool(leaves) and all(self.said.value(value) for _, value in leaves)

    def _has_media(self, uri: str) -> bool:
        if uri.startswith("file-id://"):
            return self.said.words(uri.split("/", 3)[3])
        if not uri.startswith("data:"):
            return self.said.words(uri)
        data = re.sub(r"\s+", "", uri.partition(",")[2])
        return data in self.said.whole or f";base64,{data}" in self.said.all or self._has_text(data)

    def _has_text(self, data: str) -> bool:
        """Whether the bytes are text, and stand in the request as such."""
        try:
            return self.said.words(base64.b64decode(data).decode())
        except ValueError:
            return False

    def _has_option(self, leaf: Leaf) -> bool:
        name, value = leaf.path[0], leaf.value
        if name in ("cache", "stream") or value in (None, False) or _DEFAULTS.get(name) == value:
            return True
        if leaf.path in EQUAL and EQUAL[leaf.path](value, self.said):
            return True
        words = _CHOICES.get(str(value), (value,)) if name in ("tool_choice", "output") else (value,)
        return any(self.said.value(word) for word in words)

    def _has_vendor_option(self, leaf: Leaf) -> bool:
        if leaf.value in (None, "") or leaf.path[0] in _NOTES or leaf.key in ("name", "description"):
            return True
        if (leaf.key, leaf.value) in (("type", "text"), ("type", "function")):
            return True
        if leaf.path[0] == "tool_extras" and leaf.path[2] in ("parameters", "description"):
            return True
        if self.said.pair(leaf.path[-1], leaf.value):
            return True
        again = {str(each).casefold() for _, each in walk(self._canonical())} | _AGAIN
        return self.said.pair(leaf.key, leaf.value) or (
            (
                leaf.key
                in (
                    "budget_tokens",
                    "type",
                    "effort",
                    "thinkingLevel",
                    "reasoning_config",
                    "topK",
                    "top_k",
                    "reasoning_effort",
                    "schema",
                )
                or "responseSchema" in leaf.path
                or "textFormat" in leaf.path
                or leaf.key == "responseMimeType"
            )
            and (str(leaf.value).casefold() in again or leaf.key == "schema" or "responseSchema" in leaf.path)
        )

    def _canonical(self) -> dict[str, Any]:
        return {name: value for name, value in self.context.options.items() if name != "vendor"}

    def _vendor_option_named(self, leaf: Leaf) -> bool:
        """Whether a loss names the field, or what it says of a tool."""
        whole = ".".join((leaf.where, *leaf.path))
        named = any(whole == each or whole.startswith(f"{each}.") for each in self.places)
        return named or (
            leaf.path[0] in ("tools", "tool_extras")
            and any(
                re.fullmatch(rf"tools\[\d+\]\.({'|'.join(map(re.escape, leaf.path[1:]))})", each)
                for each in self.places
            )
        )

    def _has_metadata(self, leaf: Leaf) -> bool:
        path, value = leaf.path[1:], leaf.value
        keys = {each for each in path if not each.isdigit()}
        if ("said" in keys and not keys & self.citing) or "logprobs" in keys:
            return True
        if value is None or value is False or value in ("", "auto"):
            return True
        if leaf.key in _BOOKKEEPING or leaf.key.startswith("#"):
            return True
        if path[0] in _BOOKKEEPING or path[:2] in (
            ("chat", "blocks"),
            ("chat", "reasoning"),
            ("chat", "refusal"),
        ):
            return True
        if path[0] == "candidate" and not keys & self.citing:
            return True
        if leaf.path[-2:] == ("caller", "type") and value == "direct":
            return True
        if leaf.key == "format" and "reasoning_details" in keys:
            return True  # how the details are written, which are themselves held to account
        return self.said.pair(leaf.key, value) or (isinstance(value, str) and self._is_canonical(leaf, value))

    def _is_canonical(self, leaf: Leaf, value: str) -> bool:
        """Whether the canonical message says the same words, for which it is itself held to account."""
        message = self._message(leaf.where)
        blocks = [*message.content, *(block for each in message.tool_results for block in each.content)]
        held = [
            json.dumps([leaf.value for leaf in given(_alone(block))], ensure_ascii=False) for block in blocks
        ]
        held += [call.args for call in message.tool_calls] + [call.name for call in message.tool_calls]
        return any(value in each or json.dumps(value, ensure_ascii=False)[1:-1] in each for each in held)

    def _message(self, where: str) -> Message:
        found = _at(where)
        assert found is not None
        return self.context.messages[found[0]]

    def _metadata_named(self, leaf: Leaf) -> bool:
        keys = {each for each in leaf.path if not each.isdigit()}
        for loss in self.losses:
            if loss.where != leaf.where and not loss.where.startswith(f"{leaf.where}."):
                continue
            last = re.sub(r"\[\d+\]$", "", loss.where.rpartition(".")[2])
            if last in keys - {"content"} or keys & _NAMED.get(loss.what, set()):
                return True
            if loss.what in _TOOLS and self._is_within_account(leaf) and not _is_prose(leaf.value):
                return True
            if loss.what in ("reasoning", "encrypted reasoning") and self._is_within_reasoning(leaf):
                return True
        return False

    def _is_within_account(self, leaf: Leaf) -> bool:
        """Whether the leaf is part of what a vendor's own tool was asked or gave."""
        path = leaf.path[1:]
        if path[0] == "blocks":
            return "native" in path
        if path[0] == "items":
            item = _under(self._message(leaf.where), leaf.path[:3])
            return item.get("type") not in (None, "message", "reasoning", "function_call", "custom_tool_call")
        if path[0] == "steps":
            step = _under(self._message(leaf.where), leaf.path[:3])
            return step.get("type") not in ("user_input", "model_output", "thought", "function_call")
        return (path[0] == "parts" and bool(_SERVER_PARTS & set(path))) or "executed_tools" in path

    def _is_within_reasoning(self, leaf: Leaf) -> bool:
        if leaf.path[1] == "items":
            return _under(self._message(leaf.where), leaf.path[:3]).get("type") == "reasoning"
        words = {
            "signature",
            "encrypted_content",
            "reasoning_details",
            "closed",
            "data",
            "redactedContent",
            "thoughtSignature",
            "thinking",
        }
        return bool(words & set(leaf.path)) or "reasoningContent" in leaf.path

    # ---- false losses

    def is_real(self, loss: Loss) -> bool:
        """Whether something is really absent or changed where the loss says."""
        if (found := _at(loss.where)) is not None:
            return self._message_loss(self.context.messages[found[0]], found[1], loss)
        if (found := _at(loss.where, "tools")) is not None:
            return self._tool_loss(found[0], found[1])
        if loss.where.startswith("options.vendor."):
            return self._vendor_option_loss(loss.where.removeprefix("options.vendor."))
        if loss.where.startswith("options."):
            return self._option_loss(loss.where.removeprefix("options.").split("."), loss)
        if loss.where == "messages":
            return loss.what in REPAIRS and REPAIRS[loss.what](self.context, self.said)
        return loss.where.startswith("system.") or (loss.where, loss.what) == ("tools", "tool")

    def _message_loss(self, message: Message, rest: str, loss: Loss) -> bool:
        if not rest:
            return loss.what in WHOLE and WHOLE[loss.what](message, self.said)
        if re.fullmatch(r"tool_calls\[\d+\](\.id)?", rest):
            call = message.tool_calls[int(rest[11:].partition("]")[0])]
            token = {"tool call id": call.id, "tool name": call.name}.get(loss.what)
            ids = [each.id for other in self.context.messages for each in other.tool_calls]
            if token is not None:
                is_argument = token in call.args  # where it may stand although the id is another one
                return token not in self.said.direct or ids.count(token) > 1 or is_argument
            is_told = loss.kind == "converted" and not {call.id, call.name} & self.said.direct  # in words
            return is_told or not self.said.json(call.args) or not call.args
        block = _block_of(message, rest)
        if re.fullmatch(r"(tool_results\[\d+\]\.)?content\[\d+\]", rest):
            is_moved = message.role == "assistant" and isinstance(block, Image | File)
            return is_moved or self._block_loss(block, loss)
        if re.fullmatch(r"tool_results\[\d+\]", rest):
            result = message.tool_results[int(rest[13:].partition("]")[0])]
            return loss.what in ("tool result", "media in a result", "file") or result.status == "error"
        return self._field_loss(message, rest.rpartition(".")[2], loss)

    def _block_loss(self, block: object, loss: Loss) -> bool:
        match block:
            case Text(text):
                return not text.strip() or not self.said.words(text)
            case ReasoningSummary(text):
                return not text or text not in self.said.whole
            case File() if is_account(block):
                return loss.what in _TOOLS
            case Image(uri) | File(uri):
                data = uri.partition(",")[2] if uri.startswith("data:") else uri
                kept = uri in self.said.direct or data in self.said.direct
                return loss.what in ("media",) or not kept or block.mime_type not in self.said.all
            case _:
                return False

    def _field_loss(self, message: Message, name: str, loss: Loss) -> bool:
        """A field of vendorMetadata: some leaf under its name is not in the request."""
        metadata = json.loads(message.vendor_metadata or "{}")
        if loss.what in ("encrypted reasoning", "reasoning") and name == "reasoning":
            return any(
                key[-1] in ("encrypted_content", "id") and not self.said.pair(key[-1], value)
                for key, value in walk(metadata)
            )
        if loss.what == "refusal":
            return "refusal" not in self.said.keys
        leaves = [(path, value) for path, value in walk(metadata) if name in path and value is not None]
        if name == "guardContent" or (leaves and name not in self.said.keys):
            return True
        return any(
            not self.said.pair(next(each for each in reversed(path) if not each.isdigit()), value)
            for path, value in leaves
        )

    def _tool_loss(self, at: int, rest: str) -> bool:
        tool = self.context.tools[at]
        if rest == "strict":
            return tool.strict is not None
        if rest == "name":
            return tool.name not in self.said.whole
        if not rest or rest.startswith("parameters"):
            return not self.said.json(json.dumps(tool.parameters)) or not tool.parameters
        held = [value for path, value in walk(self.context.options.get("vendor") or {}) if rest in path]
        return bool(held) and any(not self.said.pair(rest, value) for value in held)

    def _vendor_option_loss(self, rest: str) -> bool:
        api, *path = rest.split(".")
        if path[-1] in ("endpoint", "strict_by_default", "tool_order", "tool_extras", "system"):
            return False
        value: Any = self.context.options
        for name in ("vendor", api, *path):
            value = value[name]
        leaves = [(each[-1] if each else path[-1], one) for each, one in walk(value)]
        keys = set(value[0]) if path == ["tools"] else set[str]()
        return any(not self.said.pair(key, one) for key, one in leaves) or not keys <= self.said.keys

    def _option_loss(self, path: Sequence[str], loss: Loss) -> bool:
        value: Any = self.context.options
        for name in path[:2]:
            value = value.get(name) if isinstance(value, dict) else None
        if path[:2] == ["output", "schema"] or loss.what in ("strict schema", "system", "output"):
            return True
        if value is None:
            return False
        if path[0] == "output":
            return not self.said.schema_with(path[-1], value)
        return not any(self.said.pair(key, value) for key in SPELLED.get(path[-1], (path[-1],)))


def _under(message: Message, path: Iterable[str]) -> dict[str, Any]:
    value: Any = json.loads(message.vendor_metadata or "{}")
    for key in path:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _alone(block: Any) -> Context:
    return Context(messages=[Message("user", (block,))])


def _is_prose(value: object) -> bool:
    """Whether a text is so long that an account might cut it, and readable by all."""
    return isinstance(value, str) and len(value) > 500 and len(value.split()) > 20
