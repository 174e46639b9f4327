"""From canonical messages to Anthropic's turns, whatever the history looks like."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.model.message import Block, File, Image, Message, ReasoningSummary, Text
from holdfast.providers.anthropic.blocks import FILE_ID
from holdfast.providers.anthropic.capabilities import IMAGE_TYPES, same_model, traits_of
from holdfast.providers.anthropic.parse import VENDOR
from holdfast.providers.contract import Loss, LossKind
from holdfast.providers.wire.exchanges import Answer, Exchange, exchanges
from holdfast.providers.wire.ids import CallIds
from holdfast.providers.wire.layout import Piece, fits, layout_of
from holdfast.providers.wire.media import inline, is_web
from holdfast.providers.wire.native import kept, own_ids
from holdfast.providers.wire.server_tools import is_account, told

__all__ = ["Turns"]

_THINKING = frozenset({"thinking", "redacted_thinking"})
_LEGAL_ID = r"[a-zA-Z0-9_-]{1,128}"
_ERROR_WORDS = "The tool failed and said nothing more."
_STANDS_FOR = " "  # in the place of thinking that has no words, so that it counts as something said


class _Layout(NamedTuple):
    """What Anthropic itself said with a message."""

    pieces: tuple[Piece, ...]
    thinking: bool  # whether its model is the one that is asked now


class Turns:
    """The turns of one request, as they are written."""

    def __init__(self, model: str, provider: str | None, names: Mapping[str, str]) -> None:
        """`names` are tools by their canonical names, as they are called here."""
        self.turns: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.system: list[str] = []  # words of system messages that stood before everything else
        self._model, self._provider, self._names = model, provider, names
        self._traits = traits_of(model)
        self._ids = CallIds(_LEGAL_ID, prefix="toolu_")
        self._met: Counter[str] = Counter()
        self._given: dict[int, str] = {}  # the id of a call here, by its answer
        self._layouts: dict[int, _Layout] = {}
        self._messages: Sequence[Message] = ()
        self._answered: set[int | None] = set()  # the messages whose results are in the last turn

    def write(self, messages: Sequence[Message]) -> None:
        """All messages."""
        own = own_ids(messages, VENDOR, endpoint=self._provider)
        self._ids = CallIds(_LEGAL_ID, prefix="toolu_", own=own)
        self._layouts = {
            at: layout for at, message in enumerate(messages) if (layout := self._layout(message)) is not None
        }
        self._messages = [
            _standing(message, self._layouts[at].pieces) if at in self._layouts else message
            for at, message in enumerate(messages)
        ]
        found, losses = exchanges(self._messages)
        self.losses += losses
        for exchange in found:
            self._write(exchange)

    def _layout(self, message: Message) -> _Layout | None:
        facts = kept(message, VENDOR, endpoint=self._provider)
        pieces = layout_of(facts, message)
        if facts is None or pieces is None:
            return None
        return _Layout(pieces, same_model(facts.get("model"), self._model))

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

    def _lose(self, kind: LossKind, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))

    # Assistant turns

    def _assistant(self, exchange: Exchange) -> list[dict[str, Any]]:
        layout = self._layouts.get(exchange.where)
        message = self._messages[exchange.where] if layout else exchange.message
        pieces: Sequence[Piece] = (
            layout.pieces if layout else _plain(len(message.content), len(exchange.answers))
        )
        made: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.call is not None:
                made.append(self._call(exchange.answers[piece.call], exchange.where) | (piece.add or {}))
            elif piece.native is not None:
                made += self._native(piece, message, layout, exchange.where)
            elif piece.content is not None:
                block = message.content[piece.content]
                where = f"messages[{exchange.where}].content[{piece.content}]"
                made += _added(self._said(block, where), piece.add)
        if all(_is_blank(block) for block in made):
            return [said for _ in made for said in self._text("", f"messages[{exchange.where}].content")]
        return made

    def _native(
        self, piece: Piece, message: Message, layout: _Layout | None, at: int
    ) -> list[dict[str, Any]]:
        """A block of Anthropic's own, as it came."""
        native = dict(piece.native or {})
        where = f"messages[{at}].content[{piece.content}]"
        if native.get("type") in _THINKING:
            if layout is None or not layout.thinking:
                self._lose("dropped", where, "reasoning", "another model signed it")
                return []
            if native["type"] == "thinking" and not native.get("signature"):
                self._lose("dropped", where, "reasoning", "it has no signature, which Anthropic demands")
                return []
        block = None if piece.content is None else message.content[piece.content]
        if piece.fill is not None and isinstance(block, Text | ReasoningSummary):
            native[piece.fill] = "" if block.text == _STANDS_FOR else block.text
        return [native]

    def _said(self, block: Block, where: str) -> list[dict[str, Any]]:
        """A block that the assistant said."""
        match block:
            case Text():
                return [{"type": "text", "text": block.text}] if block.text else []
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

    def _call(self, answer: Answer, at: int) -> dict[str, Any]:
        call = answer.call
        where = f"messages[{at}].tool_calls"
        number = self._met[call.id]
        self._met[call.id] += 1
        key = call.id if not number else f"{call.id}\n{number}"
        made = self._ids.of(key)
        if self._ids.changed(call.id):
            self._lose("converted", where, "tool call id", f"'{call.id}' is called '{made}' here")
        self._given[id(answer)] = made
        name = self._names.get(call.name, call.name)
        if name != call.name:
            self._lose("converted", where, "tool name", f"'{call.name}' is called '{name}' here")
        return {"type": "tool_use", "id": made, "name": name, "input": self._input(call.args, where)}

    def _input(self, args: str, where: str) -> dict[str, Any]:
        try:
            value: object = json.loads(args or "{}", parse_constant=_no_constant)
        except (ValueError, RecursionError):
            value = args
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._lose(
            "repaired",
            where,
            "arguments",
            "they are no JSON object; they were put into one, under 'arguments'",
        )
        return {"arguments": value}

    # User turns

    def _user(self, exchange: Exchange) -> list[dict[str, Any]]:
        layout = self._layouts.get(exchange.where)
        message = self._messages[exchange.where] if layout else exchange.message
        pieces: Sequence[Piece] = layout.pieces if layout else _plain(len(message.content))
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
        """Media that cannot be shown, in words."""
        kind = "image" if isinstance(block, Image) else "file"
        self._lose("converted", where, kind, f"told in words: {why}")
        uri = "" if block.uri.startswith("data:") else f" at {block.uri}"
        return [{"type": "text", "text": f"[{kind} of type {block.mime_type or 'unknown'}{uri}, not shown]"}]

    def _image(self, block: Image | File, where: str) -> list[dict[str, Any]]:
        if block.uri.startswith(FILE_ID):
            return [{"type": "image", "source": {"type": "file", "file_id": block.uri.removeprefix(FILE_ID)}}]
        if is_web(block.uri):
            if self._provider == "google-vertex":
                return self._words(block, where, "Claude on Vertex takes no addresses")
            return [{"type": "image", "source": {"type": "url", "url": block.uri}}]
        held = inline(block.uri)
        if held is None:
            return self._words(block, where, "its bytes are not at hand")
        if held.media_type not in IMAGE_TYPES:
            return self._words(block, where, f"Anthropic takes no {held.media_type}")
        source = {"type": "base64", "media_type": held.media_type, "data": held.base64}
        return [{"type": "image", "source": source}]

    def _file(self, block: File, where: str) -> list[dict[str, Any]]:
        if block.uri.startswith(FILE_ID):
            return [_document({"type": "file", "file_id": block.uri.removeprefix(FILE_ID)})]
        if is_web(block.uri):
            if not _is_pdf(block) or self._provider == "google-vertex":
                return self._words(block, where, "only PDFs are taken by address, and none on Vertex")
            return [_document({"type": "url", "url": block.uri})]
        held = inline(block.uri)
        if held is None:
            return self._words(block, where, "its bytes are not at hand")
        if held.media_type == "application/pdf":
            return [_document({"type": "base64", "media_type": held.media_type, "data": held.base64})]
        text = _decoded(held.bytes)
        if text is None or not text.strip() or held.media_type.startswith(("audio/", "video/")):
            return self._words(block, where, f"Anthropic takes no {held.media_type}")
        if not held.media_type.startswith("text/plain"):
            self._lose("converted", where, "file", f"{held.media_type} is shown as plain text")
        return [_document({"type": "text", "media_type": "text/plain", "data": text})]

    def _result(self, answer: Answer) -> dict[str, Any]:
        result = answer.result
        where = "messages" if answer.where is None else f"messages[{answer.where}].tool_results"
        piece = self._piece_of(answer)
        inside = piece.inside if piece and piece.inside and fits(piece.inside, len(result.content)) else None
        content = self._shown(result.content, inside or _plain(len(result.content)), where)
        made: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._given[id(answer)]}
        if result.status == "error":
            made["is_error"] = True
            if not content:
                self._lose("repaired", where, "tool result", "an error without words; some were put there")
                content = [{"type": "text", "text": _ERROR_WORDS}]
        if content:
            made["content"] = content
        return made | ((piece.add or {}) if piece else {})

    def _piece_of(self, answer: Answer) -> Piece | None:
        """What Anthropic itself said with a result."""
        if answer.where is None or answer.where not in self._layouts:
            return None
        results = self._messages[answer.where].tool_results
        at = next((at for at, each in enumerate(results) if each is answer.result), None)
        return next((piece for piece in self._layouts[answer.where].pieces if piece.result == at), None)

    # System messages within the conversation

    def _system(self, exchange: Exchange) -> None:
        blocks = self._user(exchange)
        where = f"messages[{exchange.where}]"
        words = "\n\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
        if self._traits.mid_system and self.turns:
            self._turn("system", blocks)
        elif not self.turns and words:
            self._lose("converted", where, "system message", "it is part of the system words")
            self.system.append(words)
        else:
            self._lose(
                "converted",
                where,
                "system message",
                "this model knows none within a conversation; it is told as the user's",
            )
            self._turn("user", [{"type": "text", "text": f"<system>\n{words}\n</system>"}] if words else [])


def _standing(message: Message, pieces: Sequence[Piece]) -> Message:
    """The message with something in the place of thinking that has no words, so that it is not taken for empty."""
    wordless = {
        piece.content
        for piece in pieces
        if piece.native is not None
        and piece.content is not None
        and _is_wordless(message.content[piece.content])
    }
    content = tuple(
        ReasoningSummary(_STANDS_FOR) if at in wordless else block for at, block in enumerate(message.content)
    )
    return msgspec.structs.replace(message, content=content) if wordless else message


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _is_wordless(block: Block) -> bool:
    return isinstance(block, ReasoningSummary) and not block.text


def _plain(content: int, calls: int = 0) -> list[Piece]:
    return [*(Piece(content=at) for at in range(content)), *(Piece(call=at) for at in range(calls))]


def _added(blocks: list[dict[str, Any]], add: dict[str, Any] | None) -> list[dict[str, Any]]:
    """What Anthropic said beside a block, put back; not beside words that stand in for it."""
    if not add or len(blocks) != 1:
        return blocks
    if blocks[0]["type"] == "text" and add.keys() - {"citations"}:
        return blocks
    if isinstance(add.get("citations"), list):
        add = add | {"citations": [_citation(each) for each in cast("list[object]", add["citations"])]}
    return [blocks[0] | add]


def _citation(citation: object) -> object:
    """A citation as a request may hold it: answers say the file beside it."""
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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
