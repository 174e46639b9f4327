"""From canonical messages to Anthropic's turns, whatever the history looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers.anthropic.blocks import FILE_ID
from perdure.providers.anthropic.capabilities import IMAGE_TYPES, same_model, traits_of
from perdure.providers.anthropic.parse import VENDOR
from perdure.providers.wire.blocks import BlockTurns, Layout, words_of
from perdure.providers.wire.exchanges import Answer, Exchange
from perdure.providers.wire.layout import Piece
from perdure.providers.wire.media import inline, is_web
from perdure.providers.wire.server_tools import is_account, told

__all__ = ["Turns"]

_THINKING = frozenset({"thinking", "redacted_thinking"})
_ERROR_WORDS = "The tool failed and said nothing more."


class Turns(BlockTurns):
    """The turns of one request, as they are written."""

    vendor = VENDOR
    legal_id = r"[a-zA-Z0-9_-]{1,128}"
    id_prefix = "toolu_"

    def __init__(self, model: str, provider: str | None, names: Mapping[str, str]) -> None:
        """`names` are tools by their canonical names, as they are called here."""
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
        """A block of Anthropic's own, as it came."""
        native = dict(piece.native or {})
        where = f"messages[{at}]" if piece.content is None else f"messages[{at}].content[{piece.content}]"
        if native.get("type") in _THINKING:
            if layout is None or not layout.thinking:
                self._lose("dropped", where, "reasoning", "another model signed it")
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
        """A block that the assistant said."""
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
        """Media that cannot be shown, in words."""
        kind = "image" if isinstance(block, Image) else "file"
        self._lose("converted", where, kind, f"told in words: {why}")
        uri = "" if block.uri.startswith("data:") else f" at {block.uri}"
        return [{"type": "text", "text": f"[{kind} of type {block.mime_type or 'unknown'}{uri}, not shown]"}]

    def _has_file(self, uri: str) -> bool:
        """Whether the server keeps the file: Anthropic's own does, others have no files by id."""
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
            return self._words(block, where, "its bytes are not at hand")
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
