"""Counts the tokens of a text or of a whole request.

    tokens.count(context, model="anthropic:claude-sonnet-5-5")     Tokens(count=812, margin=157, …)

If the model's tokenizer is available, a text is counted exactly.  Otherwise, and for what servers add
around the text, the count is an estimate with a margin that held for 95 of 100 recorded requests of text.
Pictures and files are rough estimates, with a margin to match.  Counting never fails.

Each tokenizer is loaded on first use.  For OpenAI's models it is tiktoken, if it is installed and has the
vocabulary on disk: nothing is downloaded.  For a local model it is the llama.cpp server of this process, if
one runs.  A tokenizer that fails answers None, and the estimate is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from perdure.errors import PerdureError
from perdure.model.context import Context
from perdure.model.message import Block, File, Image, Message, ReasoningSummary, Text
from perdure.providers.token_measures import Family, family, units
from perdure.providers.wire.server_tools import is_account, told

__all__ = ["Scale", "Tokens", "Weight", "count", "LlamaServer", "Tiktoken", "Tokenizer", "at_hand"]


_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_SECONDS = 10


class Tokenizer(Protocol):
    """Counts the tokens of one model exactly."""

    @property
    def name(self) -> str:
        """Return its name for people."""
        ...

    def text(self, text: str) -> int | None:
        """Return the tokens of a text; None if it cannot say."""
        ...

    def request(self, context: Context) -> int | None:
        """Return the tokens of a whole request; None if it cannot say."""
        ...


class Tiktoken:
    """OpenAI's tokenizer.  It does not count what the servers add to the text of a request."""

    def __init__(self, encoding: Any) -> None:
        """Count with an encoding of tiktoken."""
        self._encoding = encoding

    @property
    def name(self) -> str:
        return f"tiktoken {self._encoding.name}"

    def text(self, text: str) -> int | None:
        """Return the tokens of a text."""
        sound = text.encode("utf-8", "replace").decode("utf-8")
        return len(self._encoding.encode_ordinary(sound))

    def request(self, context: Context) -> int | None:
        """Return None: tiktoken does not know a server's template."""
        return None


class LlamaServer:
    """The tokenizer of a llama.cpp server, which also knows the model's template for requests."""

    def __init__(self, address: str) -> None:
        """Ask the server at `address`."""
        self._address = address.rstrip("/")

    @property
    def name(self) -> str:
        """Return its name for people."""
        return "llama.cpp"

    def text(self, text: str) -> int | None:
        """Return the tokens of a text; None if the server does not answer."""
        sound = text.encode("utf-8", "replace").decode("utf-8")
        answer = self._asked("/tokenize", {"content": sound})
        tokens = answer.get("tokens") if answer else None
        return len(cast("list[Any]", tokens)) if isinstance(tokens, list) else None

    def request(self, context: Context) -> int | None:
        """Return the tokens of a request of text; None for one with pictures or tools, which are counted otherwise."""
        from perdure.providers import registry

        try:
            body = registry.adapter("openai-chat").render(context, model="local", provider="local").body
        except PerdureError:
            return None
        if body.get("tools") or not _is_text(body):
            return None
        answer = self._asked("/apply-template", {"messages": body["messages"]})
        prompt = answer.get("prompt") if answer else None
        return self.text(prompt) if isinstance(prompt, str) else None

    def _asked(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        from urllib.request import Request, urlopen  # they load ssl and email, and few processes ask a server

        sent = Request(
            self._address + path, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        try:
            with urlopen(sent, timeout=_SECONDS) as answer:
                read: Any = json.load(answer)
        except (OSError, ValueError):  # an error of a URL is an `OSError`
            return None
        return cast("dict[str, Any]", read) if isinstance(read, dict) else None


def at_hand(model: str) -> Tokenizer | None:
    """Return the tokenizer of a model by its name or its backend's, if it can be had at once; else None."""
    provider, colon, name = model.partition(":")
    if colon and provider == "local":
        return _local(name)
    last = model.rpartition(":")[2].rpartition("/")[2]
    return _tiktoken(last)


def _local(name: str) -> Tokenizer | None:
    from perdure.providers.local.serving import running

    try:
        address = running(name)
    except PerdureError:
        return None
    return LlamaServer(address) if address is not None else None


@cache
def _tiktoken(name: str) -> Tokenizer | None:
    if not _vocabularies().is_dir():  # looked at first, because importing tiktoken takes longer than a turn
        return None
    try:
        import tiktoken  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    library = cast("Any", tiktoken)
    try:
        encoding = str(library.encoding_name_for_model(name))
        return Tiktoken(library.get_encoding(encoding)) if _on_disk(encoding) else None
    except (KeyError, ValueError, OSError):
        return None


def _on_disk(encoding: str) -> bool:
    """True if tiktoken has the vocabulary already, where it would look for it itself."""
    key = hashlib.sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
    return (_vocabularies() / key).is_file()


def _vocabularies() -> Path:
    """Return the folder of tiktoken's vocabularies; one that cannot be there if the environment says that none is kept."""
    named = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if named is None:
        return Path(tempfile.gettempdir()) / "data-gym-cache"
    return Path(named) if named else Path(os.devnull)


def _is_text(body: dict[str, Any]) -> bool:
    messages = cast("list[dict[str, Any]]", body["messages"])
    return all(isinstance(each.get("content"), str) and not each.get("tool_calls") for each in messages)


_IMAGE = 1_000  # tokens, and as much again for the margin
_FILE = 3_000
_KEPT_MAX = 4  # characters of sealed reasoning that make a token, at the most


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """A count of tokens, exact or estimated."""

    count: int
    margin: int  # it may be so many more or fewer; 0 where it is exact
    exact: bool
    how: str  # in words: the tokenizer, or whose estimate

    @property
    def most(self) -> int:
        """Return the count plus its margin, for reserving room."""
        return self.count + self.margin


class Weight(msgspec.Struct, frozen=True):
    """The tokens and units of a part of a request; weights are added."""

    tokens: float = 0.0
    media: int = 0  # tokens that pictures and files are guessed at; as much again may be off
    sealed: int = 0  # characters that only their issuer can read

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.tokens + other.tokens, self.media + other.media, self.sealed + other.sealed)


class Scale:
    """Weighs a request part by part while it is assembled; it calls no server."""

    __slots__ = ("_counter", "_known")

    def __init__(self, model: str, tokenizer: Tokenizer | None = None) -> None:
        """Weigh for a model by its name or its backend's, as `count` does."""
        self._known = family(model)
        found = tokenizer if tokenizer is not None else at_hand(model)
        self._counter = None if isinstance(found, LlamaServer) else found

    def frame(self, context: Context) -> Weight:
        """Return the weight of the request without its messages: system text, tools and the answer's schema."""
        parts = _parts(msgspec.structs.replace(context, messages=()))
        return self._weight(parts, self._known.base)

    def message(self, message: Message) -> Weight:
        """Return the weight of one message."""
        parts = _parts(_NOTHING)
        parts.messages = 1
        _add(parts, message)
        return self._weight(parts, 0.0)

    def tokens(self, weight: Weight, *, tooled: bool) -> Tokens:
        """Return the tokens of everything that was weighed; `tooled`: there are tools, or a schema for the answer."""
        estimate = round(weight.tokens)
        margin = self._known.margin(estimate, tooled=tooled) + weight.media + weight.sealed // _KEPT_MAX
        return Tokens(count=estimate + weight.media, margin=margin, exact=False, how=_estimated(self._known))

    def _weight(self, parts: _Parts, base: float) -> Weight:
        counted = self._counter.text("\n".join(parts.words)) if self._counter and parts.words else None
        said = counted if counted is not None else self._known.text * sum(map(units, parts.words))
        around = _around(parts, self._known) - self._known.base + base
        return Weight(said + around, parts.images * _IMAGE + parts.files * _FILE, parts.sealed)


class _Parts(msgspec.Struct, kw_only=True):
    """The parts of a context that are counted."""

    words: list[str]  # of all roles, calls and results included
    schemas: list[str]  # of tools
    output: str  # the schema of the answer
    messages: int
    calls: int
    tools: int
    images: int
    files: int
    sealed: int  # characters that only their issuer can read


def count(what: Context | str, *, model: str, tokenizer: Tokenizer | None = None) -> Tokens:
    """Return the tokens of a text, or of a request with `what`, for a model by its name or its backend's.

    `tokenizer` counts the words; None takes the model's own if it is available.
    """
    known = family(model)
    counter = tokenizer if tokenizer is not None else at_hand(model)
    if isinstance(what, str):
        return _text(what, known, counter)
    whole = counter.request(what) if counter is not None else None
    if counter is not None and whole is not None:
        return Tokens(count=whole, margin=0, exact=True, how=counter.name)
    return _request(_parts(what), known, counter)


def _text(text: str, known: Family, counter: Tokenizer | None) -> Tokens:
    counted = counter.text(text) if counter is not None else None
    if counter is not None and counted is not None:
        return Tokens(count=counted, margin=0, exact=True, how=counter.name)
    estimate = round(known.text * units(text))
    margin = min(known.margin(estimate, tooled=False), 2 * len(text) + 1)
    return Tokens(count=estimate, margin=margin, exact=False, how=_estimated(known))


def _request(parts: _Parts, known: Family, counter: Tokenizer | None) -> Tokens:
    words = "\n".join(parts.words)
    counted = counter.text(words) if counter is not None else None
    said = counted if counted is not None else known.text * sum(map(units, parts.words))
    media = parts.images * _IMAGE + parts.files * _FILE
    estimate = round(said + _around(parts, known))
    tooled = bool(parts.tools or parts.output)
    return Tokens(
        count=estimate + media,
        margin=known.margin(estimate, tooled=tooled) + media + parts.sealed // _KEPT_MAX,
        exact=False,
        how=_explained(parts, known, counter if counted is not None else None),
    )


def _around(parts: _Parts, known: Family) -> float:
    """Return the tokens that a server adds around the text."""
    return (
        known.base
        + known.message * parts.messages
        + known.call * parts.calls
        + (known.tools if parts.tools else 0)
        + known.tool * parts.tools
        + known.schema * sum(map(units, parts.schemas))
        + known.output * units(parts.output)
    )


def _estimated(known: Family) -> str:
    return f"estimated for {known.name}"


def _explained(parts: _Parts, known: Family, counter: Tokenizer | None) -> str:
    how = f"{counter.name} for the words, the rest " if counter is not None else ""
    guessed = [
        *([f"{parts.images} images at {_IMAGE} each"] if parts.images else []),
        *([f"{parts.files} files at {_FILE} each"] if parts.files else []),
        *(["sealed reasoning only in the margin"] if parts.sealed else []),
    ]
    return "; ".join([how + _estimated(known), *guessed])


def _parts(context: Context) -> _Parts:
    output = context.options.get("output")
    parts = _Parts(
        words=[context.system] if context.system else [],
        schemas=[f"{tool.name} {tool.description} {_json(tool.parameters)}" for tool in context.tools],
        output=_json(output.get("schema")) if isinstance(output, Mapping) else "",
        messages=len(context.messages) + bool(context.system),
        calls=0,
        tools=len(context.tools),
        images=0,
        files=0,
        sealed=0,
    )
    for message in context.messages:
        _add(parts, message)
    return parts


def _add(parts: _Parts, message: Message) -> None:
    _add_blocks(parts, message.content)
    for call in message.tool_calls:
        parts.calls += 1
        parts.words.append(f"{call.name} {call.args}")
    for result in message.tool_results:
        parts.calls += 1
        _add_blocks(parts, result.content)
    parts.sealed += len(message.vendor_metadata or "") if _seals(message.vendor_metadata) else 0


def _add_blocks(parts: _Parts, blocks: Iterable[Block]) -> None:
    for block in blocks:
        match block:
            case Text(text=text):
                parts.words.append(text)
            case Image():
                parts.images += 1
            case File() if is_account(block):
                parts.words.append(told(block))
            case File():
                parts.files += 1
            case ReasoningSummary():
                pass  # vendors do not accept reasoning summaries as text


def _seals(metadata: str | None) -> bool:
    return metadata is not None and any(word in metadata for word in ("ignature", "encrypted", "redacted"))


_NOTHING = Context()


def _json(value: Any) -> str:
    try:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return str(value)
