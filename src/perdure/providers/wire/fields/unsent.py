"""Reports the vendor's own fields of a message that the rendered request lacks.

Adapters give a vendor its own blocks back and write every other message from the canonical form alone.  Everything that
vendorMetadata holds beyond that form (signatures, encrypted reasoning, citations, names of files and speakers) is
then absent from the request.  `unsent` lists these fields, looks for each in the request, and reports those that
it does not find.  It only reports: no request depends on it.

Fields that describe an answer and belong in no request (ids of answers, usage, timings, filters) are not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from perdure.model.message import Block, Message, ReasoningSummary, Text
from perdure.providers.contract import Loss, Rendered
from perdure.providers.wire.fields.vendor_items import holes_of, items_of, object_of
from perdure.providers.wire.fields.vendor_metadata import parsed_metadata
from perdure.providers.wire.server_tools import is_account

__all__ = ["unsent"]

_WHATS = {
    "annotations": "citations",
    "citationMetadata": "citations",
    "citations": "citations",
    "citationsContent": "citations",
    "data": "redacted reasoning",
    "displayName": "file name",
    "encrypted_content": "encrypted reasoning",
    "extra_content": "thought signature",
    "filename": "file name",
    "groundingMetadata": "citations",
    "guardContent": "guard content",
    "reasoningContent": "redacted reasoning",
    "reasoning_details": "encrypted reasoning",
    "search_results": "citations",
    "thoughtSignature": "thought signature",
    "thought_signature": "thought signature",
    "urlContextMetadata": "citations",
}
# Fields about an item's form or storage, not about its content.
_FORM = frozenset(
    {
        *("type", "id", "status", "role", "index", "logprobs", "call_id", "size", "cut", "mimeType"),
        *("json", "source", "function_call", "custom", "prefix", "detail", "thought"),
    }
)
# The parts of a Responses message and of a step; a block of its own holds any other kind whole.
_CONTENTS = frozenset(
    {
        *("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"),
        *("input_image", "input_file", "image", "audio", "video", "document"),
    }
)
_PART_DATA = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
_SERVER_PARTS = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
_ITEM_DATA = ("text", "file_id", "image_url", "file_url", "file_data")
_STEP_DATA = ("text", "data", "uri", "mime_type")
_CITING = (
    *("citationMetadata", "groundingMetadata", "urlContextMetadata"),
    *("annotations", "citations", "search_results"),
)
_WHY = "only the server that gave it can use it; it stays in the history"

Leaf: TypeAlias = tuple[object, ...]


class _Field(NamedTuple):
    """A vendor's field beyond the canonical form, and its place in the context."""

    where: str
    name: str
    value: object
    what: str

    @classmethod
    def of(cls, place: str, name: str, value: object) -> _Field:
        """Return a field at `place`; what it is follows from its name."""
        what = _WHATS.get(name, name)
        if name == "citations" and set(object_of(value)) == {"enabled"}:
            what = "citation settings"
        return cls(f"{place}.{name}", name, value, what)


def unsent(
    messages: Sequence[Message],
    rendered: Rendered,
    *,
    vendor: str,
    endpoint: str | None,
    is_chat: bool = False,
) -> list[Loss]:
    """Return a loss for every field of the messages' vendorMetadata that the rendered request does not hold.

    `vendor` and `endpoint` are whose request it is, `is_chat` whether it is one of Chat Completions: fields
    of answers that no server takes back are a loss for other servers alone.
    """
    fields = [
        field
        for at, message in enumerate(messages)
        if message.vendor_metadata is not None
        for field in _fields(message, f"messages[{at}]", (vendor, endpoint), is_chat=is_chat)
    ]
    if not fields:
        return []
    sent = _leaves_of(rendered.body)
    reported = {loss.where for loss in rendered.losses if loss.what == "reasoning"}
    return [
        Loss(
            kind="converted" if field.name == "refusal" else "dropped",
            where=field.where,
            what=field.what,
            why=_WHY,
        )
        for field in fields
        if field.where not in reported and not _leaves_of({field.name: field.value}) <= sent
    ]


def _leaves_of(value: object) -> set[Leaf]:
    """Return the scalars within a value, each under its key, and the keys themselves; None is left out."""
    found: set[Leaf] = set()
    waiting: list[tuple[str, str, object]] = [("", "", value)]
    while waiting:
        parent, key, each = waiting.pop()
        if isinstance(each, str):
            found.add((key, each))
        elif isinstance(each, dict):
            for name, inner in cast("dict[str, object]", each).items():
                if inner is not None:
                    found.add((name,))
                    waiting.append((key, name, inner))
        elif isinstance(each, list | tuple):
            waiting += [(parent, key, inner) for inner in cast("Sequence[object]", each)]
        else:
            found |= {(parent, key, each), ("", key, each)}  # a field that is looked for has no parent
    return found


def _fields(
    message: Message, where: str, server: tuple[str, str | None], *, is_chat: bool
) -> Iterator[_Field]:
    for owner, told in object_of(parsed_metadata(message)).items():
        facts = object_of(told)
        is_own = server in ((owner, None), (owner, facts.get("endpoint")))
        yield from _layout(items_of(facts.get("blocks")), message, message.content, where)
        for item in items_of(facts.get("items")):
            yield from _item(object_of(item), where)
        for step in items_of(facts.get("steps")):
            yield from _step(object_of(step), where)
        for part in items_of(facts.get("parts")):
            yield from _part(object_of(part), where)
        chat = object_of(facts.get("chat"))
        yield from _chat(chat, message, where)
        if not is_own:
            yield from _citing(object_of(facts.get("candidate")), where)
        if not is_own or not is_chat:
            yield from _citing(object_of(chat.get("said")), where)


def _citing(answer: Mapping[str, Any], where: str) -> Iterator[_Field]:
    """Yield the citations of an answer, which no request has a field for."""
    yield from (_Field.of(where, name, answer[name]) for name in _CITING if answer.get(name))


def _beside(fields: Mapping[str, Any], place: str, without: Iterable[str] = ()) -> Iterator[_Field]:
    """Yield the fields of an item that are neither its form, nor empty, nor written elsewhere."""
    for name, value in fields.items():
        is_empty = value is None or value is False or value in ("", [], {})
        if name in _FORM or name.startswith("#") or name in without or is_empty:
            continue
        yield _Field.of(place, name, value)


# ---- layouts: Anthropic and Bedrock


def _layout(
    pieces: Sequence[Any], message: Message, content: Sequence[Block], where: str
) -> Iterator[_Field]:
    for each in pieces:
        piece = object_of(each)
        at, call, result = (piece.get(name) for name in ("content", "call", "result"))
        if isinstance(result, int) and result < len(message.tool_results):
            inner = message.tool_results[result].content
            yield from _layout(
                items_of(piece.get("inside")), message, inner, f"{where}.tool_results[{result}]"
            )
        place = f"{where}.content[{at}]" if at is not None else where
        place = f"{where}.tool_calls[{call}]" if call is not None else place
        place = f"{where}.tool_results[{result}]" if result is not None else place
        block = content[at] if isinstance(at, int) and at < len(content) else None
        yield from _added(object_of(piece.get("add")), place, block)
        yield from _native(object_of(piece.get("native")), block, place)


def _added(add: Mapping[str, Any], place: str, block: Block | None) -> Iterator[_Field]:
    if object_of(add.get("caller")) == {"type": "direct"}:
        add = {name: value for name, value in add.items() if name != "caller"}
    for field in _beside(add, place):
        is_file = field.name in ("name", "title") and block is not None
        yield field._replace(what="file name") if is_file else field


def _native(native: Mapping[str, Any], block: Block | None, place: str) -> Iterator[_Field]:
    """Yield the fields of a vendor's block beyond its canonical block."""
    match block:
        case ReasoningSummary(""):
            yield from (
                _Field(place, name, value, _WHATS.get(name, "reasoning"))
                for name, value in native.items()
                if name != "type"
            )
        case Text(text):
            for name, value in native.items():
                rest = _without(value, text) if name != "type" else None
                if rest or name == "guardContent":
                    yield _Field.of(place, name, rest or {})
        case _:
            return  # reasoning in words and vendors' own tools are reported as blocks, media are whole


def _without(value: object, words: str) -> object:
    """Return the parts of a value that are not written elsewhere; None if there are none."""
    if isinstance(value, Mapping):
        held = {key: _without(each, words) for key, each in cast("Mapping[str, object]", value).items()}
        return {key: each for key, each in held.items() if each is not None and key != "type"} or None
    if isinstance(value, list):
        listed = [_without(each, words) for each in cast("list[object]", value)]
        return [each for each in listed if each is not None] or None
    return None if isinstance(value, str) and value in words else value


# ---- shells: Responses and Gemini


def _item(item: Mapping[str, Any], where: str) -> Iterator[_Field]:
    match item.get("type"):
        case None | "message":
            yield from _beside(item, where, ("content",))
            yield from _contents(items_of(item.get("content")), where)
        case "reasoning":
            if not holes_of(item.get("summary")):
                name = "encrypted_content" if item.get("encrypted_content") else "id"
                yield _Field(f"{where}.reasoning", name, item.get(name), _WHATS.get(name, "reasoning"))
        case "function_call" | "custom_tool_call":
            yield from _beside(item, f"{where}.tool_calls[{item.get('#call')}]")
        case "function_call_output" | "custom_tool_call_output":
            place = f"{where}.tool_results[0]"
            yield from _beside(item, place, ("output",))
            yield from _contents(items_of(item.get("output")), place)
        case _:
            return  # a vendor's own tool, which is reported as a block


def _contents(parts: Sequence[Any], where: str, data: tuple[str, ...] = _ITEM_DATA) -> Iterator[_Field]:
    for each in parts:
        part = object_of(each)
        if str(part.get("type")) not in _CONTENTS:
            continue
        holes = {name: at for name, value in part.items() for at in holes_of(value)}
        place = f"{where}.content[{min(holes.values())}]" if holes else where
        yield from _beside(part, place, (*holes, *data))
        detail = part.get("detail")
        if detail not in (None, "auto"):
            yield _Field.of(place, "detail", detail)
        if "refusal" in holes:
            yield _Field(f"{place}.refusal", "refusal", {}, "refusal")


def _step(step: Mapping[str, Any], where: str) -> Iterator[_Field]:
    """Yield the fields of an interaction's step beyond its canonical form."""
    match step.get("type"):
        case "thought":
            yield from map(_signed, _beside(step, where, ("summary",)))
            yield from _contents(items_of(step.get("summary")), where, _STEP_DATA)
        case "function_call":
            yield from map(_signed, _beside(step, f"{where}.tool_calls[{step.get('#call')}]"))
        case "function_result":
            place = f"{where}.tool_results[0]"
            yield from _beside(step, place, ("result", "is_error"))
            yield from _contents(items_of(step.get("result")), place, _STEP_DATA)
        case None | "user_input" | "model_output":
            yield from _beside(step, where, ("content", "error"))
            yield from _contents(items_of(step.get("content", step.get("#contents"))), where, _STEP_DATA)
        case _:
            return  # a tool of Google's own, which is reported as a block


def _signed(field: _Field) -> _Field:
    return field._replace(what="thought signature") if field.name == "signature" else field


def _part(part: Mapping[str, Any], where: str) -> Iterator[_Field]:
    """Yield the fields of a Gemini part beside its data, and its data beyond the canonical form."""
    place = _part_place(part, where)
    if part.keys().isdisjoint((*_PART_DATA, *_SERVER_PARTS)):  # its kind is unknown, and a block holds it
        part = {name: value for name, value in part.items() if name == "thoughtSignature"}
    yield from _beside(part, place, (*_PART_DATA, *_SERVER_PARTS))
    for name in ("inlineData", "fileData"):
        yield from _beside(object_of(part.get(name)), place, ("data", "fileUri"))
    yield from _beside(object_of(part.get("functionCall")), place, ("args", "name"))
    answer = object_of(part.get("functionResponse"))
    yield from _beside(answer, place, ("response", "name", "parts"))
    for inner in items_of(answer.get("parts")):
        yield from _part(object_of(inner), place)


def _part_place(part: Mapping[str, Any], where: str) -> str:
    call, result = object_of(part.get("functionCall")), object_of(part.get("functionResponse"))
    if "#call" in call:
        return f"{where}.tool_calls[{call['#call']}]"
    if "#result" in result:
        return f"{where}.tool_results[{result['#result']}]"
    at = next(iter(holes_of(part)), None)
    return where if at is None else f"{where}.content[{at}]"


# ---- Chat


def _chat(told: Mapping[str, Any], message: Message, where: str) -> Iterator[_Field]:
    result = f"{where}.tool_results[0]" if message.tool_results else where
    for field in _beside(object_of(told.get("fields")), result):
        yield field._replace(what="speaker name") if field.name == "name" else field
    for field in _beside(object_of(told.get("bound")), where):
        if _says_more(field.value, message):
            yield field
    content = message.tool_results[0].content if message.tool_results else message.content
    for at, part in object_of(told.get("parts")).items():
        place = f"{result}.content[{at}]"
        block = content[int(at)] if at.isdigit() and int(at) < len(content) else None
        if block is not None and not isinstance(block, ReasoningSummary) and not is_account(block):
            yield from _details(object_of(object_of(part).get("add")), place)
    for at, more in object_of(told.get("calls")).items():
        yield from _beside(object_of(more), f"{where}.tool_calls[{at}]")
    if isinstance(told.get("refusal"), int):
        yield _Field(f"{where}.content[{told['refusal']}].refusal", "refusal", {}, "refusal")


def _says_more(value: object, message: Message) -> bool:
    """True if reasoning holds more than the words that the canonical message has of it."""
    words = "".join(block.text for block in message.content if isinstance(block, ReasoningSummary))
    held = [leaf[-1] for leaf in _leaves_of(value) if len(leaf) > 1 and leaf[-2] in ("data", "signature")]
    texts = [leaf[1] for leaf in _leaves_of(value) if len(leaf) == 2 and leaf[0] in ("text", "summary")]
    return bool(held) or any(str(text) not in words for text in texts) or not words


def _details(add: Mapping[str, Any], place: str) -> Iterator[_Field]:
    """Yield the fields beside a part, each scalar under its own name."""
    for name, value in add.items():
        inner = object_of(value)
        if name == "detail" and value != "auto":
            yield _Field.of(place, name, value)
        elif inner and name in ("file", "image_url", "input_audio", "video_url"):
            yield from _details(inner, place)
        else:
            yield from _beside({name: value}, place)
