"""From canonical messages to Bedrock's, whatever the history looks like."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from holdfast.model.message import Block, File, Image, Message, ReasoningSummary, Text
from holdfast.providers.bedrock.capabilities import claude, refuses_media, same
from holdfast.providers.bedrock.formats import format_of, name_of
from holdfast.providers.bedrock.parse import VENDOR
from holdfast.providers.contract import Loss, LossKind
from holdfast.providers.wire.exchanges import Answer, Exchange, exchanges
from holdfast.providers.wire.ids import CallIds
from holdfast.providers.wire.layout import Piece, fits, layout_of
from holdfast.providers.wire.media import inline, kind_of
from holdfast.providers.wire.native import kept, own_ids
from holdfast.providers.wire.server_tools import is_account, told

__all__ = ["Turns"]

_LEGAL_ID = r"[a-zA-Z0-9_-]{1,64}"
_ERROR_WORDS = "The tool failed and said nothing more."
_STANDS_FOR = " "  # in the place of thinking that has no words, so that it counts as something said
_DOCUMENT_WORDS = "See the document."


class _Layout(NamedTuple):
    """What Bedrock itself said with a message."""

    pieces: tuple[Piece, ...]
    thinking: bool  # whether its model is the one that is asked now


class Turns:
    """The messages of one request, as they are written."""

    def __init__(self, model: str, provider: str | None, names: Mapping[str, str]) -> None:
        """`names` are tools by their canonical names, as they are called here."""
        self.turns: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.system: list[str] = []  # words of system messages that stood before everything else
        self._model, self._provider, self._names = model, provider, names
        self._claude = claude(model)
        self._ids = CallIds(_LEGAL_ID, prefix="tooluse_")
        self._met: Counter[str] = Counter()
        self._given: dict[int, str] = {}  # the id of a call here, by its answer
        self._documents: set[str] = set()
        self._layouts: dict[int, _Layout] = {}
        self._messages: Sequence[Message] = ()
        self._answered: set[int | None] = set()  # the messages whose results are in the last turn

    def write(self, messages: Sequence[Message]) -> None:
        """All messages."""
        own = own_ids(messages, VENDOR, endpoint=self._provider)
        self._ids = CallIds(_LEGAL_ID, prefix="tooluse_", own=own)
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
        made_by = facts.get("model")  # an answer of Bedrock does not say it
        return _Layout(pieces, made_by is None or same(made_by, self._model))

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
        if self.turns and self.turns[-1]["role"] == role:
            if not same:
                why = f"it is joined with the {role} message before it: roles alternate"
                self._lose("repaired", f"messages[{where}]", "message", why)
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})
        self._answered = self._answered if same else set()

    def _lose(self, kind: LossKind, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))

    # Assistant messages

    def _assistant(self, exchange: Exchange) -> list[dict[str, Any]]:
        layout = self._layouts.get(exchange.where)
        message = self._messages[exchange.where] if layout else exchange.message
        pieces: Sequence[Piece] = (
            layout.pieces if layout else _plain(len(message.content), len(exchange.answers))
        )
        made: list[dict[str, Any]] = []
        for piece in pieces:
            where = f"messages[{exchange.where}].content[{piece.content}]"
            if piece.call is not None:
                made.append(self._call(exchange.answers[piece.call], exchange.where))
            elif piece.native is not None:
                block = None if piece.content is None else message.content[piece.content]
                made += self._native(piece, block, layout, where)
            elif piece.content is not None:
                made += self._said(message.content[piece.content], where)
        return made

    def _native(
        self, piece: Piece, block: Block | None, layout: _Layout | None, where: str
    ) -> list[dict[str, Any]]:
        """A block of Bedrock's own, as it came."""
        native: dict[str, Any] = dict(piece.native or {})
        reasoning = native.get("reasoningContent")
        if not isinstance(reasoning, Mapping):
            return [native]
        if layout is None or not layout.thinking:
            self._lose("dropped", where, "reasoning", "another model signed it")
            return []
        if piece.fill is None or not isinstance(block, ReasoningSummary):
            return [native]
        bare = dict(cast("Mapping[str, Mapping[str, Any]]", reasoning).get("reasoningText", {}))
        if self._claude is not None and not bare.get("signature"):
            self._lose("dropped", where, "reasoning", "it has no signature, which Claude demands")
            return []
        words = "" if block.text == _STANDS_FOR else block.text
        return [{"reasoningContent": {"reasoningText": {"text": words, **bare}}}]

    def _said(self, block: Block, where: str) -> list[dict[str, Any]]:
        match block:
            case Text():
                return self._text(block.text, where)
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "it has no signature of this model")
                return []
            case Image() | File():
                if is_account(block):
                    return self._account(block, where)
                return self._words(block, where, "an assistant message holds no media")

    def _call(self, answer: Answer, at: int) -> dict[str, Any]:
        call = answer.call
        where = f"messages[{at}].tool_calls"
        number = self._met[call.id]
        self._met[call.id] += 1
        made = self._ids.of(call.id if not number else f"{call.id}\n{number}")
        if self._ids.changed(call.id):
            self._lose("converted", where, "tool call id", f"'{call.id}' is called '{made}' here")
        self._given[id(answer)] = made
        name = self._names.get(call.name, call.name)
        if name != call.name:
            self._lose("converted", where, "tool name", f"'{call.name}' is called '{name}' here")
        return {"toolUse": {"toolUseId": made, "name": name, "input": self._input(call.args, where)}}

    def _input(self, args: str, where: str) -> dict[str, Any]:
        value = _parsed(args or "{}")
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        why = "they are no JSON object; they were put into one, under 'arguments'"
        self._lose("repaired", where, "arguments", why)
        return {"arguments": args if value is None else value}

    # User messages

    def _user(self, exchange: Exchange) -> list[dict[str, Any]]:
        layout = self._layouts.get(exchange.where)
        message = self._messages[exchange.where] if layout else exchange.message
        pieces: Sequence[Piece] = layout.pieces if layout else _plain(len(message.content))
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
                if add.get("json") is True and (value := _parsed(block.text)) is not None:
                    return [{"json": value}]
                return self._text(block.text, where)
            case ReasoningSummary():
                self._lose("dropped", where, "reasoning", "it has no signature of this model")
                return []
            case Image() | File():
                return self._account(block, where) if is_account(block) else self._media(block, where, add)

    def _text(self, text: str, where: str) -> list[dict[str, Any]]:
        if text:
            return [{"text": text}]
        self._lose("dropped", where, "empty block", "Bedrock refuses empty text")
        return []

    def _account(self, block: Block, where: str) -> list[dict[str, Any]]:
        why = "told in words: it is not Bedrock's own, or of another endpoint"
        self._lose("converted", where, "server-side tool", why)
        return [{"text": told(cast("File", block))}]

    def _words(self, block: Image | File, where: str, why: str) -> list[dict[str, Any]]:
        """Media that cannot be shown, in words."""
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
            return self._words(block, where, "Bedrock takes bytes or S3, and its bytes are not at hand")
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

    def _result(self, answer: Answer) -> dict[str, Any]:
        result = answer.result
        where = "messages" if answer.where is None else f"messages[{answer.where}].tool_results"
        piece = self._piece_of(answer)
        inside = piece.inside if piece and piece.inside and fits(piece.inside, len(result.content)) else None
        shown = self._shown(result.content, inside or _plain(len(result.content)), where)
        content = [self._in_result(block, where) for block in shown]
        if result.status == "error" and not content:
            self._lose("repaired", where, "tool result", "an error without words; some were put there")
            content = [{"text": _ERROR_WORDS}]
        made: dict[str, Any] = {"toolUseId": self._given[id(answer)], "content": content}
        if result.status == "error":
            made["status"] = "error"
        return {"toolResult": made | ((piece.add or {}) if piece else {})}

    def _in_result(self, block: dict[str, Any], where: str) -> dict[str, Any]:
        """A block as a result may hold it: all but audio."""
        if "audio" not in block:
            return block
        self._lose("converted", where, "file", "told in words: a result holds no audio")
        return {"text": f"[file of type audio/{block['audio']['format']}, not shown]"}

    def _piece_of(self, answer: Answer) -> Piece | None:
        """What Bedrock itself said with a result."""
        if answer.where is None or answer.where not in self._layouts:
            return None
        results = self._messages[answer.where].tool_results
        at = next((at for at, each in enumerate(results) if each is answer.result), None)
        return next((piece for piece in self._layouts[answer.where].pieces if piece.result == at), None)

    def _system(self, exchange: Exchange) -> None:
        """A system message: Bedrock knows none within the conversation."""
        words = "\n\n".join(str(block["text"]) for block in self._user(exchange) if "text" in block)
        where = f"messages[{exchange.where}]"
        if not self.turns:
            self._lose("converted", where, "system message", "it is part of the system words")
            self.system.append(words)
        else:
            self._lose(
                "converted",
                where,
                "system message",
                "told as the user's: Bedrock knows none within a conversation",
            )
            self._turn("user", [{"text": f"<system>\n{words}\n</system>"}] if words else [], exchange.where)


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


def _is_wordless(block: Block) -> bool:
    return isinstance(block, ReasoningSummary) and not block.text


def _plain(content: int, calls: int = 0) -> list[Piece]:
    return [*(Piece(content=at) for at in range(content)), *(Piece(call=at) for at in range(calls))]


def _is_text(body: bytes) -> bool:
    try:
        return bool(body.decode().strip())
    except UnicodeDecodeError:
        return False


def _parsed(text: str) -> object:
    """The JSON value of a text; None if it is none."""
    try:
        return cast("object", json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
