"""The histories that every adapter renders: sound ones, and those that crashes, merges and imports leave behind."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from perdure.model.canonical import Json
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult

__all__ = [
    "BROKEN",
    "HISTORIES",
    "SECRET",
    "SHOWN",
    "SOUND",
    "TOLD_BY_OTHERS",
    "Place",
    "places",
    "user",
]

Place = tuple[str, str]
"""Where in a context, and the words there."""

SECRET = "c2lnbmF0dXJlIG9mIGFub3RoZXI"  # what only its issuer can read

_VENDORS = ("openai", "anthropic", "google", "bedrock", "mistral", "azure", "unknown-vendor")
_PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
_PDF = base64.b64encode(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n").decode()
_WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + b"\x10" + bytes(35)).decode()
_MP4 = base64.b64encode(b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + bytes(8)).decode()
_BLOB = base64.b64encode(bytes(range(40))).decode()


def _metadata(vendor: str) -> dict[str, object]:
    """Return what a vendor might have sent from an unknown endpoint."""
    block = {"type": "thinking", "thinking": SECRET, "signature": SECRET}
    return {
        "endpoint": "elsewhere.example",
        "model": "another-model",
        "response_id": SECRET,
        "message_id": SECRET,
        "signature": SECRET,
        "content": [block],
        "output": [{"type": "reasoning", "id": SECRET, "summary": [], "encrypted_content": SECRET}],
        "parts": [{"text": SECRET, "thoughtSignature": SECRET, "vendor": vendor}],
    }


TOLD_BY_OTHERS = json.dumps({vendor: _metadata(vendor) for vendor in _VENDORS})


def user(*content: str | Block) -> Message:
    """Return what a user says."""
    return Message("user", tuple(Text(each) if isinstance(each, str) else each for each in content))


def said(*content: str | Block, calls: tuple[ToolCall, ...] = (), metadata: str | None = None) -> Message:
    """Return what a model says and asks for."""
    blocks = tuple(Text(each) if isinstance(each, str) else each for each in content)
    return Message("assistant", blocks, calls, vendor_metadata=metadata)


def call(id: str, word: str, name: str = "look_up") -> ToolCall:
    """Return a call of the tool that every history has."""
    return ToolCall(id, name, json.dumps({"word": word}, separators=(",", ":")))


def result(id: str, *content: str | Block, error: bool = False) -> ToolResult:
    """Return what came of a call."""
    blocks = tuple(Text(each) if isinstance(each, str) else each for each in content)
    return ToolResult(id, "error" if error else "success", blocks)


def came(*results: ToolResult) -> Message:
    """Return the results of calls."""
    return Message("tool", tool_results=results)


TOOLS = (
    ToolSpec(
        name="look_up",
        description="Looks a word up in the dictionary of herbs.",
        parameters={
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word."}},
            "required": ["word"],
        },
    ),
    ToolSpec(name="ring", description="Rings the bell of the house."),
)


def _context(*messages: Message, system: str = "You are the gardener.") -> Context:
    return Context(system=system, messages=messages, tools=TOOLS)


def _long() -> tuple[Message, ...]:
    """Return two hundred messages and one, a call and its result in every four."""
    turns: list[Message] = []
    for at in range(50):
        turns.append(user(f"What of bed {at:02}?"))
        turns.append(said(f"Let me see bed {at:02}.", calls=(call(f"call_{at:04}", f"bed-{at:02}"),)))
        turns.append(came(result(f"call_{at:04}", f"Bed {at:02} holds thyme.")))
        turns.append(said(f"In bed {at:02} grows thyme."))
    return (*turns, user("And the last bed?"))


SOUND: dict[str, Context] = {
    "words": _context(user("Which herb is this?"), said("It is sage."), user("And that one?")),
    "one call": _context(
        user("What is borage?"),
        said("One moment.", calls=(call("call_0001", "borage"),)),
        came(result("call_0001", "A blue herb.")),
        said("A herb with blue flowers."),
        user("Thank you."),
    ),
    "parallel calls": _context(
        user("Compare rue and dill."),
        said(calls=(call("call_0001", "rue"), call("call_0002", "dill"))),
        came(result("call_0001", "Rue is bitter.")),
        came(result("call_0002", "Dill is mild.")),
    ),
    "a failed tool": _context(
        user("What is xyzzy?"),
        said(calls=(call("call_0001", "xyzzy"),)),
        came(result("call_0001", "No such herb is known.", error=True)),
    ),
    "201 messages": _context(*_long()),
    "unicode": _context(
        user("Grüße, 世界 👩‍🌾 مرحبا \u202e \x00 \ufeff"), said("Ça va: ½ № 😀"), user("Ok ✓")
    ),
}
"""Histories that every format can say: nothing in them needs a repair."""

BROKEN: dict[str, Context] = {
    "a dangling call": _context(
        user("What is lovage?"), said("I look.", calls=(call("call_0001", "lovage"),)), user("Are you there?")
    ),
    "a dangling call at the end": _context(
        user("What is lovage?"), said(calls=(call("call_0001", "lovage"), call("call_0002", "hyssop")))
    ),
    "a lone result": _context(
        user("Hello."), came(result("call_0009", "A result without a call.")), user("And now?")
    ),
    "a result before its call": _context(
        user("Hello."),
        came(result("call_0001", "Too early by one.")),
        said(calls=(call("call_0001", "tansy"),)),
        user("And now?"),
    ),
    "two results of one call": _context(
        user("Hello."),
        said(calls=(call("call_0001", "tansy"),)),
        came(result("call_0001", "The first of two answers."), result("call_0001", "The second of two.")),
    ),
    "one id for two calls": _context(
        user("Hello."),
        said(calls=(call("call_0001", "tansy"), call("call_0001", "costmary"))),
        came(result("call_0001", "Tansy is a button."), result("call_0001", "Costmary is balm.")),
    ),
    "one id again later": _context(
        user("Hello."),
        said(calls=(call("call_0001", "tansy"),)),
        came(result("call_0001", "Tansy is a button.")),
        said(calls=(call("call_0001", "costmary"),)),
        came(result("call_0001", "Costmary is balm.")),
    ),
    "results that nothing asks for": _context(came(result("call_0001", "An answer without a question."))),
}
"""Histories that no format takes as they are: each has to be repaired, and the report says so."""

_AWKWARD: dict[str, Context] = {
    "nothing": Context(),
    "only a system": Context(system="You are alone."),
    "ends with the assistant": _context(user("Go on."), said("Once upon a time")),
    "begins with the assistant": _context(said("Welcome to the garden."), user("Good day.")),
    "only the assistant": _context(said("I talk to myself.")),
    "one side talks twice": _context(
        user("First thing."), user("Second thing."), said("One answer."), said("Another answer."), user("So?")
    ),
    "empty messages": _context(user(""), said(), user("Is this on?"), said(""), user("   "), user("Yes.")),
    "a result without content": _context(
        user("Ring."), said(calls=(ToolCall("call_0001", "ring", "{}"),)), came(result("call_0001"))
    ),
    "arguments that are no JSON": _context(
        user("Ring."),
        said(calls=(ToolCall("call_0001", "ring", '{"loud": tru'), ToolCall("call_0002", "ring", ""))),
        came(result("call_0001", "The bell did not ring."), result("call_0002", "It rang once.")),
    ),
    "arguments that are no object": _context(
        user("Ring."),
        said(calls=(ToolCall("call_0001", "ring", '["loud"]'), ToolCall("call_0002", "ring", "null"))),
        came(result("call_0001", "The list rang."), result("call_0002", "The null rang.")),
    ),
    "ids that no vendor takes": _context(
        user("Ring."),
        said(calls=(ToolCall("ü/№ 1", "ring", "{}"), ToolCall("x" * 200, "ring", "{}"))),
        came(result("ü/№ 1", "Small bell."), result("x" * 200, "Great bell.")),
    ),
    "a name that no vendor takes": _context(
        user("Ring."),
        said(calls=(ToolCall("call_0001", "läute die Glocke!", "{}"),)),
        came(result("call_0001", "Die Glocke klang.")),
    ),
    "lone surrogates": Context(
        system="System \ud800 half",
        messages=(
            user("Half \ud83d a face"),
            said("Other \ude00 half", calls=(ToolCall("call_\udfff", "ring", '{"word":"\ud800 cut"}'),)),
            came(result("call_\udfff", "Result \udc00 half")),
        ),
        tools=TOOLS,
    ),
    "a system in the middle": _context(
        user("Good day."),
        Message("system", (Text("From now on whisper."),)),
        said("good day"),
        Message("system", (Text("Now shout."),)),
        user("Again?"),
        Message("system", (Text("At the very end: sing."),)),
    ),
    "reasoning": _context(
        user("Why?"),
        said(ReasoningSummary("They ask for the cause of it."), "Because."),
        user("Why so?"),
        said(
            ReasoningSummary("A tool will tell the cause."),
            calls=(call("call_0001", "cause"),),
        ),
        came(result("call_0001", "The cause is rain.")),
        said(ReasoningSummary("Only thoughts and no words.")),
        user("Well?"),
    ),
    "media as data": _context(
        user(
            "Look at all of these:",
            Image(f"data:image/png;base64,{_PNG}", "image/png"),
            Image(f"data:image/tiff;base64,{_BLOB}", "image/tiff"),
            File(f"data:application/pdf;base64,{_PDF}", "application/pdf"),
            File("data:text/plain;base64,bm90ZXMgb24gaGVyYnM=", "text/plain"),
            File(f"data:audio/wav;base64,{_WAV}", "audio/wav"),
            File(f"data:video/mp4;base64,{_MP4}", "video/mp4"),
            File(f"data:application/x-unheard-of;base64,{_BLOB}", "application/x-unheard-of"),
        ),
        said("I have seen them."),
    ),
    "media as addresses": _context(
        user(
            "Look there:",
            Image("https://pictures.example/sage.png", "image/png"),
            Image("https://pictures.example/sage.tiff", "image/tiff"),
            File("https://papers.example/herbs.pdf", "application/pdf"),
            File("https://sounds.example/bell.wav", "audio/wav"),
            File("https://films.example/garden.mp4", "video/mp4"),
            File("artifact://sha256/0123456789abcdef", "application/pdf"),
            File("file-id://elsewhere/file-42", "application/pdf"),
            Image("not an address", "image/png"),
            Image("data:image/png;base64,@@@", "image/png"),
        ),
    ),
    "media from tools and models": _context(
        user("Draw sage."),
        said(calls=(call("call_0001", "sage"), call("call_0002", "rue"))),
        came(
            result("call_0001", "Here it is.", Image(f"data:image/png;base64,{_PNG}", "image/png")),
            result("call_0002", File(f"data:application/pdf;base64,{_PDF}", "application/pdf"), error=True),
        ),
        said("Another.", Image("https://pictures.example/drawn.png", "image/png")),
        user("Nice."),
    ),
    "told by others": _context(
        user("Why?"),
        said(
            ReasoningSummary("Somebody else thought this."),
            "Others said this.",
            calls=(call("call_0001", "why"),),
            metadata=TOLD_BY_OTHERS,
        ),
        came(result("call_0001", "Others found this.")),
        said("Others ended so.", metadata=TOLD_BY_OTHERS),
        user("I see."),
    ),
    "metadata that is no JSON": _context(
        user("Why?"), said("So.", metadata="{broken"), user("Oh?"), said("Yes.", metadata="[1]"), user("Ah.")
    ),
    "options of all kinds": Context(
        system="You are the gardener.",
        messages=(user("Which herb?"),),
        tools=TOOLS,
        options={
            "max_tokens": 400,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "stop": ["END"],
            "seed": 7,
            "tool_choice": {"name": "look_up"},
            "parallel_tool_calls": False,
            "output": {
                "name": "herb",
                "schema": {"type": "object", "properties": {"herb": {"type": "string"}}},
            },
            "reasoning": {"effort": "low"},
            "user": "ann",
            "metadata": {"bed": "7"},
            "an-unknown-option": {"b": 1, "a": [2, {"d": 3, "c": 4}]},
            "vendor": {"unknown-format": {"knob": SECRET}},
        },
    ),
}

HISTORIES: dict[str, Context] = {**SOUND, **BROKEN, **_AWKWARD}
"""Every history by its name."""

_HERB: dict[str, Json] = {
    "type": "object",
    "properties": {"word": {"type": "string", "description": "The word."}},
    "required": ["word"],
    "additionalProperties": False,
}
_STRICT = Context(
    messages=(user("What is dill?"),),
    tools=(ToolSpec(name="look_up", description="Looks a word up.", parameters=_HERB, strict=True),),
)


def _asking(options: dict[str, Json], tools: tuple[ToolSpec, ...] = TOOLS) -> Context:
    return Context(system="You are the gardener.", messages=(user("Again."),), tools=tools, options=options)


SHOWN: dict[str, tuple[Context, str]] = {
    "images": (
        _context(user("See:", Image(f"data:image/png;base64,{_PNG}", "image/png"))),
        "messages[0].content[1]",
    ),
    "image_urls": (
        _context(user("See:", Image("https://pictures.example/sage.png", "image/png"))),
        "messages[0].content[1]",
    ),
    "audio": (
        _context(user("Hear:", File(f"data:audio/wav;base64,{_WAV}", "audio/wav"))),
        "messages[0].content[1]",
    ),
    "video": (
        _context(user("See:", File(f"data:video/mp4;base64,{_MP4}", "video/mp4"))),
        "messages[0].content[1]",
    ),
    "documents": (
        _context(user("Read:", File(f"data:application/pdf;base64,{_PDF}", "application/pdf"))),
        "messages[0].content[1]",
    ),
    "document_urls": (
        _context(user("Read:", File("https://papers.example/herbs.pdf", "application/pdf"))),
        "messages[0].content[1]",
    ),
    "tools": (SOUND["one call"], "tools[0]"),
    "parallel_tools": (SOUND["parallel calls"], "messages"),
    "tool_choice": (_asking({"tool_choice": {"name": "look_up"}}), "options.tool_choice"),
    "strict_tools": (_STRICT, "tools[0]"),
    "tool_result_media": (
        _context(
            user("Draw sage."),
            said(calls=(call("call_0001", "sage"),)),
            came(result("call_0001", "So:", Image(f"data:image/png;base64,{_PNG}", "image/png"))),
        ),
        "messages[2].tool_results[0]",
    ),
    "tool_errors": (SOUND["a failed tool"], "messages[2].tool_results[0]"),
    # Without tools: some models take a form of the answer, and tools, but not both in one request.
    "structured_output": (
        _asking({"output": {"name": "herb", "schema": _HERB}}, ()),
        "options.output.schema",
    ),
    "json_mode": (_asking({"output": "json"}, ()), "options.output"),
    "system": (SOUND["words"], "system"),
    "mid_system": (_context(user("Hi."), Message("system", (Text("Whisper."),)), user("So?")), "messages[1]"),
    "choices": (_asking({"n": 2}), "options.n"),
    "logprobs": (_asking({"logprobs": True}), "options.logprobs"),
    "seed": (_asking({"seed": 7}), "options.seed"),
    "stop": (_asking({"stop": ["END"]}), "options.stop"),
    "top_k": (_asking({"top_k": 5}), "options.top_k"),
}
"""By capability a context that needs it, and where."""


def places(context: Context) -> Iterator[Place]:
    """Return all that a context says, each with its place; what is blank says nothing."""
    found = [("system", context.system)]
    for at, message in enumerate(context.messages):
        here = f"messages[{at}]"
        found += _blocks(f"{here}.content", message.content)
        for nth, asked in enumerate(message.tool_calls):
            found.append((f"{here}.tool_calls[{nth}].name", asked.name))
            found += [(f"{here}.tool_calls[{nth}].args", word) for word in _words(asked.args)]
        for nth, answer in enumerate(message.tool_results):
            found += _blocks(f"{here}.tool_results[{nth}].content", answer.content)
    for at, tool in enumerate(context.tools):
        found += [(f"tools[{at}].name", tool.name), (f"tools[{at}].description", tool.description)]
    return ((where, words) for where, words in found if words.strip())


def _blocks(where: str, content: tuple[Block, ...]) -> list[Place]:
    return [(f"{where}[{at}]", _told(block)) for at, block in enumerate(content)]


def _told(block: Block) -> str:
    if isinstance(block, Text | ReasoningSummary):
        return block.text
    return block.uri.partition(";base64,")[2] or block.uri


def _words(args: str) -> list[str]:
    """Return the words in the arguments of a call; the text itself where it is no JSON object."""
    try:
        told: object = json.loads(args)
    except ValueError:
        return [args]
    if not isinstance(told, dict):
        return [] if told is None else [args]
    return [str(value) for value in told.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
