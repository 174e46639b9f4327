"""Renders a context as a valid request of Anthropic Messages, for any history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.context import Context
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers.anthropic.capabilities import IMAGE_TYPES, same_model, traits_of
from perdure.providers.anthropic.options import API, NAME_MAX, NAMES, AnthropicSettings, tools_of
from perdure.providers.anthropic.parse import FILE_ID, PAUSED, VENDOR
from perdure.providers.anthropic.request import joined
from perdure.providers.contract import Loss, LossKind, Rendered
from perdure.providers.wire.block_order import Piece
from perdure.providers.wire.blocks import BlockTurns, Layout, words_of
from perdure.providers.wire.call_pairs import CallAnswer, Exchange
from perdure.providers.wire.fields.vendor_metadata import kept
from perdure.providers.wire.media import inline, is_web
from perdure.providers.wire.options import foreign_options
from perdure.providers.wire.server_tools import is_account, told
from perdure.providers.wire.tool_names import ToolNames, names_in

__all__ = ["render", "AnthropicTurns"]


_THINKING = frozenset({"thinking", "redacted_thinking"})
_ERROR_WORDS = "The tool failed and said nothing more."


class AnthropicTurns(BlockTurns):
    """Writes the turns of one request."""

    vendor = VENDOR
    legal_id = r"[a-zA-Z0-9_-]{1,128}"
    id_prefix = "toolu_"

    def __init__(self, model: str, provider: str | None, names: Mapping[str, str]) -> None:
        """Take the names of tools in this request, by their canonical names."""
        super().__init__(model, provider, names)
        self._traits = traits_of(model)
        self.places: dict[int, str] = {}  # of Anthropic's own blocks in the context, by their identity

    def _layout(self, message: Message) -> Layout | None:
        layout = super()._layout(message)
        typed = layout is not None and all(
            isinstance(piece.native.get("type"), str) for piece in layout.pieces if piece.native is not None
        )
        return layout if typed else None  # a block without a type is none of Anthropic's

    def _is_asked(self, made_by: object) -> bool:
        return same_model(made_by, self._model)

    def _write(self, exchange: Exchange) -> None:
        role = exchange.message.role
        if exchange.answers:
            self._turn("assistant", self._assistant(exchange))
            self._turn("user", [self._result(answer) for answer in exchange.answers])
            self._answered = {answer.where for answer in exchange.answers}
            return
        if role == "assistant":
            self._turn("assistant", self._assistant(exchange))
        elif role == "system":
            self._system(exchange)
        elif self._answered and exchange.where in self._answered:
            self.turns[-1]["content"] += self._user(exchange)
            return
        else:
            self._turn("user", self._user(exchange))
        self._answered = set()

    def _turn(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if blocks:
            self.turns.append({"role": role, "content": blocks})

    # Assistant turns

    def _assistant(self, exchange: Exchange) -> list[dict[str, Any]]:
        message, pieces, layout = self._laid_out(exchange)
        made: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.call is not None:
                where = f"messages[{exchange.where}].tool_calls[{piece.call}]"
                call = self._called(exchange.answers[piece.call], where)._asdict()
                made.append({"type": "tool_use", **call, **(piece.add or {})})
            elif piece.native is not None:
                made += self._native(piece, message, layout, exchange.where)
            elif piece.content is not None:
                block = message.content[piece.content]
                where = f"messages[{exchange.where}].content[{piece.content}]"
                made += _added(self._said(block, where), piece.add)
        return made

    def _native(self, piece: Piece, message: Message, layout: Layout | None, at: int) -> list[dict[str, Any]]:
        """Return a block of Anthropic's own, as it came."""
        native = dict(piece.native or {})
        where = f"messages[{at}]" if piece.content is None else f"messages[{at}].content[{piece.content}]"
        if native.get("type") in _THINKING:
            if layout is None or not layout.thinking:
                self._lose("dropped", where, "reasoning", "nothing says that this model signed it")
                return []
            if native["type"] == "thinking" and not native.get("signature"):
                self._lose("dropped", where, "reasoning", "it has no signature, which Anthropic demands")
                return []
        block = None if piece.content is None else message.content[piece.content]
        if piece.fill is not None and isinstance(block, ReasoningSummary):
            native[piece.fill] = words_of(block)
        elif piece.fill is not None and isinstance(block, Text):
            native[piece.fill] = block.text
        self.places[id(native)] = where
        return [native]

    def _said(self, block: Block, where: str) -> list[dict[str, Any]]:
        """Return a block of the assistant's message."""
        match block:
            case Text():
                return self._text(block.text, where)
            case ReasoningSummary(""):
                return []
            case ReasoningSummary():
                self._lose(
                    "dropped",
                    where,
                    "reasoning",
                    "it has no signature of this model, which Anthropic demands",
                )
                return []
            case Image() | File():
                if is_account(block):
                    return self._account(block, where)
                return self._words(block, where, "an assistant turn holds no media")

    # User turns

    def _user(self, exchange: Exchange) -> list[dict[str, Any]]:
        message, pieces, _ = self._laid_out(exchange)
        return self._shown(message.content, pieces, f"messages[{exchange.where}].content")

    def _shown(self, content: Sequence[Block], pieces: Sequence[Piece], where: str) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.result is not None or piece.content is None:
                made += [] if piece.native is None else [dict(piece.native)]
            elif piece.native is not None:
                made.append(dict(piece.native))
            else:
                made += _added(
                    self._shown_block(content[piece.content], f"{where}[{piece.content}]"), piece.add
                )
        return made

    def _shown_block(self, block: Block, where: str) -> list[dict[str, Any]]:
        match block:
            case Text():
                return self._text(block.text, where)
            case ReasoningSummary(""):
                return []
            case ReasoningSummary():
                self._lose(
                    "dropped",
                    where,
                    "reasoning",
                    "it has no signature of this model, which Anthropic demands",
                )
                return []
            case Image():
                return self._image(block, where)
            case File():
                if is_account(block):
                    return self._account(block, where)
                return (
                    self._image(block, where)
                    if block.mime_type.startswith("image/")
                    else self._file(block, where)
                )

    def _text(self, text: str, where: str) -> list[dict[str, Any]]:
        if text.strip():
            return [{"type": "text", "text": text}]
        if text:
            self._lose("dropped", where, "empty block", "it is only white space, which Anthropic refuses")
        return []

    def _account(self, block: Block, where: str) -> list[dict[str, Any]]:
        self._lose(
            "converted",
            where,
            "server-side tool",
            "told in words: it is not Anthropic's own, or of another endpoint",
        )
        return [{"type": "text", "text": told(cast("File", block))}]

    def _words(self, block: Image | File, where: str, why: str) -> list[dict[str, Any]]:
        """Return text for media that cannot be sent."""
        kind = "image" if isinstance(block, Image) else "file"
        self._lose("converted", where, kind, f"told in words: {why}")
        uri = "" if block.uri.startswith("data:") else f" at {block.uri}"
        return [{"type": "text", "text": f"[{kind} of type {block.mime_type or 'unknown'}{uri}, not shown]"}]

    def _has_file(self, uri: str) -> bool:
        """True if the server keeps the file: Anthropic's own does, others have no files by id."""
        return uri.startswith(FILE_ID) and self._provider in (None, VENDOR)

    def _image(self, block: Image | File, where: str) -> list[dict[str, Any]]:
        if self._has_file(block.uri):
            return [{"type": "image", "source": {"type": "file", "file_id": block.uri.removeprefix(FILE_ID)}}]
        if is_web(block.uri):
            if self._provider == "google-vertex":
                return self._words(block, where, "Claude on Vertex takes no addresses")
            return [{"type": "image", "source": {"type": "url", "url": block.uri}}]
        held = inline(block.uri)
        if held is None:
            return self._words(block, where, "its bytes are not available")
        if held.media_type not in IMAGE_TYPES:
            return self._words(block, where, f"Anthropic takes no {held.media_type}")
        source = {"type": "base64", "media_type": held.media_type, "data": held.base64}
        return [{"type": "image", "source": source}]

    def _file(self, block: File, where: str) -> list[dict[str, Any]]:
        if self._has_file(block.uri):
            return [_document({"type": "file", "file_id": block.uri.removeprefix(FILE_ID)})]
        if is_web(block.uri):
            if not _is_pdf(block) or self._provider == "google-vertex":
                return self._words(block, where, "only PDFs are taken by address, and none on Vertex")
            return [_document({"type": "url", "url": block.uri})]
        held = inline(block.uri)
        if held is None:
            return self._words(block, where, "its bytes are not available")
        if held.media_type == "application/pdf":
            return [_document({"type": "base64", "media_type": held.media_type, "data": held.base64})]
        text = _decoded(held.bytes)
        if text is None or not text.strip() or held.media_type.startswith(("audio/", "video/")):
            return self._words(block, where, f"Anthropic takes no {held.media_type}")
        if not held.media_type.startswith("text/plain"):
            self._lose("converted", where, "file", f"{held.media_type} is shown as plain text")
        return [_document({"type": "text", "media_type": "text/plain", "data": text})]

    def _result(self, answer: CallAnswer) -> dict[str, Any]:
        result = answer.result
        inside, beside = self._inside(answer)
        content = self._shown(result.content, inside, f"{answer.place}.content")
        made: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._given[id(answer)]}
        if result.status == "error":
            made["is_error"] = True
            if not content:
                self._lose(
                    "repaired", answer.place, "tool result", "an error without words; some were put there"
                )
                content = [{"type": "text", "text": _ERROR_WORDS}]
        if content:
            made["content"] = content
        return made | beside

    # System messages within the conversation

    def _system(self, exchange: Exchange) -> None:
        blocks = self._user(exchange)
        where = f"messages[{exchange.where}]"
        words = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        if self._traits.mid_system and self.turns:
            self._turn("system", blocks)
            return
        if any(block.get("type") != "text" for block in blocks):
            self._words_alone(exchange.message, where)
        if not self.turns and words:
            self.system.append(words)
        else:
            self._lose(
                "converted",
                where,
                "system message",
                "this model knows none within a conversation; it is sent as the user's",
            )
            self._turn("user", [{"type": "text", "text": f"<system>\n{words}\n</system>"}] if words else [])


def _added(blocks: list[dict[str, Any]], add: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return a block with Anthropic's own fields; not for text that replaces it."""
    if not add or len(blocks) != 1:
        return blocks
    if blocks[0]["type"] == "text" and add.keys() - {"citations"}:
        return blocks
    if isinstance(add.get("citations"), list):
        add = add | {"citations": [_citation(each) for each in cast("list[object]", add["citations"])]}
    return [blocks[0] | add]


def _citation(citation: object) -> object:
    """Return a citation as a request may hold it: answers say the file beside it."""
    if not isinstance(citation, Mapping):
        return citation
    return {key: value for key, value in cast("Mapping[str, Any]", citation).items() if key != "file_id"}


def _document(source: dict[str, Any]) -> dict[str, Any]:
    return {"type": "document", "source": source}


def _is_pdf(block: File) -> bool:
    return block.mime_type == "application/pdf" or block.uri.partition("?")[0].lower().endswith(".pdf")


def _decoded(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


_GO_ON = "Continue."
_BEGIN = "Begin."
_MARK = {"type": "ephemeral"}
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_UNMARKED = frozenset({"thinking", "redacted_thinking"})


def render(context: Context, *, model: str, provider: str | None = None) -> Rendered:
    """Return the request, and what could not be carried over unchanged."""
    named = ToolNames(names_in(context), NAMES, length=NAME_MAX)
    names, losses = named.given, named.losses(context)
    turns = AnthropicTurns(model, provider, names)
    turns.write(context.messages)
    losses += turns.losses
    vendor = _vendor(context)
    body: dict[str, Any] = {"model": model, "messages": _paired(turns.turns, turns.places, losses)}
    if context.is_sent and not _is_paused(context.messages, body["messages"], provider):
        body["messages"] = _ended(body["messages"], model, losses)
    tools = tools_of(context, vendor.get("tools"), names, losses)
    settings = AnthropicSettings(context.options, vendor, model, provider)
    body |= settings.write(tools, names, loop=_open_loop(body["messages"]))
    losses += [*settings.losses, *foreign_options(context.options, context.tools, API)]
    system = _system(context.system, turns.system, settings.words, vendor.get("system"))
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
    if context.options.get("cache") is True:
        _mark(body)
    return Rendered(body=body, losses=tuple(dict.fromkeys(losses)), names=named.renamed)


def _vendor(context: Context) -> Mapping[str, Any]:
    """Return the options that a request of this format had beyond the canonical ones."""
    vendor = context.options.get("vendor")
    own = vendor.get(API) if isinstance(vendor, Mapping) else None
    return cast("Mapping[str, Any]", own) if isinstance(own, Mapping) else {}


def _system(system: str, first: Sequence[str], words: Sequence[str], blocks: object) -> object:
    """Return the system words; as the blocks that they came in, if they still say the same."""
    if not first and not words and isinstance(blocks, list) and joined(cast("object", blocks)) == system:
        return [
            dict(block) for block in cast("list[dict[str, Any]]", blocks) if block.get("text", "").strip()
        ]
    return "\n\n".join(part for part in (system, *first, *words) if part.strip())


def _paired(
    turns: list[dict[str, Any]], places: Mapping[int, str], losses: list[Loss]
) -> list[dict[str, Any]]:
    """Return the turns without calls of server-side tools that never got a result, or results without their call."""
    alone = _alone(turns)
    if not alone:
        return turns
    why = "its other half, the call or the result, is not there"
    losses += [
        Loss(kind="dropped", where=places[id(block)], what="server-side tool", why=why)
        for block in _blocks(turns)
        if id(block) in alone
    ]
    kept: list[dict[str, Any]] = []
    for turn in turns:
        content = [block for block in turn["content"] if id(block) not in alone]
        if content:
            kept.append({"role": turn["role"], "content": content})
    return kept


def _alone(turns: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the calls and results of server-side tools that have no counterpart; a turn that still goes on may have calls."""
    alone: set[int] = set()
    waiting: dict[object, Mapping[str, Any]] = {}
    before = None
    for turn in turns:
        if turn["role"] == "user" != before and turn["content"][0]["type"] != "tool_result":
            alone |= {id(block) for block in waiting.values()}
            waiting.clear()
        before = turn["role"]
        for block in turn["content"] if turn["role"] == "assistant" else ():
            if block["type"] in _SERVER_CALLS:
                called = str(block.get("id"))
                alone |= {id(waiting[called])} if called in waiting else set()
                waiting[called] = block
            elif _is_server_result(block) and waiting.pop(str(block.get("tool_use_id")), None) is None:
                alone.add(id(block))
    last = _blocks([turn for turn in turns if turn["role"] == "assistant"][-1:])
    going_on = {id(block) for block in last} | {_caller(block) for block in last}
    return alone | {id(block) for call, block in waiting.items() if not {id(block), call} & going_on}


def _blocks(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [block for turn in turns if turn["role"] == "assistant" for block in turn["content"]]


def _caller(block: Mapping[str, Any]) -> object:
    """Return the call of a server-side tool that itself called this one, and has its result only when all is done."""
    caller = block.get("caller")
    return cast("Mapping[str, Any]", caller).get("tool_id") if isinstance(caller, Mapping) else None


def _is_server_result(block: Mapping[str, Any]) -> bool:
    return str(block["type"]).endswith("_tool_result")


def _ended(turns: list[dict[str, Any]], model: str, losses: list[Loss]) -> list[dict[str, Any]]:
    """Return the turns with an end that the model takes."""
    if not any(turn["role"] != "system" for turn in turns):
        _lose(losses, "repaired", "conversation", f"it has no message; '{_BEGIN}' was put there")
        return [{"role": "user", "content": [{"type": "text", "text": _BEGIN}]}, *turns]
    last = turns[-1]
    if last["role"] != "assistant" or _is_waiting(last):
        return turns
    if not traits_of(model).prefill:
        why = f"the model refuses one that ends with the assistant; '{_GO_ON}' was put there"
        _lose(losses, "repaired", "conversation", why)
        return [*turns, {"role": "user", "content": [{"type": "text", "text": _GO_ON}]}]
    content = _trimmed(last["content"], losses)
    if content:
        return [*turns[:-1], {"role": "assistant", "content": content}]
    return _ended(turns[:-1], model, losses)


def _is_paused(messages: Sequence[Message], turns: Sequence[Mapping[str, Any]], provider: str | None) -> bool:
    """True if Anthropic itself paused the last turn: it goes on if the turn is sent back as it is."""
    if not turns or turns[-1]["role"] != "assistant":
        return False
    facts = kept(messages[-1], VENDOR, endpoint=provider or VENDOR)
    return facts is not None and facts.get("stop_reason") in PAUSED


def _is_waiting(turn: Mapping[str, Any]) -> bool:
    """True if the turn waits for tools of Anthropic's own, and is to be gone on with."""
    kind = str(turn["content"][-1]["type"])
    return kind in _SERVER_CALLS or kind.endswith("_tool_result")


def _trimmed(content: list[dict[str, Any]], losses: list[Loss]) -> list[dict[str, Any]]:
    block = content[-1]
    if block["type"] != "text" or block["text"] == block["text"].rstrip():
        return content
    _lose(losses, "repaired", "white space", "the last words of a last assistant turn may not end in it")
    text = block["text"].rstrip()
    return [*content[:-1], *([block | {"text": text}] if text else [])]


def _open_loop(turns: Sequence[Mapping[str, Any]]) -> bool:
    """True if tools have just answered an assistant turn that does not start with thinking."""
    said = [turn for turn in turns if turn["role"] != "system"]
    if not said or said[-1]["role"] != "user":
        return False
    at = len(said) - 1
    while at >= 0 and said[at]["role"] == "user":
        at -= 1
    if at < 0 or not any(
        block["type"] == "tool_result" for turn in said[at + 1 :] for block in turn["content"]
    ):
        return False
    while at > 0 and said[at - 1]["role"] == "assistant":
        at -= 1
    return said[at]["content"][0]["type"] not in _UNMARKED


def _mark(body: dict[str, Any]) -> None:
    """Set marks for the prompt cache: after the tools, the system words and the last two turns of the user."""
    if body.get("tools"):
        body["tools"][-1] = body["tools"][-1] | {"cache_control": _MARK}
    if isinstance(body.get("system"), str):
        body["system"] = [{"type": "text", "text": body["system"]}]
    if body.get("system"):
        body["system"][-1] = body["system"][-1] | {"cache_control": _MARK}
    turns = [turn for turn in body["messages"] if turn["role"] == "user"]
    for turn in turns[-2:]:
        block = turn["content"][-1]
        if block["type"] not in _UNMARKED:
            turn["content"][-1] = block | {"cache_control": _MARK}


def _lose(losses: list[Loss], kind: LossKind, what: str, why: str) -> None:
    losses.append(Loss(kind=kind, where="messages", what=what, why=why))
