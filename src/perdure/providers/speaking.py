"""Speaking: a backend takes a step.

The context is rendered by the adapter of the wire format, sent by its transport, and the bytes that
come back are fed to the adapter's parser.  A stream that ends without its end is an error: half an
answer is never taken for a whole one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import msgspec

from perdure.errors import Invalid, PerdureError
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
    Pending,
    Reply,
    StreamParser,
    losses_of,
)
from perdure.providers.outputs import as_sent, request_options
from perdure.providers.registry import Target
from perdure.providers.stop_words import stop_reason
from perdure.providers.transport.address import UNKNOWN, UNRESOLVED, client_address, identity
from perdure.providers.transport.contract import Request, Send
from perdure.providers.transport.faults import BackendUnavailable, CutOff, Trouble, fault
from perdure.providers.transport.finding import Address, address_of, transport
from perdure.providers.transport.inside import Tail, trouble_in
from perdure.providers.transport.persistence import answered, pause
from perdure.providers.wire.native import made_by

__all__ = ["Speaker"]


class Speaker:
    """A model that is reached by an adapter and a transport."""

    def __init__(self, backend: Backend) -> None:
        """Speak for that backend; raises `Unsupported` if its format has no adapter or no transport."""
        self._backend = backend
        self._target: Target = backend.target
        self._adapter: Adapter = registry.adapter(self._target.api)
        self._send: Send = transport(self._target.api)
        self._address_of: Address | None = address_of(self._target.api)

    @property
    def backend(self) -> str:
        """Its name, `provider:model`."""
        return self._backend.name

    @property
    def server(self) -> str:
        """The server that a step sent now would go to, as it is recorded."""
        if self._backend.server is not None:
            return self._backend.server
        try:
            return identity(self._address())
        except PerdureError:
            return UNRESOLVED  # sending raises the same error

    def _address(self) -> str:
        """Where a request would go now; the environment may change between two steps."""
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
        """How its requests are made, for the record."""
        target = self._target
        return Sent(
            api=target.api, provider=target.provider, model=target.model, options=self._backend.options
        )

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer `context`; ends with `Finished`, or with `Pending` if the answer is to be fetched later.

        Raises one of the errors in `transport.faults` if it cannot.
        """
        request = replace(self.request(context), address=self._address())
        if context.pending is not None:
            request = replace(request, pending=context.pending, stream=False)
        attempt = 0
        while True:
            told = 0
            try:
                async with aclosing(self._events(request)) as events:
                    async for event in events:
                        told += 1
                        yield event
            except _Inside as error:
                # Nobody was told anything yet, so nothing is said twice.
                if told or attempt >= self._retries or not await pause(error.fault, attempt):
                    raise error.fault from error.__cause__
                attempt += 1
            else:
                return

    def request(self, context: Context) -> Request:
        """What would be sent."""
        target, backend = self._target, self._backend
        options = request_options({**context.options, **backend.options})
        shown = msgspec.structs.replace(context, options=options)
        rendered = self._adapter.render(shown, model=target.model, provider=target.provider)
        # A request that runs in the background may ask for its answer whole, whatever the options say.
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
                reply = self._adapter.parse(body, provider=self._target.provider)
                if reply.pending is not None:
                    yield Pending(reply.pending)
                    return
                if _is_failed(reply):
                    raise _inside(trouble_in(body), request) or _ended_badly(reply, request)
                for event in _told(reply, request):
                    yield event
                return
            parser, tail, told = self._adapter.stream(provider=self._target.provider), Tail(), 0
            async for piece in pieces:
                tail.feed(piece)
                for event in parser.feed(piece):
                    told += 1
                    yield _named(event, request.names)
        reply = _closed(parser, tail, request)
        for event in _told(reply, request)[told:]:
            yield event


def _told(reply: Reply, request: Request) -> list[ModelEvent]:
    """The events of a reply; the last says what the request and the answer could not carry over unchanged."""
    losses = losses_of(request.losses, reply.losses)
    last = reply.events[-1] if reply.events else None
    if not isinstance(last, Finished):
        return list(reply.events)
    # Bedrock does not say in an answer which model gave it, and signatures are good for that model alone.
    message = made_by(last.message, request.model)
    events = [*reply.events[:-1], msgspec.structs.replace(last, message=message, losses=losses)]
    return [_named(event, request.names) for event in events]


def _named(event: ModelEvent, names: Mapping[str, str]) -> ModelEvent:
    """The event with tools by their own names, not by those that the vendor was told."""
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
    """An error that came inside a stream, and may be gone the next time."""

    def __init__(self, fault: BackendUnavailable) -> None:
        self.fault = fault
        super().__init__(str(fault))


def _body(whole: bytes, request: Request) -> dict[str, Any]:
    try:
        body = json.loads(whole)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{request.backend} answered with no JSON: {error}; nothing of it was kept.") from error
    if not isinstance(body, dict):
        raise Invalid(f"{request.backend} answered with no object; nothing of it was kept.")
    return cast("dict[str, Any]", body)


def _closed(parser: StreamParser, tail: Tail, request: Request) -> Reply:
    """The whole reply; raises if the stream ended with an error, or before its end."""
    try:
        reply = parser.close()
    except Invalid as error:
        raise _broken(tail, request) or error from error
    if reply.stop is not None and not _is_failed(reply):
        return reply
    broken = _broken(tail, request)
    if broken is not None:
        raise broken
    if _is_failed(reply):
        raise _ended_badly(reply, request)
    if reply.stop is None and not tail.is_done():
        raise CutOff(
            f"the answer of {request.backend} ended before its end; nothing of it was kept. Ask again."
        )
    return reply


def _is_failed(reply: Reply) -> bool:
    return stop_reason(reply.stop, reply.stop_kind, has_calls=False).reason == "failed"


def _ended_badly(reply: Reply, request: Request) -> CutOff:
    return CutOff(
        f"the answer of {request.backend} ended in an error ({reply.stop}); nothing of it was kept. Ask again."
    )


def _broken(tail: Tail, request: Request) -> Exception | None:
    return _inside(tail.trouble(), request)


def _inside(trouble: Trouble | None, request: Request) -> Exception | None:
    if trouble is None:
        return None
    found: PerdureError = fault(request.backend, trouble, secret=request.api_key)
    return _Inside(found) if isinstance(found, BackendUnavailable) else found
