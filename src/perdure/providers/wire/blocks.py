"""Writes the turns of formats whose messages are lists of blocks, with calls and results among them.

The vendor's own messages return to it in its order and with its blocks (see `block_order`).  Any other
message is written content first, then calls.  A format supplies how each block is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import msgspec

from perdure.model.message import Block, File, Image, Message, ReasoningSummary
from perdure.providers.contract import Loss, LossKind
from perdure.providers.wire.block_order import Piece, fits, layout_of
from perdure.providers.wire.call_ids import CallIds
from perdure.providers.wire.call_pairs import CallAnswer, Exchange, exchanges
from perdure.providers.wire.fields.vendor_metadata import kept, own_ids
from perdure.providers.wire.nesting import is_shallow, is_shallow_text
from perdure.providers.wire.server_tools import is_account

__all__ = ["BlockTurns", "TargetCall", "Layout", "parsed", "words_of"]

_STANDS_FOR = " "  # replaces reasoning without text, so that the message does not count as empty


class Layout(NamedTuple):
    """The vendor's own fields of a message."""

    pieces: tuple[Piece, ...]
    thinking: bool  # whether its model is the one that is asked now


class TargetCall(NamedTuple):
    """A call in the target's form."""

    id: str
    name: str
    input: dict[str, Any]


class BlockTurns:
    """Writes the turns of one request."""

    vendor: ClassVar[str]  # its key in vendorMetadata
    legal_id: ClassVar[str]  # which ids of calls it takes
    id_prefix: ClassVar[str]  # of ids that are made here

    def __init__(self, model: str, provider: str | None, names: Mapping[str, str]) -> None:
        """Take the names of tools in this request, by their canonical names."""
        self.turns: list[dict[str, Any]] = []
        self.losses: list[Loss] = []
        self.system: list[str] = []  # words of system messages that stood before everything else
        self._model, self._provider, self._names = model, provider, names
        self._ids = CallIds(self.legal_id, prefix=self.id_prefix)
        self._given: dict[int, str] = {}  # the id of a call here, by its answer
        self._layouts: dict[int, Layout] = {}
        self._messages: Sequence[Message] = ()
        self._answered: set[int | None] = set()  # the messages whose results are in the last turn

    def write(self, messages: Sequence[Message]) -> None:
        """Write all messages."""
        own = own_ids(messages, self.vendor, endpoint=self._provider)
        self._ids = CallIds(self.legal_id, prefix=self.id_prefix, own=own)
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

    def _write(self, exchange: Exchange) -> None:
        """Add an exchange to the turns."""
        raise NotImplementedError

    def _is_asked(self, made_by: object) -> bool:
        """True if the request goes to the model that wrote the message."""
        raise NotImplementedError

    def _lose(self, kind: LossKind, where: str, what: str, why: str) -> None:
        self.losses.append(Loss(kind=kind, where=where, what=what, why=why))

    def _layout(self, message: Message) -> Layout | None:
        facts = kept(message, self.vendor, endpoint=self._provider)
        pieces = layout_of(facts, message)
        if facts is None or pieces is None:
            return None
        return Layout(pieces, self._is_asked(facts.get("model")))

    def _laid_out(self, exchange: Exchange) -> tuple[Message, Sequence[Piece], Layout | None]:
        """Return a message, the pieces to write, and the vendor's own fields of it."""
        layout = self._layouts.get(exchange.where)
        if layout is not None:
            return self._messages[exchange.where], layout.pieces, layout
        message = exchange.message
        return message, _plain(len(message.content), len(exchange.answers)), None

    def _called(self, answer: CallAnswer, where: str) -> TargetCall:
        """Return a call by the id and the name that it has here; `where` is its place in the context."""
        call = answer.call
        id_here = self._ids.of(call.id)
        if self._ids.changed(call.id):
            self._lose("converted", where, "tool call id", f"'{call.id}' is called '{id_here}' here")
        self._given[id(answer)] = id_here
        name = self._names.get(call.name, call.name)
        if name != call.name:
            self._lose("converted", where, "tool name", f"'{call.name}' is called '{name}' here")
        return TargetCall(id_here, name, self._input(call.args, where))

    def _input(self, args: str, where: str) -> dict[str, Any]:
        value = parsed(args or "{}", default=args)
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        why = "they are no JSON object; they were put into one, under 'arguments'"
        self._lose("repaired", where, "arguments", why)
        return {"arguments": value}

    def _inside(self, answer: CallAnswer) -> tuple[Sequence[Piece], dict[str, Any]]:
        """Return the pieces to write for a result, and the vendor's own fields of it."""
        piece = self._piece_of(answer)
        count = len(answer.result.content)
        if piece is None:
            return _plain(count), {}
        inside = piece.inside if piece.inside and fits(piece.inside, count) else None
        return inside or _plain(count), piece.add or {}

    def _words_alone(self, message: Message, where: str) -> None:
        """Report pictures, files and vendors' own blocks of a system message, of which only the text is sent."""
        for at, block in enumerate(message.content):
            if isinstance(block, Image | File):
                what = "server-side tool" if is_account(block) else "media"
                why = "a system message is sent as text alone"
                self._lose("dropped", f"{where}.content[{at}]", what, why)

    def _piece_of(self, answer: CallAnswer) -> Piece | None:
        layout = self._layouts.get(answer.where) if answer.where is not None else None
        if layout is None:
            return None
        return next((piece for piece in layout.pieces if piece.result == answer.at), None)


def parsed(text: str, *, default: object = None) -> object:
    """Return the JSON value of a text; `default` if it is none, or nested too deeply."""
    try:
        value = cast("object", _DECODER.decode(text))
    except (ValueError, RecursionError):
        return default
    return value if is_shallow_text(text) or is_shallow(value) else default


def words_of(block: ReasoningSummary) -> str:
    """Return the words of thinking; none where something was put in their place."""
    return "" if block.text == _STANDS_FOR else block.text


def _standing(message: Message, pieces: Sequence[Piece]) -> Message:
    """Return the message with something in the place of thinking that has no words, so that it is not taken for empty."""
    wordless = {
        piece.content
        for piece in pieces
        if piece.native is not None
        and piece.content is not None
        and _is_wordless(message.content[piece.content])
    }
    if not wordless:
        return message
    content = tuple(
        ReasoningSummary(_STANDS_FOR) if at in wordless else block for at, block in enumerate(message.content)
    )
    return msgspec.structs.replace(message, content=content)


def _is_wordless(block: Block) -> bool:
    return isinstance(block, ReasoningSummary) and not block.text


def _plain(content: int, calls: int = 0) -> list[Piece]:
    if content <= 1 and calls <= 1:  # nearly all messages
        return [*_ONE[:content], *_CALL[:calls]]
    return [*[Piece(content=at) for at in range(content)], *[Piece(call=at) for at in range(calls)]]


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_ONE, _CALL = [Piece(content=0)], [Piece(call=0)]
