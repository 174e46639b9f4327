"""Tokenizers: those that may be at hand, each loaded when it is first asked for.

For OpenAI's models tiktoken, if it is installed and has the vocabulary on disk: nothing is fetched
to count.  For a local model the llama.cpp server of this process, if it runs.  A tokenizer that
fails is as good as none: it answers None, and an estimate takes its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from perdure.errors import PerdureError
from perdure.model.context import Context

__all__ = ["LlamaServer", "Tiktoken", "Tokenizer", "at_hand"]

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_SECONDS = 10


class Tokenizer(Protocol):
    """What counts the tokens of one model exactly."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    def text(self, text: str) -> int | None:
        """The tokens of a text; None if it cannot say."""
        ...

    def request(self, context: Context) -> int | None:
        """The tokens of a whole request; None if it cannot say."""
        ...


class Tiktoken:
    """OpenAI's tokenizer.  What its servers add to the words of a request it does not know."""

    def __init__(self, encoding: Any) -> None:
        """Count with an encoding of tiktoken."""
        self._encoding = encoding

    @property
    def name(self) -> str:
        """Such as `tiktoken o200k_base`."""
        return f"tiktoken {self._encoding.name}"

    def text(self, text: str) -> int | None:
        """The tokens of a text."""
        sound = text.encode("utf-8", "replace").decode("utf-8")
        return len(self._encoding.encode_ordinary(sound))

    def request(self, context: Context) -> int | None:
        """It does not know."""
        return None


class LlamaServer:
    """The tokenizer of a llama.cpp server, which also knows the model's template for requests."""

    def __init__(self, address: str) -> None:
        """Ask the server at `address`."""
        self._address = address.rstrip("/")

    @property
    def name(self) -> str:
        """What it is, for people."""
        return "llama.cpp"

    def text(self, text: str) -> int | None:
        """The tokens of a text; None if the server does not answer."""
        sound = text.encode("utf-8", "replace").decode("utf-8")
        answer = self._asked("/tokenize", {"content": sound})
        tokens = answer.get("tokens") if answer else None
        return len(cast("list[Any]", tokens)) if isinstance(tokens, list) else None

    def request(self, context: Context) -> int | None:
        """The tokens of a request of text; None for one with pictures or tools, which are counted otherwise."""
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
        sent = Request(
            self._address + path, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        try:
            with urlopen(sent, timeout=_SECONDS) as answer:
                read: Any = json.load(answer)
        except (URLError, OSError, ValueError):
            return None
        return cast("dict[str, Any]", read) if isinstance(read, dict) else None


def at_hand(model: str) -> Tokenizer | None:
    """The tokenizer of a model by its name or its backend's, if it can be had at once; else None."""
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
    """Whether tiktoken has the vocabulary already, where it would look for it itself."""
    named = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    folder = Path(tempfile.gettempdir()) / "data-gym-cache" if named is None else Path(named)
    key = hashlib.sha1(_ADDRESS.format(encoding).encode(), usedforsecurity=False).hexdigest()
    return named != "" and (folder / key).is_file()


def _is_text(body: dict[str, Any]) -> bool:
    messages = cast("list[dict[str, Any]]", body["messages"])
    return all(isinstance(each.get("content"), str) and not each.get("tool_calls") for each in messages)
