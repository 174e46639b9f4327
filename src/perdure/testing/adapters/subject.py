"""What the conformance suite knows about the adapter under test, and what its laws use to look into requests.

Another process renders the same histories too, because a request must not depend on the process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from operator import attrgetter
from typing import Any, ClassVar, cast

from perdure.model.context import Context
from perdure.providers.contract import Adapter, Loss, Rendered
from perdure.testing.adapters.histories import HISTORIES

__all__ = [
    "AdapterSubject",
    "for_each",
    "changed",
    "covers",
    "is_sent",
    "leaves",
    "mended",
    "digests",
    "digests_elsewhere",
    "main",
]


class AdapterSubject:
    """Tells the suite how to get the adapter under test, and has examples of its format.

    Without an example the laws that need one are skipped, with the reason.
    """

    model: ClassVar[str] = "model-1"  # what requests are rendered for
    request: ClassVar[Mapping[str, Any] | None] = None  # a request in its format
    reply: ClassVar[Mapping[str, Any] | None] = None  # an answer in its format
    streamed: ClassVar[bytes | None] = None  # the same answer, streamed

    def adapter(self) -> Adapter:
        """Return the adapter under test."""
        raise NotImplementedError

    def rendered(self, context: Context) -> Rendered:
        """Return the request that shows `context` to the model under test."""
        return self.adapter().render(context, model=self.model)


def for_each(cases: Iterable[Any]) -> Callable[[Callable[[Any, Any], None]], Callable[..., None]]:
    """Make a law about one case a test of all `cases`; called with a case, it is about that one alone.

    A failure is an `ExceptionGroup` in which each error names its case.
    """
    known = tuple(cases)

    def decorate(law: Callable[[Any, Any], None]) -> Callable[..., None]:
        def test(self: Any, *case: Any) -> None:
            failures = [failure for each in case or known if (failure := _failure(law, self, each))]
            if failures:
                raise ExceptionGroup(
                    f"{law.__name__}: {len(failures)} of {len(case or known)} cases", failures
                )

        test.__name__, test.__qualname__, test.__doc__ = law.__name__, law.__qualname__, law.__doc__
        return test

    return decorate


def _failure(law: Callable[[Any, Any], None], suite: object, case: object) -> Exception | None:
    try:
        law(suite, case)
    except Exception as error:  # noqa: BLE001  # others' code: an error of theirs is reported with its case
        error.add_note(f"case: {case!r}")
        return error
    return None


_HALVES = re.compile("[\ud800-\udfff�?]")
_WRONG: list[Any] = json.loads('[null, 7, "?", true, [], {}, [null], [7], ["?"], {"?": null}, [[]], [{}]]')


def leaves(value: object) -> Iterator[str]:
    """Yield every text in a request, names of fields too; JSON in a text is also read."""
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
    """Return words without the replacement for half a surrogate pair, and without control characters."""
    return _HALVES.sub("", words).replace("\x00", "")


def is_sent(words: str, sent: str) -> bool:
    """True if words are in the text of a request; a file of words may be sent as words."""
    return mended(words).strip() in sent or mended(_decoded(words) or words).strip() in sent


def covers(loss: Loss, where: str) -> bool:
    """True if a loss is about this place, about something in it or about what it is in."""
    place = loss.where.removesuffix("[]")
    return _within(where, place) or _within(place, where)


def changed(value: object) -> Iterator[Any]:
    """Yield an example with one part of it of a wrong shape, for every part and several shapes."""
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
    """Return a digest of the request and the report of every history."""
    return {name: _digest(ground, name) for name in HISTORIES}


def digests_elsewhere(ground: type[AdapterSubject], seed: int) -> dict[str, str]:
    """Return the same, from a new process with that hash seed."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", program, f"{ground.__module__}:{ground.__qualname__}"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout
    return json.loads(output)


def main(name: str) -> None:
    """Do the work of that process."""
    module, _, path = name.partition(":")
    ground: type[AdapterSubject] = attrgetter(path)(import_module(module))
    sys.stdout.write(json.dumps(digests(ground())))


def _digest(ground: AdapterSubject, name: str) -> str:
    rendered = ground.rendered(HISTORIES[name])
    text = json.dumps([rendered.body, [repr(loss) for loss in rendered.losses]])
    return sha256(text.encode()).hexdigest()
