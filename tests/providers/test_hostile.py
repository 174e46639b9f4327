"""Whatever comes from outside is read, or refused by an error of Perdure's own: no adapter crashes on it."""

from __future__ import annotations

import gc
import json
import random
from typing import Any

import msgspec
import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, Text, ToolCall, ToolResult
from perdure.providers import adapter, registry
from perdure.testing.adapters.histories import HISTORIES
from tests.coded import raises
from tests.crash.campaign import DEEP as IS_DEEP
from tests.crash.campaign import sized
from tests.providers.hostile import (
    EXAMPLES,
    HOSTILE,
    disordered,
    encoded,
    events_of,
    nested,
    places,
    put,
    untyped,
)

each_api = pytest.mark.parametrize("api", registry.APIS)

OPTIONS: dict[str, Any] = {
    "max_tokens": 400,
    "temperature": 0.5,
    "top_k": 5,
    "stop": ["END"],
    "tool_choice": {"name": "look_up"},
    "parallel_tool_calls": False,
    "output": {"name": "herb", "schema": {"type": "object", "required": ["a"], "properties": {"a": {}}}},
    "reasoning": {"effort": "low", "budget_tokens": 2_000, "enabled": True, "summary": "auto"},
    "user": "ann",
    "metadata": {"bed": "7"},
    "n": 2,
    "service_tier": "auto",
    "cache": True,
}
RAW = (
    *(b"", b"\n", b"data:", b"data: \n\n", b"data: null\n\n", b"data: []\n\n", b"data: {}\n\n"),
    *(b"\x00" * 100, b"\xff\xfe", b"[", b"[{", b"[{}]", b"{}", b"data: [DONE]\n\n"),
    *(b'data: {"error":7}\n\n', b'data: {"error":null}\n\n', b"data: " + b"[" * 5_000 + b"\n\n"),
    b"data: " + b'{"a":' * 600 + b"1" + b"}" * 600 + b"\n\n",
)
ARGUMENTS = ("", "{", "[]", "null", "NaN", '{"a":NaN}', '{"a":1e999}', '{"\ud800":1}', '{"a":"\\ud800"}')
DEEP = '{"a":' * 3_000 + "1" + "}" * 3_000
URIS = (
    *("", "data:", "data:,", "data:image/png;base64,@@@@", "data:;base64,AAAA", "http://[::1", "\ud800"),
    *("file:///etc/passwd", "artifact://", "file-id://", "s3://", "data:text/plain,hello"),
)


@pytest.fixture(scope="module", autouse=True)
def freed_before() -> None:
    """Free what earlier tests left: an SDK's finalizer that runs deep inside a nested value has no stack left."""
    gc.collect()


def hostile_cases(example: Any) -> list[tuple[Any, Any]]:
    """Every place of an example with every hostile value in a deep run; otherwise with another sixth of them each."""
    return [
        (at, new)
        for number, at in enumerate(places(example))
        for new in (HOSTILE if IS_DEEP else HOSTILE[number % 6 :: 6])
    ]


def read_and_rendered(api: str, request: Any) -> Any:
    """A request, read and written again."""
    context = adapter(api).read_request(request)
    return adapter(api).render(context, model=EXAMPLES[api].model)


@each_api
def test_an_answer_with_anything_in_any_place_is_read_or_refused(api: str) -> None:
    """Every place of an example, every hostile value."""
    reply = dict(EXAMPLES[api].reply)
    cases = hostile_cases(reply)

    found = {
        f"{at}": untyped(lambda at=at, new=new: adapter(api).parse(put(reply, at, new))) for at, new in cases
    }

    assert {at: error for at, error in found.items() if error} == {}


@each_api
def test_a_request_with_anything_in_any_place_is_read_and_written_or_refused(api: str) -> None:
    """Import is for what others saved, whatever has become of it."""
    request = dict(EXAMPLES[api].request)
    cases = hostile_cases(request)

    found = [
        (at, untyped(lambda at=at, new=new: read_and_rendered(api, put(request, at, new))))
        for at, new in cases
    ]

    assert [each for each in found if each[1]] == []


@each_api
def test_a_stream_with_anything_in_any_event_is_read_or_refused(api: str) -> None:
    """Every event, every place in it; and events in any order, missing, repeated or unknown."""
    events, chance = events_of(api), random.Random(17)
    changed = [
        [*events[:number], put(event, at, new), *events[number + 1 :]]
        for number, event in enumerate(events)
        for at in places(event)
        for new in chance.sample(HOSTILE, sized(2, 6))
    ]
    changed += [disordered(events, chance) for _ in range(sized(40, 300))]

    errors = [untyped(lambda each=each: adapter(api).parse_stream([encoded(api, each)])) for each in changed]

    assert [error for error in errors if error] == []


@each_api
def test_a_stream_that_ends_or_is_damaged_anywhere_is_read_or_refused(api: str) -> None:
    """Cut at every byte, with any bytes changed, or of bytes that never were a stream."""
    whole, chance = EXAMPLES[api].streamed, random.Random(23)
    damaged = [bytearray(whole) for _ in range(sized(40, 300))]
    for body in damaged:
        for _ in range(chance.randrange(1, 5)):
            body[chance.randrange(len(body))] = chance.randrange(256)
    cases = [*(whole[:at] for at in range(0, len(whole), sized(7, 1))), *map(bytes, damaged), *RAW]

    errors = [untyped(lambda body=body: adapter(api).parse_stream([body])) for body in cases]

    assert [error for error in errors if error] == []


@each_api
def test_options_and_schemas_of_any_shape_are_rendered_or_refused(api: str) -> None:
    """An option that is none is left out and reported; a schema that is none is sent or mended."""
    base = HISTORIES["one call"]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"enum": [1]}]}},
        "required": [],
    }
    contexts = [
        msgspec.structs.replace(base, options=put(OPTIONS, at, new))
        for at, new in hostile_cases(OPTIONS)
        if at
    ]
    contexts += [
        msgspec.structs.replace(
            base, tools=(ToolSpec(name="f", parameters=put(schema, at, new), strict=True),)
        )
        for at, new in hostile_cases(schema)
        if at
    ]

    errors = [
        untyped(lambda each=each: json.dumps(adapter(api).render(each, model=EXAMPLES[api].model).body))
        for each in contexts
    ]

    assert [error for error in errors if error] == []


@each_api
def test_what_is_kept_for_a_vendor_may_be_anything(api: str) -> None:
    """A message whose vendorMetadata was tampered with is rendered from its canonical form."""
    reply = adapter(api).parse(EXAMPLES[api].reply).message
    kept = json.loads(reply.vendor_metadata or "{}")
    results = tuple(ToolResult(call.id, "success", (Text("x"),)) for call in reply.tool_calls)
    cases = [(at, new) for at, new in hostile_cases(kept) if all(new is not deep for deep in HOSTILE[-3:])]

    def rendered(at: Any, new: Any) -> None:
        message = msgspec.structs.replace(reply, vendor_metadata=json.dumps(put(kept, at, new)))
        history = [Message("user", (Text("Hi."),)), message, Message("tool", (), (), results)]
        json.dumps(adapter(api).render(Context(messages=history), model=EXAMPLES[api].model).body)

    found = [(at, untyped(lambda at=at, new=new: rendered(at, new))) for at, new in cases]

    assert [each for each in found if each[1]] == []


@each_api
def test_media_arguments_ids_and_names_of_any_kind_are_rendered(api: str) -> None:
    """A history holds what models and tools came up with; all of it can be shown."""
    uris = [
        kind(uri, mime) for uri in URIS for mime in ("", "image/png", "x", "\ud800") for kind in (Image, File)
    ]
    histories = [[Message(role, (block,))] for block in uris for role in ("user", "assistant", "system")]
    for args in (*ARGUMENTS, DEEP, '{"a":%s}' % ("1" * 5_000)):
        for id, name in (("c1", "f"), ("", ""), ("\ud800", "\ud800"), ("x" * 500, "y" * 500)):
            call = ToolCall(id, name, args)
            result = ToolResult(id, "error", (Text(args), *uris[:3]))
            histories.append([Message("assistant", (), (call, call)), Message("tool", (), (), (result,))])

    def rendered(history: Any) -> None:
        body = adapter(api).render(Context(messages=history), model=EXAMPLES[api].model).body
        json.dumps(body)

    errors = [untyped(lambda each=each: rendered(each)) for each in histories]

    assert [error for error in errors if error] == []


@each_api
def test_twenty_megabytes_are_read_and_rendered(api: str) -> None:
    """As one body, as one line of a stream in small pieces, and as one message."""
    words = "x" * 20_000_000
    at = max((at for at in places(EXAMPLES[api].reply) if at[-1:] in (("text",), ("content",))), key=len)

    reply = adapter(api).parse(put(dict(EXAMPLES[api].reply), at, words))
    body = adapter(api).render(Context(messages=[Message("user", (Text(words),))]), model="m").body

    assert reply.message.text == words
    assert len(json.dumps(body)) > len(words)


@each_api
def test_many_calls_under_one_id_cost_no_more_than_many_calls(api: str) -> None:
    """Five thousand of them, with their results, each come out under an id of its own."""
    calls = tuple(ToolCall("same", "f", "{}") for _ in range(5_000))
    results = tuple(ToolResult("same", "success", (Text("r"),)) for _ in range(5_000))
    history = [
        Message("user", (Text("q"),)),
        Message("assistant", (), calls),
        Message("tool", (), (), results),
    ]

    rendered = adapter(api).render(Context(messages=history), model=EXAMPLES[api].model)

    assert sum(loss.what == "tool call id" for loss in rendered.losses) >= 4_999


def test_what_is_nested_too_deeply_says_so() -> None:
    """What it is, how deep it may be, and that nothing was read."""
    body = dict(EXAMPLES["openai-chat"].reply) | {"deep": nested(300, lists=True)}

    with raises(Invalid, "nested_too_deep", what="the answer", depth_max=200):
        adapter("openai-chat").parse(body)


def test_a_crash_is_seen() -> None:
    """The control: what is no error of Perdure's own is told, what is one is not."""

    def crash() -> None:
        raise KeyError("type")

    def refuse() -> None:
        raise Invalid("no; nothing was read.")

    assert untyped(crash) == "KeyError: 'type'"
    assert untyped(refuse) is None
