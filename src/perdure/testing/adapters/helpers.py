"""Looking into requests and reports, whatever the format.

Another process that renders the same histories: what it says must not depend on the process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from operator import attrgetter
from typing import Any, cast

from perdure.providers.contract import Loss
from perdure.testing.adapters.histories import HISTORIES
from perdure.testing.adapters.subject import AdapterSubject

__all__ = ["changed", "covers", "is_told", "leaves", "mended", "digests", "digests_elsewhere", "main"]


_HALVES = re.compile("[\ud800-\udfff�?]")
_WRONG: list[Any] = json.loads('[null, 7, "?", true, [], {}, [null], [7], ["?"], {"?": null}, [[]], [{}]]')


def leaves(value: object) -> Iterator[str]:
    """Every text in a request, names of fields too; JSON in a text is also read."""
    match value:
        case str():
            yield value
            if value[:1] in ("{", "["):
                yield from leaves(_parsed(value))
        case Mapping():
            for name, each in cast("Mapping[str, Any]", value).items():
                yield name
                yield from leaves(each)
        case list() | tuple():
            for each in cast("list[Any]", value):
                yield from leaves(each)
        case bytes() | None:
            return
        case _:
            yield json.dumps(value)


def mended(words: str) -> str:
    """Words without what stands for half a surrogate pair, and without control characters."""
    return _HALVES.sub("", words).replace("\x00", "")


def is_told(words: str, told: str) -> bool:
    """Whether words are among what a request tells; a file of words may be told as words."""
    return mended(words).strip() in told or mended(_decoded(words) or words).strip() in told


def covers(loss: Loss, where: str) -> bool:
    """Whether an entry speaks of a place, of something in it or of what it is in."""
    told = loss.where.removesuffix("[]")
    return _within(where, told) or _within(told, where)


def changed(value: object) -> Iterator[Any]:
    """An example with one part of it of a wrong shape, for every part and several shapes."""
    yield from _WRONG
    if isinstance(value, Mapping):
        held = dict(cast("Mapping[str, Any]", value))
        for name, each in held.items():
            yield {other: it for other, it in held.items() if other != name}
            yield from ({**held, name: other} for other in changed(each))
    elif isinstance(value, list):
        listed = cast("list[Any]", value)
        for at, each in enumerate(listed):
            yield from ([*listed[:at], other, *listed[at + 1 :]] for other in changed(each))


def _decoded(words: str) -> str | None:
    try:
        return b64decode(words, validate=True).decode()
    except ValueError:
        return None


def _within(place: str, whole: str) -> bool:
    return place == whole or (place.startswith(whole) and place[len(whole)] in ".[")


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def digests(ground: AdapterSubject) -> dict[str, str]:
    """A digest of the request and the report of every history."""
    return {name: _digest(ground, name) for name in HISTORIES}


def digests_elsewhere(ground: type[AdapterSubject], seed: int) -> dict[str, str]:
    """The same, from a new process with that hash seed."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", program, f"{ground.__module__}:{ground.__qualname__}"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    told = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout
    return json.loads(told)


def main(name: str) -> None:
    """Be that process."""
    module, _, path = name.partition(":")
    ground: type[AdapterSubject] = attrgetter(path)(import_module(module))
    sys.stdout.write(json.dumps(digests(ground())))


def _digest(ground: AdapterSubject, name: str) -> str:
    rendered = ground.rendered(HISTORIES[name])
    told = json.dumps([rendered.body, [repr(loss) for loss in rendered.losses]])
    return sha256(told.encode()).hexdigest()
