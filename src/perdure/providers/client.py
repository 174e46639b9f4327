"""Takes a step on a backend: renders the context, sends the request, and parses the answer.

The adapter of the wire format renders the context, its transport sends it, and the adapter's parser reads
the bytes that come back.  A stream that ends before its last event is an error: half an answer is never
taken for a whole one.  A server may report an error inside a stream, after a status of 200; the last bytes
of every stream are searched for one, and an answer with an error in it is not kept, however it ended.
A vendor's words about a failure go through `fault`, which leaves out what looks like a key.

A request is repeated where it is safe: before the first byte of an answer, and at most `retries` times.
A request that lets the vendor call an MCP server is repeated only after it was refused: a call may have been made.
The client waits as long as the backend asks.  If that is too long, it raises the error at once, with the wait.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from asyncio import sleep
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import msgspec

from perdure.errors import Invalid, PerdureError, Unavailable
from perdure.model.context import Context
from perdure.model.message import ToolCall
from perdure.model.recipe import Sent
from perdure.providers import registry
from perdure.providers.backend import RETRIES, Backend
from perdure.providers.contract import (
    Adapter,
    CallDelta,
    Finished,
    ModelEvent,
    PendingReply,
    Reply,
    StreamParser,
    losses_of,
    stop_reason,
)
from perdure.providers.registry import Target
from perdure.providers.structured_output import as_sent, request_options
from perdure.providers.transport.address import UNKNOWN, UNRESOLVED, client_address, identity
from perdure.providers.transport.contract import Request, Send
from perdure.providers.transport.errors import (
    BackendUnavailable,
    CutOff,
    RateLimited,
    Trouble,
    fault,
    words_of,
)
from perdure.providers.transport.registry import Address, address_of, load_sdk, transport
from perdure.providers.wire.fields.vendor_metadata import made_by
from perdure.providers.wire.stream.sse import Events

__all__ = ["Speaker", "TAIL_BYTES", "Tail", "trouble_in", "WAIT_SECONDS_MAX", "answered", "pause"]


TAIL_BYTES = 64 * 1024

# What vendors call an error, and the status that they would have given it before the first byte.
_STATUSES = (
    ("overloaded", 529),
    ("rate_limit", 429),
    ("too_many_requests", 429),
    ("RESOURCE_EXHAUSTED", 429),
    ("authentication", 401),
    ("permission", 403),
    ("content_filter", 400),
    ("context_length", 400),
    ("invalid", 400),
)

# What an event says that ends an answer; a usage report may come after it.
_END = re.compile(
    r'"(?:finish_?reason|stop_?reason|done_reason)"\s*:\s*"[^"]|"(?:response|interaction)\.complet(?:e|ed)"',
    re.IGNORECASE,
)
_NO_ERROR = ("", "none", "null")  # what servers put in the place of an error that did not happen


class Tail:
    """The last bytes of a stream."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        """Append bytes."""
        self._held += data
        if len(self._held) > 2 * TAIL_BYTES:
            del self._held[:-TAIL_BYTES]

    def has_begun(self) -> bool:
        """True if an event has come, or a part of one; a page of a proxy has none."""
        return b"data:" in self._held

    def is_done(self) -> bool:
        """True if the stream has its end mark, which servers of Chat Completions send."""
        return self._held.rstrip().endswith(b"[DONE]")

    def trouble(self, *, is_ended: bool = False) -> Trouble | None:
        """Return the error that the stream names; None if it names none.

        With `is_ended` the answer has its end, and an error that has come after it takes nothing away.
        """
        if b"error" not in self._held:
            return None
        events = Events()
        frames = [frame.data for frame in (*events.feed(bytes(self._held)), *events.rest())]
        text = self._held.decode("utf-8", "replace")
        # Ollama sends lines, not events, and some servers one whole body.
        told = [each for each in frames or text.splitlines() if each.strip() not in ("", "[DONE]")]
        if is_ended:
            ends = (at for at in range(len(told) - 1, -1, -1) if _END.search(told[at]))
            searched = told[: next(ends, -1)][::-1]
        else:
            searched = [*told[-1:], *([] if frames else [text]), *reversed(told[:-1])]
        errors = (_error(data) for data in searched)
        found = next((error for error in errors if error), None)
        if found is None:
            return None
        said = words_of(found)
        return Trouble(_status(found, said), said)


def trouble_in(body: dict[str, Any]) -> Trouble | None:
    """Return the error that a whole answer, or an event of a stream, names; None if it names none."""
    found = _error_of(body)
    if found is None:
        return None
    said = words_of(found)
    return Trouble(_status(found, said), said)


def _error(data: str) -> dict[str, Any] | None:
    if '"error' not in data:
        return None
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(event, list):  # Google's servers put an error into a list
        event = next(iter(cast("list[object]", event)), None)
    return _error_of(cast("dict[str, Any]", event)) if isinstance(event, dict) else None


def _error_of(body: dict[str, Any]) -> dict[str, Any] | None:
    inner = body.get("response", body.get("interaction"))
    holder = cast("dict[str, Any]", inner) if isinstance(inner, dict) else body
    error = holder.get("error")
    if not error and isinstance(holder.get("errors"), list):
        error = next(iter(cast("list[object]", holder["errors"])), None)
    if isinstance(error, dict) and _happened(cast("dict[str, Any]", error)):
        return cast("dict[str, Any]", error)
    if isinstance(error, str) and error.strip().lower() not in _NO_ERROR:
        return {"message": error}
    return body if body.get("type") == "error" else None


def _happened(error: dict[str, Any]) -> bool:
    """True if an error has words or a status; servers also send one that is empty, beside a good answer."""
    words = [each for each in error.values() if isinstance(each, str)]
    numbers = [each for each in error.values() if isinstance(each, int)]
    return (
        any(each.strip().lower() not in _NO_ERROR for each in words)
        or any(each >= 400 for each in numbers)
        or any(bool(each) and not isinstance(each, str | int | float) for each in error.values())
    )


def _status(error: dict[str, Any], said: str) -> int:
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return next((status for word, status in _STATUSES if word.lower() in said.lower()), 500)


WAIT_SECONDS_MAX = 60.0
_FIRST_SECONDS, _GROWTH, _LONGEST_SECONDS = 0.5, 2.0, 8.0


async def answered(send: Send, request: Request, *, retries: int) -> AsyncGenerator[bytes]:
    """Yield the bytes of the answer; asks up to `retries` times more, as long as not one byte has come.

    Raises `BackendUnavailable` if it stays silent for longer than the request's time-out.
    """
    attempt = 0
    while True:
        begun = False
        try:
            async with aclosing(_timed(send, request)) as pieces:
                async for piece in pieces:
                    begun = True
                    yield piece
        except BackendUnavailable as error:
            is_safe = not begun and (isinstance(error, RateLimited) or not request.calls_servers)
            if not is_safe or attempt >= retries or not await pause(error, attempt):
                raise
            attempt += 1
        else:
            return


async def pause(error: Unavailable, attempt: int) -> bool:
    """Wait before the next attempt; return False at once if the wait would be too long."""
    if error.retry_after is not None and error.retry_after > WAIT_SECONDS_MAX:
        return False
    backoff = min(_LONGEST_SECONDS, _FIRST_SECONDS * _GROWTH**attempt)
    jittered = backoff * random.uniform(0.75, 1.0)
    await sleep(jittered if error.retry_after is None else error.retry_after)
    return True


async def _timed(send: Send, request: Request) -> AsyncGenerator[bytes]:
    async with aclosing(cast("AsyncGenerator[bytes]", send(request))) as pieces:
        begun = False
        while True:
            try:
                async with asyncio.timeout(request.timeout):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                raise _silent(request, begun=begun) from error
            if piece is None:
                return
            begun = True
            yield piece


def _silent(request: Request, *, begun: bool) -> BackendUnavailable:
    said = f"{request.backend} was silent for {request.timeout:g} seconds"
    if begun:
        return CutOff(
            f"{said} in the middle of its answer; nothing of it was kept.",
            advice="Ask again.",
            code="backend_silent",
            seconds=request.timeout,
        )
    return BackendUnavailable(
        f"{said}; nothing was done.",
        advice="Trying again may work.",
        code="backend_silent",
        seconds=request.timeout,
    )


class Speaker:
    """A model that is called by an adapter and a transport."""

    def __init__(self, backend: Backend) -> None:
        """Prepare the backend; raises `Unsupported` if its format has no adapter or no transport."""
        self._backend = backend
        self._target: Target = backend.target
        self._adapter: Adapter = registry.adapter(self._target.api)
        self._send: Send = transport(self._target.api)
        self._address_of: Address | None = address_of(self._target.api)

    @property
    def backend(self) -> str:
        """Return its name, `provider:model`."""
        return self._backend.name

    @property
    def server(self) -> str:
        """Return the server that a step sent now would go to, as it is recorded."""
        if self._backend.server is not None:
            return self._backend.server
        try:
            return identity(self._address())
        except PerdureError:
            return UNRESOLVED  # sending raises the same error

    def _address(self) -> str:
        """Return the address of a request sent now; the environment may change between two steps."""
        backend, target = self._backend, self._target
        if backend.client is not None:
            return client_address(backend.client) or UNKNOWN
        if self._address_of is None:
            return backend.base_url or target.provider
        request = Request(
            backend.name,
            provider=target.provider,
            model=target.model,
            body={},
            base_url=backend.base_url,
            api_key=backend.api_key,
            is_vouched=backend.provider is not None,
            timeout=backend.timeout,
        )
        return self._address_of(request)

    @property
    def sent(self) -> Sent:
        """Return how its requests are made, to be recorded."""
        target = self._target
        return Sent(
            api=target.api, provider=target.provider, model=target.model, options=self._backend.options
        )

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer `context`; ends with `Finished`, or with `PendingReply` if the answer is fetched later.

        Raises one of the errors in `transport.errors` if it fails.
        """
        await load_sdk(self._target.api)
        request = replace(self.request(context), address=self._address(), server=self.server)
        if context.pending is not None:
            request = replace(request, pending=context.pending, stream=False, calls_servers=False)
        attempt = 0
        while True:
            told = 0
            try:
                async with aclosing(self._events(request)) as events:
                    async for event in events:
                        told += 1
                        yield event
            except _Inside as error:
                # The caller has received no event yet, so a repeat shows nothing twice.
                is_safe = not told and not request.calls_servers
                if not is_safe or attempt >= self._retries or not await pause(error.fault, attempt):
                    raise error.fault from error.__cause__
                attempt += 1
            else:
                return

    def request(self, context: Context) -> Request:
        """Return the request that a step would send."""
        target, backend = self._target, self._backend
        options = request_options({**context.options, **backend.options})
        shown = msgspec.structs.replace(context, options=options)
        rendered = self._adapter.render(shown, model=target.model, provider=target.provider)
        # A request that runs in the background may ask for its answer in one piece, against the options.
        is_streamed = options["stream"] is True and rendered.body.get("stream") is not False
        return Request(
            backend.name,
            provider=target.provider,
            model=target.model,
            body=as_sent(target.api, rendered.body, stream=is_streamed),
            names=rendered.names,
            # Where no field of the body says that the answer is to be streamed, the address does.
            losses=tuple(loss for loss in rendered.losses if loss.where != "options.stream"),
            stream=is_streamed,
            base_url=backend.base_url,
            client=backend.client,
            api_key=backend.api_key,
            is_vouched=backend.provider is not None,
            timeout=backend.timeout,
            client_retries=backend.client is not None and backend.retries is None,
            calls_servers=_calls_servers(rendered.body),
        )

    @property
    def _retries(self) -> int:
        if self._backend.retries is not None:
            return self._backend.retries
        return RETRIES if self._backend.client is None else 0

    async def _events(self, request: Request) -> AsyncGenerator[ModelEvent]:
        async with aclosing(answered(self._send, request, retries=self._retries)) as pieces:
            if not request.stream:
                body = _body(b"".join([piece async for piece in pieces]), request)
                try:
                    reply = self._adapter.parse(body, provider=self._target.provider)
                except Invalid as error:
                    raise _inside(trouble_in(body), request) or error from error
                if reply.pending is not None:
                    yield PendingReply(reply.pending)
                    return
                if _is_failed(reply):
                    raise _inside(trouble_in(body), request) or _ended_badly(reply, request)
                for event in _told(reply, request):
                    yield event
                return
            parser, tail, told = self._adapter.stream(provider=self._target.provider), Tail(), 0
            async for piece in pieces:
                for event in _fed(parser, tail, piece, request):
                    told += 1
                    yield _named(event, request.names)
        reply = _closed(parser, tail, request)
        for event in _told(reply, request)[told:]:
            yield event


def _told(reply: Reply, request: Request) -> list[ModelEvent]:
    """Return the events of a reply; the last says what the request and the answer could not carry over unchanged."""
    losses = losses_of(request.losses, reply.losses)
    last = reply.events[-1] if reply.events else None
    if not isinstance(last, Finished):
        return list(reply.events)
    # Bedrock does not say in an answer which model gave it, and signatures are good for that model alone.
    message = made_by(last.message, request.model)
    events = [*reply.events[:-1], msgspec.structs.replace(last, message=message, losses=losses)]
    return [_named(event, request.names) for event in events]


def _named(event: ModelEvent, names: Mapping[str, str]) -> ModelEvent:
    """Return the event with the tools' canonical names in place of the vendor's."""
    if not names:
        return event
    if isinstance(event, CallDelta) and event.name in names:
        return msgspec.structs.replace(event, name=names[event.name])
    if isinstance(event, Finished) and any(call.name in names for call in event.message.tool_calls):
        calls = tuple(
            ToolCall(call.id, names.get(call.name, call.name), call.args) for call in event.message.tool_calls
        )
        message = msgspec.structs.replace(event.message, tool_calls=calls)
        return msgspec.structs.replace(event, message=message)
    return event


class _Inside(Exception):
    """An error inside a stream; a repeat may succeed."""

    def __init__(self, fault: BackendUnavailable) -> None:
        self.fault = fault
        super().__init__(str(fault))


def _body(whole: bytes, request: Request) -> dict[str, Any]:
    try:
        body = json.loads(whole)
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{request.backend} answered with no JSON: {error}; nothing of it was kept.",
            code="not_an_answer",
            backend=request.backend,
        ) from error
    if not isinstance(body, dict):
        raise Invalid(
            f"{request.backend} answered with no object; nothing of it was kept.",
            code="not_an_answer",
            backend=request.backend,
        )
    return cast("dict[str, Any]", body)


def _calls_servers(body: Mapping[str, Any]) -> bool:
    """True if the vendor may call MCP servers while it answers a request: each vendor has its own name for them."""
    declared = body.get("tools")
    tools = cast("list[object]", declared) if isinstance(declared, list) else []
    named = [cast("Mapping[str, object]", tool) for tool in tools if isinstance(tool, Mapping)]
    return bool(body.get("mcp_servers")) or any(
        str(tool.get("type")).startswith("mcp") or "mcpServers" in tool for tool in named
    )


def _fed(parser: StreamParser, tail: Tail, piece: bytes, request: Request) -> list[ModelEvent]:
    """Return the events that these bytes complete; where they are no event, raise the error that they name."""
    tail.feed(piece)
    try:
        return parser.feed(piece)
    except Invalid as error:
        broken = _broken(tail, request)
        if broken is None:
            raise
        raise broken from error


def _closed(parser: StreamParser, tail: Tail, request: Request) -> Reply:
    """Return the whole reply; raises if the stream has an error in it, or ended before its end."""
    try:
        reply = parser.close()
    except Invalid as error:
        is_cut_off = error.code in ("stream_malformed", "stream_without_answer") and tail.has_begun()
        raise _broken(tail, request) or (_cut_off(request) if is_cut_off else error) from error
    is_ended = reply.stop is not None and not _is_failed(reply)
    broken = _broken(tail, request, is_ended=is_ended)
    if broken is not None:  # an ordinary end after it does not tell what the error has cost
        raise broken
    if _is_failed(reply):
        raise _ended_badly(reply, request)
    if reply.stop is None and not tail.is_done():
        raise _cut_off(request)
    return reply


def _cut_off(request: Request) -> CutOff:
    return CutOff(
        f"the answer of {request.backend} ended before it was complete; nothing of it was kept.",
        advice="Ask again.",
        backend=request.backend,
    )


def _is_failed(reply: Reply) -> bool:
    return stop_reason(reply.stop, reply.stop_kind, has_calls=False).reason == "failed"


def _ended_badly(reply: Reply, request: Request) -> CutOff:
    return CutOff(
        f"the answer of {request.backend} ended in an error ({reply.stop}); nothing of it was kept.",
        advice="Ask again.",
        code="error_answer",
        backend=request.backend,
        stop=reply.stop,
    )


def _broken(tail: Tail, request: Request, *, is_ended: bool = False) -> Exception | None:
    return _inside(tail.trouble(is_ended=is_ended), request)


def _inside(trouble: Trouble | None, request: Request) -> Exception | None:
    if trouble is None:
        return None
    secret = request.api_key or getattr(request.client, "api_key", None)
    found: PerdureError = fault(request.backend, trouble, secret=secret)
    return _Inside(found) if isinstance(found, BackendUnavailable) else found
