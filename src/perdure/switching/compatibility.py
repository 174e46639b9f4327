"""Checks what another backend would keep, convert and remove of a conversation.

Only what the conversation has is graded: attached tools, media that will be shown, an answer's schema, options that
are set.  Each is kept, converted (with the fallback named) or removed.  Nothing is sent, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.context.render.conversation import CutText
from perdure.context.render.media import PREFIX, lost
from perdure.model.context import Context, ToolSpec
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers import registry
from perdure.providers.capabilities import Capability, Level, least
from perdure.providers.contract import Loss
from perdure.providers.profile import BackendProfile
from perdure.providers.structured_output import request_options
from perdure.providers.wire.media import inline, is_web, kind_of
from perdure.providers.wire.server_tools import is_account
from perdure.switching.policy import Topic
from perdure.switching.report import Item

__all__ = ["ShownToTarget", "check", "losses", "sealed"]

_MEDIA: tuple[tuple[str, Topic, Capability, str], ...] = (
    ("image", "images", Capability.IMAGES, "image"),
    ("file", "documents", Capability.DOCUMENTS, "document"),
    ("audio", "audio", Capability.AUDIO, "audio"),
    ("video", "video", Capability.VIDEO, "video"),
)
_BY_ADDRESS = {
    Capability.IMAGES: Capability.IMAGE_URLS,
    Capability.DOCUMENTS: Capability.DOCUMENT_URLS,
}
_FILE_ID = "file-id://"
_CUTS_SHOWN = 8  # cuts that have a line of their own
_SEALED = ('"signature"', '"thoughtSignature"', '"thought_signature"', "encrypted_content", "redacted")
# The names, in losses, of reasoning that a request leaves out.
_THOUGHTS = frozenset({"reasoning", "encrypted reasoning", "redacted reasoning", "thought signature"})

_INPUT = Message("user", (Text("-"),))  # stands for the next input, which the user has not written yet

# Options that have items of their own, or do not concern the answer.
_GRADED = frozenset({"output", "output_schema", "tool_choice", "parallel_tool_calls", "reasoning", "vendor"})


class ShownToTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation as the new backend would be shown it."""

    context: Context  # with the bytes of its media
    history: Sequence[Message] = ()  # the turns in it as they were said, before calls were told in words
    omitted: Sequence[Message] = ()  # messages of the last turn that do not fit
    tokens: int = 0  # of the whole request
    budget: int | None = None  # tokens that the request may have; None: not known
    fits: bool = True  # True: the request, margin included, is within the budget
    turns: int | None = None  # the number of shown turns, if others were left out or cut
    from_api: str | None = None  # the wire format that the conversation comes from; None: not known
    mcp: frozenset[str] = frozenset()  # tools of MCP servers, by name
    cuts: tuple[CutText, ...] = ()  # texts that are shown in part
    lost: tuple[Loss, ...] = ()  # calls that are told in words, and cuts
    calls_in_words: int = 0  # earlier calls that are summarised, by the checkpoint or one by one
    calls_native: int = 0  # earlier calls that are shown as call and result


def check(shown: ShownToTarget, to: BackendProfile, lost: Sequence[Loss]) -> tuple[Item, ...]:
    """Return an item for each thing that the conversation has; the policy is applied later.

    `lost` is what the next request could not represent, as `losses` returns it.
    """
    return (
        *_text(to),
        *_tools(shown, to),
        *_earlier_calls(shown),
        *_context(shown, to),
        *_cuts(shown),
        *_strict_json(shown, to, lost),
        *_media(shown, to),
        *_vendor_tools(shown, to),
        *_server_work(shown, to),
        *_reasoning(shown, to, lost),
        *_calling(shown, to),
        *_rest(lost),
    )


def sealed(shown: ShownToTarget, to: BackendProfile) -> bool:
    """True if the messages have encrypted reasoning that `to` cannot read.

    It is for a note to people alone: no grade depends on data that only a vendor can read.
    """
    if _same_format(shown, to):
        return False
    metadata = [message.vendor_metadata for message in shown.history if message.vendor_metadata is not None]
    return any(word in each for each in metadata for word in _SEALED)


def losses(shown: ShownToTarget, to: BackendProfile, *, inside: bool = False) -> tuple[Loss, ...]:
    """Return what the next request could not represent unchanged; for an unknown format, what is named in words.

    `inside` a run the conversation goes on as it is; otherwise the next request has an input.
    """
    named = (*lost(shown.history, to.unseen), *shown.lost)
    is_streamed = (
        "stream" in shown.context.options
    )  # else Perdure added the option, and its loss does not count
    if to.target is None:
        return named
    options = request_options(dict(shown.context.options))
    messages = shown.context.messages
    if not inside and (not messages or messages[-1].role == "assistant"):
        messages = (*messages, _INPUT)
    asked = msgspec.structs.replace(shown.context, messages=messages, options=options)
    adapter = registry.adapter(to.target.api)
    rendered = adapter.render(asked, model=to.target.model, provider=to.target.provider)
    return (*named, *(loss for loss in rendered.losses if is_streamed or loss.where != "options.stream"))


# ---- one function a topic


def _text(to: BackendProfile) -> Iterator[Item]:
    if to.does(Capability.TEXT) == "full":
        yield _kept("text", "Text conversation supported")
    else:
        yield _removed("text", "Text conversation unavailable", why="the model takes and gives no text")


def _tools(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    own = [tool for tool in shown.context.tools if tool.name not in shown.mcp]
    theirs = [tool for tool in shown.context.tools if tool.name in shown.mcp]
    level = to.does(Capability.TOOLS)
    if own:
        yield _graded("tools", "Tools", own, level)
    if theirs:
        yield _graded("mcp_tools", "MCP tools", theirs, level)


def _earlier_calls(shown: ShownToTarget) -> Iterator[Item]:
    """Grade earlier calls: another backend is told of them in words, the same backend gets them back as made."""
    told, native = shown.calls_in_words, shown.calls_native
    if told:
        beside = f"; {_calls(native)} as made" if native else ""
        says = f"{_calls(told)} will be summarised{beside}"
        why = (
            "the calls were made by another backend; each is told with what came of it, and none is replayed"
        )
        yield Item(topic="earlier_calls", mark="converted", says=says, fallback="summary", why=why)
    elif native:
        why = "as call and result"
        yield _kept("earlier_calls", f"{_calls(native)} will be shown as made", why=why)


def _calls(number: int) -> str:
    return f"{number:,} earlier tool call{'s' if number > 1 else ''}"


def _graded(topic: Topic, name: str, tools: Sequence[ToolSpec], level: Level) -> Item:
    named = ", ".join(tool.name for tool in tools)
    if level == "full":
        return _kept(topic, f"{name} supported", why=named)
    if level == "lossy":
        return _converted(topic, f"{name} differ", fallback="declared as far as it takes them", why=named)
    return _removed(
        topic, f"{name} unavailable; tools will be removed for this conversation", why=f"removed: {named}"
    )


def _context(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    if to.window is None:
        return
    size, need = _thousands(to.window), f"{shown.tokens:,} tokens are shown"
    if not shown.fits:
        free = "" if shown.budget is None else f", and {shown.budget:,} are free"
        why = f"the least that has to be shown takes {shown.tokens:,} tokens{free}"
        yield _removed("context", f"{size} context insufficient", why=why)
    elif shown.omitted:
        number = f"{len(shown.omitted)} of its messages" if len(shown.omitted) > 1 else "one of its messages"
        says = f"{size} context does not hold the last turn; {number} will be left out"
        yield _converted("context", says, fallback="checkpoint", why=need)
    elif shown.turns is not None:
        says = f"{size} context holds {_turns(shown.turns)}, older ones will be left out"
        yield _converted("context", says, fallback="checkpoint", why=need)
    else:
        yield _kept("context", f"{size} context sufficient", why=need)


def _cuts(shown: ShownToTarget) -> Iterator[Item]:
    """Yield an item for each of the first few cuts, and one for all others."""
    for cut in shown.cuts[:_CUTS_SHOWN]:
        says = f"{cut.what[:1].upper()}{cut.what[1:]} will be cut to {cut.sizes}"
        why = f"the window has no room for it; the whole is {cut.reference or 'in the history'}"
        yield Item(topic="results", mark="converted", says=says, fallback="cut", why=why)
    rest = shown.cuts[_CUTS_SHOWN:]
    if rest:
        size, kept = sum(each.characters for each in rest), sum(each.characters_shown for each in rest)
        says = f"{len(rest)} more texts will be cut to {kept:,} of {size:,} characters in all"
        yield Item(topic="results", mark="converted", says=says, fallback="cut")


def _strict_json(shown: ShownToTarget, to: BackendProfile, lost: Sequence[Loss]) -> Iterator[Item]:
    options = shown.context.options
    wanted = options.get("output") or options.get("output_schema")
    if not wanted:
        return
    if wanted == "json":
        level, name = to.does(Capability.JSON_MODE), "JSON mode"
    else:
        level, name = to.does(Capability.STRUCTURED_OUTPUT), "JSON schema strict mode"
    in_words = any(loss.kind == "converted" and loss.where == "options.output" for loss in lost)
    if level == "full" and not in_words:
        yield _kept("strict_json", f"{name} supported")
    else:
        why = "the backend does not hold its answers to the schema; they are checked when they are read"
        yield _converted("strict_json", f"{name} differs", fallback="loose-parse", why=why)


def _media(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    history = (*shown.history, *shown.omitted)
    blocks = [(at, block) for at, message in enumerate(history) for block in _blocks(message)]
    bound = [block for _, block in blocks if _uri(block).startswith(_FILE_ID)]
    last = _last_turn(history)
    left_out = _left_out(shown)
    why = "the window has no room for the message that holds it"
    for kind, topic, capability, word in _MEDIA:
        found = [(at, block) for at, block in blocks if block not in bound and _kind(block) == kind]
        if not found:
            continue
        when = "Previous turn" if found[-1][0] >= last else "An earlier turn"
        if any(_uri(block) in left_out for _, block in found):
            yield _removed(topic, f"{when} used {word} input; it will not be shown", why=why)
            continue
        levels: list[Level] = [_level(block, capability, to) for _, block in found]
        yield _medium(topic, word, when, least(*levels), same=_same_format(shown, to))
    strange = [block for block in dict.fromkeys(bound) if not _is_taken(block, to)]
    if any(_uri(block) in left_out for block in bound):
        yield _removed("files", "Files kept by the vendor will not be shown", why=why)
    elif bound:
        yield _bound_files(strange)


def _left_out(shown: ShownToTarget) -> set[str]:
    """Return the addresses of media in omitted messages that no shown message has."""
    present = {_uri(block) for message in shown.context.messages for block in _blocks(message)}
    return {_uri(block) for message in shown.omitted for block in _blocks(message)} - present


def _level(block: Block, capability: Capability, to: BackendProfile) -> Level:
    """Grade one block; a web address alone is accepted only if the backend fetches it."""
    uri = _uri(block)
    if capability in _BY_ADDRESS and is_web(uri):
        return least(to.does(capability), to.does(_BY_ADDRESS[capability]))
    is_unreadable = uri.startswith(PREFIX) or (uri.startswith("data:") and inline(uri) is None)
    return "none" if is_unreadable else to.does(capability)


def _medium(topic: Topic, word: str, when: str, level: Level, *, same: bool) -> Item:
    if level == "none":
        return _removed(
            topic,
            f"{when} used {word} input; {word} input unavailable, it will be named in words",
            fallback="words",
            why=f"the backend takes no {word}",
        )
    if level == "full" and same:
        return _kept(topic, f"{word.capitalize()} input supported")
    why = "the wire formats differ" if not same else f"the backend takes {word} input with limits"
    says = f"{when} used {word} input; {word} format will be transformed"
    return Item(topic=topic, mark="converted", says=says, fallback="transformed", why=why)


def _bound_files(strange: Sequence[Block]) -> Item:
    if not strange:
        return _kept("files", "Files kept by the vendor supported")
    owners = ", ".join(sorted({_uri(block).removeprefix(_FILE_ID).partition("/")[0] for block in strange}))
    number = f"{len(strange)} file{'s' if len(strange) > 1 else ''}"
    return _removed(
        "files",
        f"{number} kept by {owners} unavailable; named in words for this conversation",
        fallback="words",
        why="only the vendor that keeps a file can read it by its id",
    )


def _vendor_tools(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    """Grade attached tools of a vendor: other formats do not know their declaration."""
    declared = list(_declared(shown.context.options))
    for is_computer in (False, True):
        found = [(api, kind) for api, kind in declared if ("computer" in kind) is is_computer]
        if not found:
            continue
        capability = Capability.COMPUTER_USE if is_computer else Capability.SERVER_TOOLS
        topic: Topic = "computer_use" if is_computer else "server_tools"
        api = to.target.api if to.target else None
        taken = to.does(capability) != "none" and all(api == each for each, _ in found)
        named = ", ".join(dict.fromkeys(kind for _, kind in found))
        name = "Computer-use tool" if is_computer else f"Server tool {named}"
        if taken:
            yield _kept(topic, f"{name} supported", why=named)
        else:
            why = f"{named} is declared for {', '.join(sorted({each for each, _ in found}))}"
            says = f"{name} unavailable; tool will be removed for this conversation"
            yield _removed(topic, says, why=why)


def _server_work(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    """Grade the earlier work of a vendor's own tools."""
    works = any(is_account(block) for message in shown.history for block in message.content)
    if works and not _same_format(shown, to):
        why = "a vendor's own blocks go back to that vendor alone"
        yield _converted(
            "server_tools",
            "Earlier turns used a server tool; what it did will be told in words",
            fallback="words",
            why=why,
        )


def _reasoning(shown: ShownToTarget, to: BackendProfile, lost: Sequence[Loss]) -> Iterator[Item]:
    """Grade reasoning, of earlier turns and of the next: it is supported only if the request has all of it."""
    left_out = any(loss.where.startswith("messages") and loss.what in _THOUGHTS for loss in lost)
    thought = left_out or any(_is_thought(message) for message in shown.history)
    asked = bool(shown.context.options.get("reasoning"))
    if not thought and not asked:
        return
    level = to.does(Capability.REASONING)
    if level == "none":
        yield _removed(
            "reasoning", "Reasoning unavailable; the model answers without it", why="not a thinker"
        )
    elif left_out:
        yield _converted(
            "reasoning",
            "Earlier reasoning is readable by its issuer alone; it stays in the history",
            fallback="kept for its issuer",
            why="signatures and sealed reasoning go back to who made them",
        )
    elif level == "lossy":
        yield _converted("reasoning", "Reasoning differs", fallback="as far as it tells of it")
    else:
        yield _kept("reasoning", "Reasoning supported")


def _calling(shown: ShownToTarget, to: BackendProfile) -> Iterator[Item]:
    options = shown.context.options
    several = any(len(message.tool_calls) > 1 for message in shown.history)
    if shown.context.tools and (several or options.get("parallel_tool_calls") is not None):
        yield _by_level("parallel_tools", "Parallel tool calls", to.does(Capability.PARALLEL_TOOLS))
    if options.get("tool_choice") is not None:
        yield _by_level("tool_choice", "Tool choice", to.does(Capability.TOOL_CHOICE))
    if any(tool.strict for tool in shown.context.tools):
        level = to.does(Capability.STRICT_TOOLS)
        if level == "full":
            yield _kept("strict_tools", "Strict tool arguments supported")
        else:
            why = "arguments are checked against the schema before a tool is called"
            yield _converted("strict_tools", "Strict tool arguments differ", fallback="validation", why=why)


def _rest(found: Sequence[Loss]) -> Iterator[Item]:
    """Grade ids and options, by the losses of the rendered request."""
    if any("id" in loss.what.split() and "call" in loss.what for loss in found):
        why = "the target takes ids of another form"
        yield _converted("ids", "Tool call ids differ", fallback="made anew, the same each time", why=why)
    for loss in found:
        name = loss.where.removeprefix("options.").partition(".")[0].partition("[")[0]
        if not loss.where.startswith("options.") or name in _GRADED:
            continue
        if loss.kind == "dropped":
            yield _removed("options", f"Option {name} unavailable; it will be left out", why=loss.why)
        else:
            yield _converted("options", f"Option {name} differs", fallback=loss.kind, why=loss.why)


def _by_level(topic: Topic, name: str, level: Level) -> Item:
    if level == "full":
        return _kept(topic, f"{name} supported")
    if level == "lossy":
        return _converted(topic, f"{name} differs", fallback="as far as it takes it")
    return _removed(topic, f"{name} unavailable; it will be left out")


# ---- the parts of a conversation


def _blocks(message: Message) -> Iterator[Block]:
    yield from message.content
    for result in message.tool_results:
        yield from result.content


def _uri(block: Block) -> str:
    return block.uri if isinstance(block, Image | File) else ""


def _kind(block: Block) -> str:
    if not isinstance(block, Image | File) or is_account(block):
        return ""
    kind = "image" if isinstance(block, Image) else kind_of(block.mime_type, block.uri)
    return "file" if kind == "text" else kind


def _is_taken(block: Block, to: BackendProfile) -> bool:
    """True if a request to the backend can have the file by its id, as its adapter says."""
    if to.target is None:
        return False
    asked = Context(messages=[Message("user", (block,))])
    adapter = registry.adapter(to.target.api)
    return not adapter.render(asked, model=to.target.model, provider=to.target.provider).losses


def _is_thought(message: Message) -> bool:
    return any(isinstance(block, ReasoningSummary) for block in message.content)


def _last_turn(history: Sequence[Message]) -> int:
    """Return the index of the last message of the user, with which the last turn begins."""
    return max((at for at, message in enumerate(history) if message.role == "user"), default=0)


def _declared(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the attached tools of vendors: the format for which each is declared, and its kind."""
    for api, fields in _mapping(options.get("vendor")).items():
        for tool in _listed(_mapping(fields).get("tools")):
            for kind in _kinds(_mapping(tool)):
                yield api, kind


def _kinds(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kind of a tool: most formats have a `type`, in the others it is a key."""
    named = tool.get("type") or tool.get("name")
    if isinstance(named, str):
        yield named
    else:
        yield from (str(key) for key in tool)


def _same_format(shown: ShownToTarget, to: BackendProfile) -> bool:
    return to.target is None or shown.from_api in (None, to.target.api)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(value: object) -> Iterable[Any]:
    return cast("Iterable[Any]", value) if isinstance(value, list | tuple) else ()


def _turns(number: int | None) -> str:
    return "the last turn" if number == 1 else f"the last {number} turns"


def _thousands(tokens: int) -> str:
    """Return a number of tokens in short form: 200k, 1M."""
    if tokens >= 1_000_000:
        return f"{round(tokens / 1_000_000, 1):g}M"
    return f"{round(tokens / 1_000)}k" if tokens >= 1_000 else str(tokens)


def _kept(topic: Topic, says: str, *, why: str = "") -> Item:
    return Item(topic=topic, mark="kept", says=says, why=why)


def _converted(topic: Topic, says: str, *, fallback: str, why: str = "") -> Item:
    return Item(
        topic=topic, mark="converted", says=f"{says} ({fallback} fallback)", fallback=fallback, why=why
    )


def _removed(topic: Topic, says: str, *, fallback: str | None = None, why: str = "") -> Item:
    return Item(topic=topic, mark="removed", says=says, fallback=fallback, why=why)
