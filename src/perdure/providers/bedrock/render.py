"""Renders a context as a valid request of Bedrock Converse, for any history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context
from perdure.model.message import Block, File, Image, ReasoningSummary, Text
from perdure.providers.bedrock.capabilities import claude, family, refuses_media, same
from perdure.providers.bedrock.options import API, NAME_MAX, NAMES, BedrockSettings, tools_of
from perdure.providers.bedrock.parse import VENDOR, format_of, name_of
from perdure.providers.bedrock.request import joined
from perdure.providers.contract import Loss, LossKind, Rendered
from perdure.providers.wire.block_order import Piece
from perdure.providers.wire.blocks import BlockTurns, Layout, parsed, words_of
from perdure.providers.wire.call_pairs import CallAnswer, Exchange
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.media import inline, kind_of
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render", "BedrockTurns"]


_ERROR_WORDS = "The tool failed and said nothing more."
_DOCUMENT_WORDS = "See the document."


class BedrockTurns(BlockTurns):
    """Writes the messages of one request."""

    vendor = VENDOR
    legal_id = r"[a-zA-Z0-9_-]{1,64}"
    id_prefix = "tooluse_"

    def __init__(
        self, model: str, provider: str | None, names: Mapping[str, str], *, is_sent: bool = True
    ) -> None:
        """Take the names of tools in this request, by their canonical names; roles alternate in what is sent."""
        super().__init__(model, provider, names)
        self._alternates = is_sent
        self._claude = claude(model)
        self._documents: set[str] = set()

    def _is_asked(self, made_by: object) -> bool:
        if not self._model:
            return False
        return made_by is None or same(made_by, self._model)  # a recorded answer of Bedrock does not say it

    def _write(self, exchange: Exchange) -> None:
        role, where = exchange.message.role, exchange.where
        if exchange.answers:
            self._turn("assistant", self._assistant(exchange), where)
            self._turn("user", [self._result(answer) for answer in exchange.answers], where)
            self._answered = {answer.where for answer in exchange.answers}
            return
        if role == "assistant":
            self._turn("assistant", self._assistant(exchange), where)
        elif role == "system":
            self._system(exchange)
        else:
            self._turn("user", self._user(exchange), where, same=where in self._answered)

    def _turn(self, role: str, blocks: list[dict[str, Any]], where: int, *, same: bool = False) -> None:
        """Add to the turn of the same role, or begin one: roles alternate."""
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role and (same or self._alternates):
            if not same:
                why = f"it is joined with the {role} message before it: roles alternate"
                self._lose("repaired", f"messages[{where}]", "message", why)
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})
        self._answered = self._answered if same else set()

    # Assistant messages

    def _assistant(self, exchange: Exchange) -> list[dict[str, Any]]:
        message, pieces, layout = self._laid_out(exchange)
        made: list[dict[str, Any]] = []
        for piece in pieces:
            where = f"messages[{exchange.where}].content[{piece.content}]"
            if piece.call is not None:
                place = f"messages[{exchange.where}].tool_calls[{piece.call}]"
                call = self._called(exchange.answers[piece.call], place)
                made.append({"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.input}})
            elif piece.native is not None:
                block = None if piece.content is None else message.content[piece.content]
                made += self._native(piece, block, layout, where)
            elif piece.content is not None:
                made += self._said(message.content[piece.content], where)
        return made

    def _native(
        self, piece: Piece, block: Block | None, layout: Layout | None, where: str
    ) -> list[dict[str, Any]]:
        """Return a block of Bedrock's own, as it came."""
        native: dict[str, Any] = dict(piece.native or {})
        reasoning = native.get("reasoningContent")
        if not isinstance(reasoning, Mapping):
            return [native]
        if layout is None or not layout.thinking:
            self._lose("dropped", where, "reasoning", "nothing says that this model signed it")
            return []
        if piece.fill is None or not isinstance(block, ReasoningSummary):
            return [native]
        bare = object_of(cast("Mapping[str, Any]", reasoning).get("reasoningText"))
        if self._claude is not None and not bare.get("signature"):
            self._lose("dropped", where, "reasoning", "it has no signature, which Claude demands")
            return []
        return [{"reasoningContent": {"reasoningText": {"text": words_of(block), **bare}}}]

    def _said(self, block: Block, where: str) -> list[dict[str, Any]]:
        match block:
            case Text():
                return self._text(block.text, where)
            case ReasoningSummary(""):
                return []
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "it has no signature of this model")
                return []
            case Image() | File():
                if is_account(block):
                    return self._account(block, where)
                return self._words(block, where, "an assistant message holds no media")

    # User messages

    def _user(self, exchange: Exchange) -> list[dict[str, Any]]:
        message, pieces, _ = self._laid_out(exchange)
        made = self._shown(message.content, pieces, f"messages[{exchange.where}].content")
        if any("document" in block for block in made) and not any("text" in block for block in made):
            self._lose(
                "repaired",
                f"messages[{exchange.where}]",
                "document",
                "a document goes with words; some were put there",
            )
            made.append({"text": _DOCUMENT_WORDS})
        return made

    def _shown(self, content: Sequence[Block], pieces: Sequence[Piece], where: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.native is not None:
                made.append(dict(piece.native))
            elif piece.content is not None:
                block, place = content[piece.content], f"{where}[{piece.content}]"
                made += self._shown_block(block, place, piece.add or {})
        return made

    def _shown_block(self, block: Block, where: str, add: Mapping[str, Any]) -> list[dict[str, Any]]:
        match block:
            case Text():
                if add.get("json") is True and (value := parsed(block.text)) is not None:
                    return [{"json": value}]
                return self._text(block.text, where)
            case ReasoningSummary(""):
                return []
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "it has no signature of this model")
                return []
            case Image() | File():
                return self._account(block, where) if is_account(block) else self._media(block, where, add)

    def _text(self, text: str, where: str) -> list[dict[str, Any]]:
        if text.strip() or (text and self._claude is None):
            return [{"text": text}]
        if text:
            self._lose("dropped", where, "empty block", "it is only white space, which Claude refuses")
        return []

    def _account(self, block: Block, where: str) -> list[dict[str, Any]]:
        why = "told in words: it is not Bedrock's own, or of another endpoint"
        self._lose("converted", where, "server-side tool", why)
        return [{"text": told(cast("File", block))}]

    def _words(self, block: Image | File, where: str, why: str) -> list[dict[str, Any]]:
        """Return text for media that cannot be sent."""
        kind = "image" if isinstance(block, Image) else "file"
        self._lose("converted", where, kind, f"told in words: {why}")
        uri = "" if block.uri.startswith("data:") else f" at {block.uri}"
        return [{"text": f"[{kind} of type {block.mime_type or 'unknown'}{uri}, not shown]"}]

    def _media(self, block: Image | File, where: str, add: Mapping[str, Any]) -> list[dict[str, Any]]:
        held = inline(block.uri)
        media_type = block.mime_type if held is None else held.media_type
        kind = kind_of(media_type, block.uri)
        kind = kind if kind in ("image", "video", "audio") else "document"
        if refuses_media(kind, self._model):
            return self._words(block, where, f"this model takes no {kind}")
        if self._claude is not None and block.uri.startswith("s3://"):
            return self._words(block, where, "Claude takes bytes alone, nothing in S3")
        source: dict[str, Any]
        if held is not None and held.bytes:
            source = {"bytes": held.base64}
        elif block.uri.startswith("s3://"):
            owner = {"bucketOwner": add["bucketOwner"]} if "bucketOwner" in add else {}
            source = {"s3Location": {"uri": block.uri, **owner}}
        else:
            return self._words(block, where, "Bedrock takes bytes or S3, and its bytes are not available")
        format = format_of(kind, media_type)
        if format is None and kind == "document" and held is not None and _is_text(held.bytes):
            self._lose("converted", where, "file", f"{media_type} is shown as plain text")
            format = "txt"
        if format is None:
            return self._words(block, where, f"Bedrock takes no {media_type}")
        if add.get("source") == "text" and held is not None:
            source = {"text": held.bytes.decode("utf-8", "replace")}
        return [{kind: {"format": format, **self._beside(kind, add), "source": source}}]

    def _beside(self, kind: str, add: Mapping[str, Any]) -> dict[str, Any]:
        more = {key: value for key, value in add.items() if key not in ("source", "bucketOwner", "name")}
        if kind != "document":
            return more
        return {"name": name_of(str(add.get("name") or "document"), self._documents), **more}

    def _result(self, answer: CallAnswer) -> dict[str, Any]:
        result = answer.result
        inside, beside = self._inside(answer)
        shown = self._shown(result.content, inside, f"{answer.place}.content")
        content = [self._in_result(block, answer.place) for block in shown]
        if result.status == "error" and not content:
            self._lose("repaired", answer.place, "tool result", "an error without words; some were put there")
            content = [{"text": _ERROR_WORDS}]
        made: dict[str, Any] = {"toolUseId": self._given[id(answer)], "content": content}
        if result.status == "error":
            made["status"] = "error"
        return {"toolResult": made | beside}

    def _in_result(self, block: dict[str, Any], where: str) -> dict[str, Any]:
        """Return a block as a result may hold it: all but audio."""
        if "audio" not in block:
            return block
        self._lose("converted", where, "file", "told in words: a result holds no audio")
        return {"text": f"[file of type audio/{block['audio']['format']}, not shown]"}

    def _system(self, exchange: Exchange) -> None:
        """Write a system message as the user's: Bedrock has none within a conversation."""
        blocks, where = self._user(exchange), f"messages[{exchange.where}]"
        words = "\n\n".join(str(block["text"]) for block in blocks if "text" in block)
        if any("text" not in block for block in blocks):
            self._words_alone(exchange.message, where)
        if not self.turns:
            self.system.append(words)
        else:
            self._lose(
                "converted",
                where,
                "system message",
                "told as the user's: Bedrock knows none within a conversation",
            )
            self._turn("user", [{"text": f"<system>\n{words}\n</system>"}] if words else [], exchange.where)


def _is_text(body: bytes) -> bool:
    try:
        return bool(body.decode().strip())
    except UnicodeDecodeError:
        return False


_GO_ON = "Continue."
_BEGIN = "Begin."
_MARK = {"cachePoint": {"type": "default"}}
_ALTERNATING = frozenset({"nova", "titan", "llama", "mistral", "pixtral"})  # these begin with the user


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """Return the request, and what could not be carried over unchanged."""
    named = ToolNames(names_in(context), NAMES, length=NAME_MAX)
    names, losses = named.given, named.losses(context)
    turns = BedrockTurns(model, provider, names, is_sent=context.is_sent)
    turns.write(context.messages)
    losses += turns.losses
    vendor = _vendor(context)
    messages = _whole(turns.turns, model, losses) if context.is_sent else turns.turns
    body: dict[str, Any] = {"messages": messages}
    tools = tools_of(context, vendor.get("tools"), names, losses, called=_called(body["messages"]))
    settings = BedrockSettings(context.options, vendor, model)
    body |= settings.write(tools, names, loop=_open_loop(body["messages"]))
    losses += [*settings.losses, *foreign_options(context.options, context.tools, API)]
    system = _system(context.system, turns.system, settings.words, vendor.get("system"))
    if system:
        body["system"] = system
    if context.options.get("cache") is True:
        _mark(body)
    return Rendered(body=body, losses=tuple(dict.fromkeys(losses)), names=named.renamed)


def _vendor(context: Context) -> Mapping[str, Any]:
    """Return the options that a request of this format had beyond the canonical ones."""
    vendor = context.options.get("vendor")
    own = vendor.get(API) if isinstance(vendor, Mapping) else None
    return cast("Mapping[str, Any]", own) if isinstance(own, Mapping) else {}


def _system(system: str, first: Sequence[str], words: Sequence[str], blocks: object) -> list[dict[str, Any]]:
    """Return the system words; as the blocks that they came in, if they still say the same."""
    if not first and not words and isinstance(blocks, list) and joined(cast("object", blocks)) == system:
        given = cast("list[dict[str, Any]]", blocks)
        return [dict(block) for block in given if "text" not in block or str(block["text"]).strip()]
    told = "\n\n".join(part for part in (system, *first, *words) if part.strip())
    return [{"text": told}] if told else []


def _called(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tools that were called in the history."""
    uses = [block["toolUse"] for turn in turns for block in turn["content"] if "toolUse" in block]
    return list(dict.fromkeys(use["name"] for use in uses if use.get("type") != "server_tool_use"))


def _whole(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    """Return the turns with a beginning and an end that the model takes."""
    if not turns or (turns[0]["role"] == "assistant" and family(model) in _ALTERNATING):
        why = f"the conversation does not begin with the user; '{_BEGIN}' was put there"
        _lose(losses, "repaired", "conversation", why)
        turns = [{"role": "user", "content": [{"text": _BEGIN}]}, *turns]
    if turns[-1]["role"] != "assistant":
        return turns
    known = claude(model)
    if known is not None and not known.prefill:
        why = f"the model refuses a conversation that ends with the assistant; '{_GO_ON}' was put there"
        _lose(losses, "repaired", "conversation", why)
        return [*turns, {"role": "user", "content": [{"text": _GO_ON}]}]
    return _trimmed(turns, model, losses)


def _trimmed(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    *first, block = turns[-1]["content"]
    text = block.get("text")
    if not isinstance(text, str) or text == text.rstrip():
        return turns
    _lose(losses, "repaired", "white space", "the last words of a last assistant message may not end in it")
    content = [*first, *([{"text": text.rstrip()}] if text.rstrip() else [])]
    if content:
        return [*turns[:-1], {"role": "assistant", "content": content}]
    return _whole(turns[:-1], model, losses)


def _open_loop(turns: Sequence[Mapping[str, Any]]) -> bool:
    """True if tools have just answered an assistant message that does not start with thinking."""
    if len(turns) < 2 or not any("toolResult" in block for block in turns[-1]["content"]):
        return False
    return "reasoningContent" not in turns[-2]["content"][0]


def _mark(body: dict[str, Any]) -> None:
    """Set marks for the prompt cache: after the tools, the system words and the last two user messages."""
    if "toolConfig" in body:
        body["toolConfig"]["tools"].append(dict(_MARK))
    if "system" in body:
        body["system"].append(dict(_MARK))
    for turn in [turn for turn in body["messages"] if turn["role"] == "user"][-2:]:
        turn["content"].append(dict(_MARK))


def _lose(losses: list[Loss], kind: LossKind, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where="messages", what=what, why=why))
